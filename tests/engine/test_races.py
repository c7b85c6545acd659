"""Two actors, one order of what they do, and then the other: the whole state after it, however it went.

Every transition is one script, so two calls at once are one after the other; what may differ is who is first, and what
each believes. Each test forces the order and looks at all there is: where each message is, its counts, and all keys of the
namespace with what they hold.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, LeaseLostError, Limit, MessageNotFoundError, RetryPolicy
from fairqueue._engine.replies import ClaimedMessage
from fairqueue.claiming import claim_options
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import ids, one, put, state
from tests.engine.whole import CLAIMABLE, MORE, PARKED, WOKEN, all_there_is, everything, to_the_last_byte

LIMITS = [Limit("tenant", default=1)]


@dataclass
class Actors:
    """Two clients of one namespace, and the clock they share."""

    ann: FairQueue[Any]
    bob: FairQueue[Any]
    clock: ManualClock

    def of_bob(self, lease: Lease[Any]) -> Lease[Any]:
        """The same lease in Bob's hands: the same token, nothing of what Ann's knows about its end."""
        twin = copy.copy(lease)
        twin._held = copy.copy(lease._held)
        twin._held.desk = self.bob._consumer
        return twin


@pytest.fixture
async def actors(make_queue: MakeQueue, clock: ManualClock) -> Actors:
    queue = await make_queue(limits=LIMITS, retry=RetryPolicy.fixed(60))
    return Actors(queue, await make_queue(), clock)


Step = Callable[[], Awaitable[Any]]


async def in_order(actors: Actors, order: str, ann: Step, bob: Step) -> tuple[Any, Any]:
    """What each got; a lost lease is an answer too. Who came too late has changed nothing, to the last byte."""

    async def answer(step: Step) -> Any:
        try:
            return await step()
        except LeaseLostError:
            return "lost"
        except MessageNotFoundError:
            return 0

    steps = (ann, bob) if order == "ann first" else (bob, ann)
    first = await answer(steps[0])
    between = await to_the_last_byte(actors.ann)
    second = await answer(steps[1])
    if second in ("lost", 0) or getattr(second, "reclaimed", None) == []:  # a claim in vain parks what it met
        assert await to_the_last_byte(actors.ann) == between
    return (first, second) if order == "ann first" else (second, first)


both_ways = pytest.mark.parametrize("order", ["ann first", "bob first"])


@both_ways
async def test_complete_and_complete(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m")
    lease = await one(actors.ann)
    answers = await in_order(actors, order, lease.complete, actors.of_bob(lease).complete)
    assert sorted(answers) == ["done", "lost"]
    totals = {"enqueued": 1, "claimed": 1, "completed": 1}
    assert await all_there_is(actors.ann) == everything({}, seq=1, totals=totals)


@both_ways
async def test_complete_and_reclaim(actors: Actors, order: str) -> None:
    """Done work ends the message either way: late, it came back by reclaim and nobody had taken it."""
    await put(actors.ann, "a", "m", "next")
    lease = await one(actors.ann)
    actors.clock.advance(31)
    done, report = await in_order(actors, order, lease.complete, actors.bob.reclaim)
    assert done == "done"
    late = order == "bob first"
    assert report.reclaimed == ([("a", "m")] if late else [])
    totals = {"enqueued": 2, "claimed": 1, "completed": 1} | ({"reclaimed": 1} if late else {})
    turns = WOKEN | (MORE if late else {})
    assert await all_there_is(actors.ann) == everything(
        {"next": ("ready", 0, 0)}, turns=turns, seq=2, totals=totals
    )


async def test_complete_after_reclaim_and_claim(actors: Actors) -> None:
    await put(actors.ann, "a", "m")
    lease = await one(actors.ann)
    actors.clock.advance(31)
    await actors.bob.reclaim()
    taken = await one(actors.bob)
    before = await to_the_last_byte(actors.ann)
    with pytest.raises(LeaseLostError):
        await lease.complete()
    assert await to_the_last_byte(actors.ann) == before
    totals = {"enqueued": 1, "claimed": 2, "reclaimed": 1}
    assert await all_there_is(actors.ann) == everything(
        {"m": ("in_flight", 2, 1)}, {"m": ("token 2.2", 61)}, seq=1, totals=totals
    )
    assert await taken.complete() == "done"
    assert await all_there_is(actors.ann) == everything({}, seq=1, totals=totals | {"completed": 1})


@both_ways
async def test_extend_and_reclaim(actors: Actors, order: str) -> None:
    """An expired lease that nobody reclaimed is revived by its next extend; after a reclaim it is lost."""
    await put(actors.ann, "a", "m")
    lease = await one(actors.ann)
    actors.clock.advance(31)
    answer, report = await in_order(actors, order, lease.extend, actors.bob.reclaim)
    totals = {"enqueued": 1, "claimed": 1}
    if order == "ann first":
        assert answer is not None
        assert report.reclaimed == []
        assert await all_there_is(actors.ann) == everything(
            {"m": ("in_flight", 1, 0)}, {"m": ("token 1.1", 61)}, seq=1, totals=totals
        )
    else:
        assert answer == "lost"
        assert report.reclaimed == [("a", "m")]
        assert await all_there_is(actors.ann) == everything(
            {"m": ("ready", 1, 1)}, turns=CLAIMABLE, seq=1, totals=totals | {"reclaimed": 1}
        )


@both_ways
async def test_reclaim_and_reclaim(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m")
    await one(actors.ann)
    actors.clock.advance(31)
    reports = await in_order(actors, order, actors.ann.reclaim, actors.bob.reclaim)
    assert sorted(report.reclaimed for report in reports) == [[], [("a", "m")]]
    totals = {"enqueued": 1, "claimed": 1, "reclaimed": 1}
    assert await all_there_is(actors.ann) == everything(
        {"m": ("ready", 1, 1)}, turns=CLAIMABLE, seq=1, totals=totals
    )


@both_ways
async def test_redrive_and_redrive(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m")
    await (await one(actors.ann)).dead_letter("no")
    answers = await in_order(
        actors,
        order,
        lambda: actors.ann.dead_letters.redrive("a", "m"),
        lambda: actors.bob.dead_letters.redrive("a", "m"),
    )
    assert sorted(answers) == [0, 1]
    expected = everything(
        {"m": ("ready", 0, 0)},
        turns=CLAIMABLE,
        seq=2,  # a new place behind all others
        totals={"enqueued": 1, "claimed": 1, "dead_lettered": 1, "redriven": 1, "x": 0},
        notes={"a/m": f"no/{actors.clock.now_ms()}/no"},
    )
    expected["counters"]["dead"] = 1
    assert await all_there_is(actors.ann) == expected


@both_ways
async def test_enqueue_and_the_last_claim_of_the_queue(actors: Actors, order: str) -> None:
    """The lane runs empty and leaves the ring just when a message comes: it must be in the ring again."""
    await put(actors.ann, "a", "m")
    await in_order(actors, order, lambda: one(actors.ann), lambda: put(actors.bob, "a", "new"))
    parked = order == "bob first"  # by the claim that filled the tenant; else by the next one that looks
    assert await all_there_is(actors.ann) == everything(
        {"m": ("in_flight", 1, 0), "new": ("ready", 0, 0)},
        {"m": ("token 1.1", 30)},
        turns=PARKED if parked else CLAIMABLE,
        seq=2,
        totals={"enqueued": 2, "claimed": 1},
    )
    await actors.ann.limits.set("tenant", "a", 2)
    assert (await one(actors.bob)).message.id == "new"


@both_ways
async def test_enqueue_and_a_free_slot_at_a_full_tenant(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m")
    lease = await one(actors.ann)
    await in_order(actors, order, lambda: put(actors.bob, "a", "new"), lease.complete)
    anew = order == "bob first"  # whose step is the second here: a tenant's counters go with its last message
    assert await all_there_is(actors.ann) == everything(
        {"new": ("ready", 0, 0)},
        turns=CLAIMABLE,
        seq=2,
        totals={"enqueued": 2, "claimed": 1, "completed": 1},
        tenants={"enqueued": 1} if anew else None,
    )
    assert (await one(actors.bob)).message.id == "new"


STEPS = 6  # of a reconcile over one group, and one more: the claim that comes when all are over


@pytest.mark.parametrize("step", range(STEPS))
async def test_reconcile_and_claim(actors: Actors, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live slot is never taken for a leak, before whichever of its scripts the claim comes; a real leak goes."""
    await put(actors.ann, "a", "m", "next")
    await faults.leak_slot(actors.ann, "tenant", "b", "ghost")
    steps, leases, run = 0, [], actors.bob._engine.run

    async def claim_before_one(*args: Any, **options: Any) -> Any:
        nonlocal steps
        if steps == step:
            leases.append(await one(actors.ann))
        steps += 1
        return await run(*args, **options)

    monkeypatch.setattr(actors.bob._engine, "run", claim_before_one)
    report = await actors.bob.reconcile()
    assert steps < STEPS, "a claim has to come before each step"
    lease = leases[0] if leases else await one(actors.ann)
    assert ([freed.id for freed in report.freed], report.restored) == (["ghost"], [])
    assert await all_there_is(actors.ann) == everything(
        {"m": ("in_flight", 1, 0), "next": ("ready", 0, 0)},
        {"m": ("token 1.1", 30)},
        turns=PARKED,
        seq=2,
        totals={"enqueued": 2, "claimed": 1, "healed": 1},
    )
    assert await lease.complete() == "done"
    assert (await one(actors.bob)).message.id == "next"


