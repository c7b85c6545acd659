"""Two actors, one order of what they do, and then the other: the whole state after it, however it went.

Every transition is one script, so two calls at once are one after the other; what may differ is who is first, and what
each believes. Each test forces the order and looks at all there is: where each message is, its counts, who holds what.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, LeaseLostError, Limit, MessageNotFoundError, RetryPolicy
from fairqueue._engine.replies import ClaimedMessage
from fairqueue.claiming import claim_options
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import held, one, put, waiting

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

    async def state(self) -> dict[str, Any]:
        """All there is: each message with its state and counts, the slots of tenant a, and the totals that moved."""
        items, _ = await self.ann.messages("a", limit=100)
        stats = await self.ann.stats()
        return {
            "messages": {
                item.message.id: (str(item.state), item.message.attempt, item.message.crashes)
                for item in items
            },
            "held": await held(self.ann, "tenant", "a"),
            "waiting": await waiting(self.ann, "tenant", "a"),
            "holders": [id_ for _, id_ in (await self.ann.limits.get("tenant", "a")).holders],
            "completed": stats.totals.completed,
            "reclaimed": stats.totals.reclaimed,
            "redriven": stats.totals.redriven,
        }


@pytest.fixture
async def actors(make_queue: MakeQueue, clock: ManualClock) -> Actors:
    queue = await make_queue(limits=LIMITS, retry=RetryPolicy.fixed(60))
    return Actors(queue, await make_queue(), clock)


Step = Callable[[], Awaitable[Any]]


async def in_order(order: str, ann: Step, bob: Step) -> tuple[Any, Any]:
    """What each got; a lost lease is an answer too."""

    async def answer(step: Step) -> Any:
        try:
            return await step()
        except LeaseLostError:
            return "lost"
        except MessageNotFoundError:
            return 0

    if order == "ann first":
        first = await answer(ann)
        return first, await answer(bob)
    second = await answer(bob)
    return await answer(ann), second


both_ways = pytest.mark.parametrize("order", ["ann first", "bob first"])


def everything(
    messages: dict[str, tuple[str, int, int]],
    *,
    held: int,
    waiting: int = 0,
    completed: int = 0,
    reclaimed: int = 0,
    redriven: int = 0,
) -> dict[str, Any]:
    """Whoever is in flight holds the slot, and nobody else."""
    return {
        "messages": messages,
        "held": held,
        "waiting": waiting,
        "holders": sorted(id_ for id_, (state, *_) in messages.items() if state == "in_flight"),
        "completed": completed,
        "reclaimed": reclaimed,
        "redriven": redriven,
    }


@both_ways
async def test_complete_and_complete(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m")
    lease = await one(actors.ann)
    answers = await in_order(order, lease.complete, actors.of_bob(lease).complete)
    assert sorted(answers) == ["done", "lost"]
    assert await actors.state() == everything({}, held=0, completed=1)


@both_ways
async def test_complete_and_reclaim(actors: Actors, order: str) -> None:
    """Done work ends the message either way: late, it came back by reclaim and nobody had taken it."""
    await put(actors.ann, "a", "m", "next")
    lease = await one(actors.ann)
    actors.clock.advance(31)
    done, report = await in_order(order, lease.complete, actors.bob.reclaim)
    assert done == "done"
    late = order == "bob first"
    assert report.reclaimed == ([("a", "m")] if late else [])
    assert await actors.state() == everything(
        {"next": ("ready", 0, 0)}, held=0, completed=1, reclaimed=int(late)
    )


async def test_complete_after_reclaim_and_claim(actors: Actors) -> None:
    await put(actors.ann, "a", "m")
    lease = await one(actors.ann)
    actors.clock.advance(31)
    await actors.bob.reclaim()
    taken = await one(actors.bob)
    with pytest.raises(LeaseLostError):
        await lease.complete()
    assert await actors.state() == everything({"m": ("in_flight", 2, 1)}, held=1, reclaimed=1)
    assert await taken.complete() == "done"
    assert await actors.state() == everything({}, held=0, completed=1, reclaimed=1)


@both_ways
async def test_extend_and_reclaim(actors: Actors, order: str) -> None:
    """An expired lease that nobody reclaimed is revived by its next extend; after a reclaim it is lost."""
    await put(actors.ann, "a", "m")
    lease = await one(actors.ann)
    actors.clock.advance(31)
    answer, report = await in_order(order, lease.extend, actors.bob.reclaim)
    if order == "ann first":
        assert answer is not None
        assert report.reclaimed == []
        assert await actors.state() == everything({"m": ("in_flight", 1, 0)}, held=1)
    else:
        assert answer == "lost"
        assert report.reclaimed == [("a", "m")]
        assert await actors.state() == everything({"m": ("ready", 1, 1)}, held=0, reclaimed=1)


@both_ways
async def test_reclaim_and_reclaim(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m")
    await one(actors.ann)
    actors.clock.advance(31)
    reports = await in_order(order, actors.ann.reclaim, actors.bob.reclaim)
    assert sorted(report.reclaimed for report in reports) == [[], [("a", "m")]]
    assert await actors.state() == everything({"m": ("ready", 1, 1)}, held=0, reclaimed=1)


@both_ways
async def test_redrive_and_redrive(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m")
    await (await one(actors.ann)).dead_letter("no")
    answers = await in_order(
        order,
        lambda: actors.ann.dead_letters.redrive("a", "m"),
        lambda: actors.bob.dead_letters.redrive("a", "m"),
    )
    assert sorted(answers) == [0, 1]
    assert await actors.state() == everything({"m": ("ready", 0, 0)}, held=0, redriven=1)


@both_ways
async def test_enqueue_and_the_last_claim_of_the_queue(actors: Actors, order: str) -> None:
    """The lane runs empty and leaves the ring just when a message comes: it must be in the ring again."""
    await put(actors.ann, "a", "m")
    await in_order(order, lambda: one(actors.ann), lambda: put(actors.bob, "a", "new"))
    parked = int(order == "bob first")  # by the claim that filled the tenant; else by the next one that looks
    messages = {"m": ("in_flight", 1, 0), "new": ("ready", 0, 0)}
    assert await actors.state() == everything(messages, held=1, waiting=parked)
    await actors.ann.limits.set("tenant", "a", 2)
    assert (await one(actors.bob)).message.id == "new"


@both_ways
async def test_enqueue_and_a_free_slot_at_a_full_tenant(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m")
    lease = await one(actors.ann)
    await in_order(order, lambda: put(actors.bob, "a", "new"), lease.complete)
    assert await actors.state() == everything({"new": ("ready", 0, 0)}, held=0, completed=1)
    assert (await one(actors.bob)).message.id == "new"


STEPS = 12  # of a reconcile over one group; a pass of fewer steps is over when the claim comes


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
    lease = leases[0] if leases else await one(actors.ann)
    assert ([freed.id for freed in report.freed], report.restored) == (["ghost"], [])
    messages = {"m": ("in_flight", 1, 0), "next": ("ready", 0, 0)}
    assert await actors.state() == everything(messages, held=1, waiting=1)
    assert await lease.complete() == "done"
    assert (await one(actors.bob)).message.id == "next"


@both_ways
async def test_set_limit_and_claim(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m1", "m2", "m3")
    leases, _ = await in_order(
        order, lambda: actors.ann.claim(3), lambda: actors.bob.limits.set("tenant", "a", 2)
    )
    assert len(leases) == (1 if order == "ann first" else 2)
    leases += await actors.ann.claim(3)
    assert [lease.message.id for lease in leases] == ["m1", "m2"], (
        "whoever waited was woken by the raised limit"
    )
    messages = {"m1": ("in_flight", 1, 0), "m2": ("in_flight", 1, 0), "m3": ("ready", 0, 0)}
    assert await actors.state() == everything(messages, held=2, waiting=1)


@both_ways
async def test_lowered_limit_and_claim(actors: Actors, order: str) -> None:
    await put(actors.ann, "a", "m1")
    leases, _ = await in_order(
        order, lambda: actors.ann.claim(3), lambda: actors.bob.limits.set("tenant", "a", 0)
    )
    assert len(leases) == (1 if order == "ann first" else 0)
    assert await actors.bob.claim(3) == []
    state = ("in_flight", 1, 0) if leases else ("ready", 0, 0)
    expected = everything({"m1": state}, held=len(leases), waiting=1 - len(leases))
    assert await actors.state() == expected


@both_ways
async def test_two_wake_ups_at_one_group(make_queue: MakeQueue, order: str) -> None:
    """A slot freed and a limit raised at once: two are woken, not one twice and not three."""
    ann = await make_queue(limits=[Limit("org", default=1, key="org")])
    bob = await make_queue()
    for tenant in "abcd":
        await put(ann, tenant, "m", metadata={"org": "o"})
    lease = await one(ann)
    assert await bob.claim(9) == []
    await in_order(order, lease.complete, lambda: bob.limits.set("org", "o", 2))
    assert not (await ann.audit()).findings
    assert [lease.message.tenant for lease in await bob.claim(9)] == ["b", "c"]
    org = await ann.limits.get("org", "o")
    assert (org.limit, org.held, org.waiting) == (2, 2, 1)
    assert org.holders == [("b", "m"), ("c", "m")]
    assert [str(info.state) for t in "bcd" if (info := await ann.get(t, "m"))] == [
        "in_flight",
        "in_flight",
        "ready",
    ]
    assert (await ann.get("a", "m"), (await ann.stats()).totals.completed) == (None, 1)


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
    (again,), report = await in_order(order, claim, actors.bob.reclaim)
    if order == "ann first":
        assert again.token == first.token
        assert report.reclaimed == []
        assert await actors.state() == everything({"m": ("in_flight", 1, 0)}, held=1)
    else:
        assert again.token > first.token, "what it had is lost: it looks anew, and finds what came back"
        assert report.reclaimed == [("a", "m")]
        assert await actors.state() == everything({"m": ("in_flight", 2, 1)}, held=1, reclaimed=1)
