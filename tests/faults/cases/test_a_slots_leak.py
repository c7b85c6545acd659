"""A: a slot stays taken although nobody works, and its group stops for good."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from fairqueue import Limit, Message, NewMessage, RetryPolicy, Worker
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import held, ids, one, put, raw
from tests.faults.cases.actors import Cast
from tests.faults.cases.kills import killed_after
from tests.faults.scale import sized
from tests.support.fixtures import MakeServer
from tests.support.proxy import Proxy
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually

TENANT = [Limit("tenant", default=2)]
TENANT_AND_ORG = [*TENANT, Limit("org", default=3, key="org")]


@pytest.mark.case("A1")
@pytest.mark.parametrize("limits", [TENANT, TENANT_AND_ORG], ids=["tenant", "tenant and org"])
async def test_a_killed_consumers_slots_are_freed_by_a_process_that_never_saw_the_queue(
    make_queue: MakeQueue, cast: Cast, limits: list[Limit]
) -> None:
    """Visibility is 1 s, for 2."""
    queue = await make_queue(clock=None, limits=limits)
    await put(queue, "T", *"abcdef", metadata={"org": "o"})
    first = await cast.actor(visibility_timeout=1)
    assert (await first.ask("claim", n=2))["ids"] == ["a", "b"]
    deadline = max([(await queue.get("T", id)).lease.deadline for id in "ab"])  # type: ignore[union-attr]
    first.kill()
    fresh = await cast.actor()

    async def expired() -> bool:
        seconds, microseconds = await queue._engine.command("TIME")
        return bool(seconds + microseconds / 1e6 > deadline.timestamp())

    await eventually(expired, "the leases to expire")
    assert sorted(await fresh.ask("reclaim")) == [["T", "a"], ["T", "b"]]
    groups = [("tenant", "T"), ("org", "o")][: len(limits)]
    assert [await held(queue, *group) for group in groups] == [0] * len(groups)
    assert (await queue.stats()).ready == 6
    watch = Stopwatch()
    assert sorted(await fresh.ask("drain")) == list("abcdef")
    watch.check(5, "all to be handled")
    assert [await held(queue, *group) for group in groups] == [0] * len(groups)
    assert (await queue.stats()).totals.completed == 6


# --- A2 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("A2")
async def test_a_kill_after_any_command_of_a_claim_pins_nothing(
    make_queue: MakeQueue, clock: ManualClock, proxy: Proxy, cast: Cast
) -> None:
    """The path of a claim is one script; the commands before and after it are cut too."""
    cuts = 0
    while True:
        queue = await make_queue(name=f"cut-{clock.now_ms()}", limits=TENANT)
        await put(queue, "T", *(f"m{n}" for n in range(20)))
        order = {"do": "claim_and_complete", "n": 2}
        if not await killed_after(cuts + 1, proxy, cast, order, name=queue.name, clock=clock):
            break
        cuts += 1
        completed = (await queue.stats()).totals.completed
        clock.advance(31)
        await queue.reclaim()
        assert (await queue.reconcile()).freed == []
        assert await held(queue, "tenant", "T") == 0
        assert len(await drain(queue)) == 20 - completed
    assert cuts >= 4, "no more than these commands: what a claim takes is not in one step any more?"


@pytest.mark.case("A2")
async def test_throughput_after_many_random_kills_is_what_it_was(
    make_queue: MakeQueue, clock: ManualClock, cast: Cast
) -> None:
    """What a claim gives at once stands for throughput: it is the limit, before and after."""
    rng = random.Random(17)
    queue = await make_queue(limits=TENANT)
    await put(queue, "T", *(f"m{n}" for n in range(20)))
    for _ in range(sized(100)):
        actor = await cast.actor(clock=clock)
        actor.tell("claim_and_fail" if rng.random() < 0.2 else "claim", n=2)
        await asyncio.sleep(rng.uniform(0, 0.004))
        actor.kill()
        clock.advance(31)
        await queue.reclaim()
        assert (await queue.reconcile()).freed == []
        assert await held(queue, "tenant", "T") == 0
    clock.advance(4000)  # what failed waits for its next try
    dead = (await queue.dead_letters.count("T")) and await queue.dead_letters.redrive_all("T")
    left = 20
    while left:
        leases = await queue.claim(20)
        assert len(leases) == min(2, left), f"{left} were left and {dead} had died"
        left -= len(leases)
        await queue.complete_many(leases)


# --- A3 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("A3")
async def test_what_waits_for_its_retry_holds_no_slot(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT, retry=RetryPolicy.fixed(2))
    await put(queue, "T", *(f"m{n}" for n in range(20)))
    starts: list[str] = []

    def handle(message: Message[Any]) -> None:
        starts.append(message.id)
        if message.attempt <= 2 and message.id.startswith("m"):
            raise ConnectionError("not yet")

    for around in range(3):
        assert len(await drain(queue, handle, batch=2)) == 20
        if around < 2:
            assert (await queue.stats()).delayed == 20
            assert await held(queue, "tenant", "T") == 0
            await put(queue, "T", f"other{around}")
            assert [message.id for message in await drain(queue, handle)] == [f"other{around}"]
        clock.advance(2)
    assert len(starts) == 60 + 2
    assert (await queue.stats()).totals.completed == 20 + 2
    assert await held(queue, "tenant", "T") == 0


@pytest.mark.case("A3")
async def test_a_second_claim_leaves_the_first_its_own_way_to_free(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Who frees is known by token: the first delivery cannot free the second one's slot, nor lose its own."""
    queue = await make_queue(limits=TENANT)
    await put(queue, "T", "m", "n")
    first = await one(queue)
    assert await first.fail("no") == "retried"
    assert await held(queue, "tenant", "T") == 0
    clock.advance(2)
    second = {lease.message.id: lease for lease in await queue.claim(2)}["m"]
    assert await first.fail("no") == "retried"  # remembered, not done again
    assert await held(queue, "tenant", "T") == 2
    assert await second.complete() == "done"
    assert await held(queue, "tenant", "T") == 1