@both_ways
async def test_set_limit_and_claim(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m1", "m2", "m3")
    leases, _ = await in_order(
        actors, order, lambda: actors.ann.claim(3), lambda: actors.bob.limits.set("tenant", "a", 2)
    )
    assert len(leases) == (1 if order == "ann first" else 2)
    leases += await actors.ann.claim(3)
    assert [lease.message.id for lease in leases] == ["m1", "m2"], (
        "whoever waited was woken by the raised limit"
    )
    assert await all_there_is(actors.ann) == everything(
        {"m1": ("in_flight", 1, 0), "m2": ("in_flight", 1, 0), "m3": ("ready", 0, 0)},
        {"m1": ("token 1.1", 30), "m2": ("token 1.2", 30)},
        turns=PARKED,
        limits={"tenant/a": 2},
        seq=3,
        totals={"enqueued": 3, "claimed": 2},
    )


@both_ways
async def test_lowered_limit_and_claim(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m1")
    leases, _ = await in_order(
        actors, order, lambda: actors.ann.claim(3), lambda: actors.bob.limits.set("tenant", "a", 0)
    )
    assert len(leases) == (1 if order == "ann first" else 0)
    assert await actors.bob.claim(3) == []
    limits = {"tenant/a": 0}
    if leases:
        expected = everything(
            {"m1": ("in_flight", 1, 0)},
            {"m1": ("token 1.1", 30)},
            limits=limits,
            seq=1,
            totals={"enqueued": 1, "claimed": 1},
        )
    else:
        turns = PARKED | {"groups": ["tenant/a"]}
        expected = everything(
            {"m1": ("ready", 0, 0)}, turns=turns, limits=limits, seq=1, totals={"enqueued": 1}
        )
    assert await all_there_is(actors.ann) == expected


@both_ways
async def test_two_wake_ups_at_one_group(make_queue: MakeQueue, clock: ManualClock, order: str) -> None:
    """A slot freed and a limit raised at once: two are woken, not one twice and not three."""
    ann = await make_queue(limits=[Limit("org", default=1, key="org")])
    bob = await make_queue()
    for tenant in "abcd":
        await put(ann, tenant, "m", metadata={"org": "o"})
    lease = await one(ann)
    assert await bob.claim(9) == []
    actors = Actors(ann, bob, clock)
    await in_order(actors, order, lease.complete, lambda: bob.limits.set("org", "o", 2))
    assert not (await ann.audit()).findings
    assert [lease.message.tenant for lease in await bob.claim(9)] == ["b", "c"]
    org = await ann.limits.get("org", "o")
    assert (org.limit, org.held, org.waiting) == (2, 2, 1)
    lane_of_d, tokens = "d/default/default/org/o", {"b/m": "token 1.2", "c/m": "token 1.3"}
    assert await all_there_is(actors.ann) == {
        "messages": {},  # of tenant a: it was completed
        "counters": {"seq": 4, "claims": 3},
        "totals": {"enqueued": 4, "claimed": 3, "completed": 1, "r": 1},
        "limits": {"org": 1, "org/o": 2},
        "present": {"b": 1, "c": 1, "d": 1},
        "tenant:b": {"enqueued": 1, "r": 0},
        "tenant:c": {"enqueued": 1, "r": 0},
        "tenant:d": {"enqueued": 1, "r": 1},
        "leases": tokens,
        "slots:org/o": tokens,
        "deadlines": {"b/m": 30, "c/m": 30},
        "groups": ["org/o"],
        "pools": ["default"],
        f"lane:{lane_of_d}": ["d/m"],
        "blocked:default": ["d"],
        "parked:default/d": {lane_of_d: "org/o"},
        "ring:g/default/org/o": ["d"],
        "waiters:org/o": ["default"],
        "waiting:default/org/o/d": [lane_of_d],
    }


@both_ways
async def test_a_repeated_claim_and_a_reclaim(actors: Actors, order: str) -> None:
    """The reply of a claim was lost. Repeated before the reclaim it gets the same lease; after it, none of those lost."""
    await put(actors.ann, "a", "m")
    engine = actors.ann._engine
    options = claim_options(engine, 1, "ann", ("default",))
    stream = engine.claim_streams.take(options.pools)

    async def claim() -> tuple[ClaimedMessage, ...]:
        call = engine.calls.claim(stream, 1, options.visibility_ms, options.consumer, options.pools)
        return (await engine.run(call)).messages

    (first,) = await claim()
    actors.clock.advance(31)
    (again,), report = await in_order(actors, order, claim, actors.bob.reclaim)
    totals = {"enqueued": 1, "claimed": 1}
    if order == "ann first":
        assert again.token == first.token
        assert report.reclaimed == []
        assert await all_there_is(actors.ann) == everything(
            {"m": ("in_flight", 1, 0)}, {"m": ("token 1.1", 61)}, seq=1, totals=totals
        )
    else:
        assert again.token > first.token, "what it had is lost: it looks anew, and finds what came back"
        assert report.reclaimed == [("a", "m")]
        assert await all_there_is(actors.ann) == everything(
            {"m": ("in_flight", 2, 1)},
            {"m": ("token 2.2", 61)},
            seq=1,
            totals=totals | {"claimed": 2, "reclaimed": 1},
        )


@both_ways
async def test_cancel_and_claim(actors: Actors, order: str) -> None:
    """Either it is gone and nobody gets it, or it runs and its holder is told."""
    await put(actors.ann, "a", "m")

    async def claim() -> list[Lease[Any]]:
        return await actors.bob.claim(1)

    answer, leases = await in_order(actors, order, lambda: actors.ann.cancel("a", "m"), claim)
    if order == "ann first":
        assert (answer, leases) == ("cancelled", [])
        assert await all_there_is(actors.ann) == everything({}, seq=1, totals={"enqueued": 1, "cancelled": 1})
        return
    assert answer == "cancelling"
    totals = {"enqueued": 1, "claimed": 1}
    assert await all_there_is(actors.ann) == everything(
        {"m": ("in_flight", 1, 0)}, {"m": ("token 1.1", 30)}, seq=1, totals=totals
    )
    (lease,) = leases
    await lease.extend()
    assert lease.cancelled.is_set()
    assert await lease.release() == "cancelled"
    assert await all_there_is(actors.ann) == everything({}, seq=1, totals=totals | {"cancelled": 1})


async def test_hundreds_of_cancels_and_claims_at_once(make_queue: MakeQueue) -> None:
    """From clients of their own, in whatever order they come: cancelled is never delivered, cancelling always was."""
    ann, bob, cleo = [await make_queue() for _ in range(3)]
    names = [f"m{number:03}" for number in range(400)]
    await put(ann, "a", *names)
    order = random.Random(3).sample(names, len(names))
    asked = [queue.cancel("a", id_) for pair in zip(order[::2], order[1::2], strict=True)
             for queue, id_ in zip((ann, cleo), pair, strict=True)]  # fmt: skip
    calls = [call for pair in zip(asked, (bob.claim(1) for _ in names), strict=True) for call in pair]
    async with asyncio.timeout(60):
        came = await asyncio.gather(*calls)
    answers, leases = dict(zip(order, came[::2], strict=True)), [lease for got in came[1::2] for lease in got]

    told = {
        answer: {id_ for id_ in names if answers[id_] == answer} for answer in ("cancelled", "cancelling")
    }
    delivered = ids(leases)
    assert min(map(len, told.values())) >= 20, "both happened, and often"
    assert len(delivered) == len(set(delivered))
    assert set(delivered) == told["cancelling"] == set(names) - told["cancelled"], (
        "each has one end, and none is lost"
    )
    assert {await state(ann, "a", id_) for id_ in delivered} == {"in_flight"}
    assert await bob.claim(9) == []

    async with asyncio.timeout(60):
        ends = [lease.release() if number % 2 else lease.fail("no") for number, lease in enumerate(leases)]
        assert await asyncio.gather(*ends) == ["cancelled"] * len(leases)
    assert await bob.claim(9) == []
    totals = (await ann.stats()).totals
    assert (totals.enqueued, totals.claimed, totals.cancelled) == (400, len(leases), 400)
    assert await ann._engine.command("HLEN", f"{ann._engine.calls.root}body") == 0


@both_ways
@pytest.mark.parametrize("end", ["complete", "fail", "release"])
async def test_cancel_and_the_end_of_its_delivery(actors: Actors, order: str, end: str) -> None:
    await put(actors.ann, "a", "m")
    lease = await one(actors.bob)
    answer, outcome = await in_order(actors, order, lambda: actors.ann.cancel("a", "m"), getattr(lease, end))
    first = order == "ann first"
    done = {"enqueued": 1, "claimed": 1}
    if end == "complete":
        assert (answer, outcome) == ("cancelling" if first else "not_found", "done")
        done |= {"completed": 1}
    elif first:
        assert (answer, outcome) == ("cancelling", "cancelled")
        done |= {"cancelled": 1}
    else:
        assert (answer, outcome) == ("cancelled", {"fail": "retried", "release": "released"}[end])
        done |= {"fail": {"failed": 1, "retried": 1}, "release": {"released": 1}}[end] | {"cancelled": 1}
    totals = (await actors.ann.stats()).totals
    assert {name: totals[name] for name in ("cancelled", "completed", "failed", "released")} == {
        name: done.get(name, 0) for name in ("cancelled", "completed", "failed", "released")
    }
    assert await actors.ann.get("a", "m") is None
    assert await actors.ann._engine.command("HLEN", f"{actors.ann._engine.calls.root}body") == 0


@both_ways
async def test_cancel_and_reclaim(actors: Actors, order: str) -> None:
    """Marked first, it ends with its lease; reclaimed first, it is cancelled where it waits. Neither leaves a right to it."""
    await put(actors.ann, "a", "m")
    lease = await one(actors.bob)
    actors.clock.advance(31)
    totals, rung = {"enqueued": 1, "claimed": 1, "cancelled": 1}, {}
    if order == "ann first":
        assert await actors.ann.cancel("a", "m") == "cancelling"
        assert (await actors.bob.reclaim()).reclaimed == []
    else:
        assert (await actors.bob.reclaim()).reclaimed == [("a", "m")]
        assert await actors.ann.cancel("a", "m") == "cancelled"
        totals["reclaimed"], rung = 1, {"bell:default": [1]}
    assert await all_there_is(actors.ann) == everything({}, turns=rung, seq=1, totals=totals)
    with pytest.raises(LeaseLostError):
        await lease.complete()


@both_ways
async def test_pause_and_claim(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m")

    async def claim() -> list[Lease[Any]]:
        return await actors.bob.claim(1)

    _, leases = await in_order(actors, order, lambda: actors.ann.pause(tenant="a"), claim)
    assert len(leases) == (0 if order == "ann first" else 1)
    await actors.ann.resume(tenant="a")
    assert len(await actors.bob.claim(1)) == 1 - len(leases)