# --- A4 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("A4")
async def test_a_completion_while_the_server_is_down_goes_through_when_it_is_back(
    make_queue: MakeQueue, make_server: MakeServer
) -> None:
    own = make_server()
    queue = await make_queue(url=own.url, clock=None, limits=[Limit("tenant", default=1)])
    await put(queue, "T", "m1", "m2")
    first = await one(queue)
    own.kill()
    completing = asyncio.ensure_future(first.complete())
    await eventually(lambda: queue._engine.connection.lost_at is not None, "the outage to be met")
    assert not completing.done(), "nothing was done, so nothing may be reported"
    own.start()
    assert await completing == "done"
    (second,) = await queue.claim(wait=5)
    assert second.message.id == "m2"
    await second.complete()


@pytest.mark.case("A4")
async def test_a_worker_whose_server_restarts_goes_on_by_itself(
    make_queue: MakeQueue, make_server: MakeServer
) -> None:
    own = make_server()
    queue = await make_queue(
        url=own.url,
        clock=None,
        limits=[Limit("tenant", default=1)],
        visibility_timeout=1,
        reclaim_interval=0.2,
    )
    await put(queue, "T", "m1", "m2")
    began, go_on, ended = asyncio.Event(), asyncio.Event(), []

    async def handle(message: Message[Any]) -> None:
        began.set()
        await go_on.wait()
        ended.append(message.id)

    worker = Worker(queue, handle, concurrency=2)
    working = asyncio.ensure_future(worker.run(signals=False))
    await began.wait()
    own.kill()
    go_on.set()
    await eventually(lambda: "m1" in ended, "the handler to end while the server is away")
    own.start()
    await eventually(lambda: "m2" in ended, "the next message to start with no manual step")
    worker.stop()
    await working
    stats = await queue.stats()
    assert (stats.totals.completed, stats.ready + stats.in_flight) == (2, 0)


@pytest.mark.case("A4")
@pytest.mark.parametrize("repaired", ["by hand", "by reconcile"])
async def test_a_slot_that_cannot_be_freed_stops_no_transition(
    make_queue: MakeQueue, clock: ManualClock, repaired: str
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=4)])
    await put(queue, "T", *"abcde")
    completed, failed, expired, kept = await queue.claim(4)
    slots = await raw(queue, "HGETALL", "slots", "tenant", "T")
    assert len(slots) == 4
    await faults.wrong_type(queue, "slots", "tenant", "T")
    assert await completed.complete() == "done"
    assert await failed.fail("no") == "retried"
    clock.advance(29)
    await kept.extend()
    clock.advance(2)
    assert (await queue.reclaim()).reclaimed == [("T", expired.message.id)]
    if repaired == "by hand":  # the key is as it was, with the slots nobody could free
        await raw(queue, "DEL", "slots", "tenant", "T")
        await raw(queue, "HSET", "slots", "tenant", "T", args=[x for pair in slots.items() for x in pair])
        freed = (await queue.reconcile()).freed
        assert {(slot.tenant, slot.id) for slot in freed} == {("T", id) for id in "abc"}
    else:
        assert (await queue.reconcile()).rebuilt == [("tenant", "T")]
    assert (await queue.limits.get("tenant", "T")).holders == [("T", kept.message.id)]
    assert (await queue.stats()).totals.freed_late == 3
    clock.advance(2)
    assert sorted(ids(await queue.claim(5))) == ["b", "c", "e"]


@pytest.mark.case("A4")
async def test_reconcile_removes_every_leaked_slot_and_nothing_else(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1000)])
    await queue.enqueue_many([NewMessage(n, tenant=t, id=f"m{n}") for n in range(10) for t in "TU"])
    leases = await queue.claim(20)
    before = {t: (await queue.limits.get("tenant", t)).holders for t in "TU"}
    for n in range(500):
        await faults.leak_slot(queue, "tenant", "T", f"ghost{n}")
    assert await held(queue, "tenant", "T") == 510
    report = await queue.reconcile()
    assert {(slot.tenant, slot.id) for slot in report.freed} == {("T", f"ghost{n}") for n in range(500)}
    assert len(report.freed) == 500
    assert report.restored == []
    assert {t: (await queue.limits.get("tenant", t)).holders for t in "TU"} == before
    assert await queue.complete_many(leases) == ["done"] * 20
