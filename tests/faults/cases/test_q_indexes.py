"""Q: indexes, wake-ups and equal ids."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, Limit, RetryPolicy
from fairqueue._engine.keys import join
from fairqueue.testing import drain
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, ids, one, put, raw, state
from tests.faults.scale import sized
from tests.support.stopwatch import Stopwatch

# --- Q1 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("Q1")
@pytest.mark.parametrize("kinds", [["head", "body"], ["head"]], ids=["all their data", "their headers"])
async def test_entries_whose_data_is_gone_do_not_hide_those_behind(
    make_queue: MakeQueue, kinds: list[str]
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=10)])
    lost = [f"m{n}" for n in range(500)]
    await put(queue, "T", *lost)
    for kind in kinds:
        await raw(queue, "HDEL", kind, args=[join("T", id_) for id_ in lost])
    good = [f"good{n}" for n in range(10)]
    await put(queue, "T", *good)
    watch = Stopwatch()
    leases = await queue.claim(10)
    watch.check(1, "the claim to be answered")
    assert ids(leases) == good
    assert (await queue.stats()).totals.dropped_entries == 500
    assert await queue.complete_many(leases) == ["done"] * 10
    assert await held(queue, "tenant", "T") == 0
    await queue.reconcile()  # and the counters
    assert (await queue.stats()).ready == 0


@pytest.mark.case("Q1")
async def test_messages_whose_payload_is_gone_are_set_aside(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=10)])
    lost = [f"m{n}" for n in range(500)]
    await put(queue, "T", *lost)
    await raw(queue, "HDEL", "body", args=[join("T", id_) for id_ in lost])
    await put(queue, "T", *(f"good{n}" for n in range(10)))
    watch = Stopwatch()
    leases = await queue.claim(10)
    watch.check(5, "each of them to be a dead letter")
    assert ids(leases) == [f"good{n}" for n in range(10)]
    assert await queue.dead_letters.count("T") == 500
    assert await held(queue, "tenant", "T") == 10


# --- Q2 ----------------------------------------------------------------------------------------------------------


class Waits:
    """How long each message waited for its claim, from the moment its enqueue was asked for."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}
        self.spans: list[tuple[float, float]] = []

    async def put(self, queue: FairQueue[Any], id_: str, of: str = "q") -> None:
        self._asked[id_] = time.monotonic()
        await put(queue, "T", id_, queue=of)

    def note(self, leases: list[Lease[Any]]) -> None:
        for lease in leases:
            self.spans.append((self._asked.pop(lease.message.id), time.monotonic()))


@pytest.mark.case("Q2")
async def test_a_message_that_comes_as_its_queue_runs_empty_is_not_forgotten(make_queue: MakeQueue) -> None:
    """5,000 rounds, one message at a time, so that each claim takes the last of its queue and tenant."""
    rounds, waits, watch = sized(5000), Waits(), Stopwatch()
    producer, *consumers = [await make_queue() for _ in range(3)]
    room = asyncio.Semaphore(2)

    async def consume(queue: FairQueue[Any]) -> None:
        while len(waits.spans) < rounds:
            leases = await queue.claim(wait=2)
            waits.note(leases)
            for _ in leases:
                room.release()
            await queue.complete_many(leases)

    async def produce() -> None:
        for n in range(rounds):
            await room.acquire()
            await waits.put(producer, f"m{n}", of=f"q{n % 2}")

    with watch.looking():
        consuming = [asyncio.ensure_future(consume(queue)) for queue in consumers]
        await produce()
        await asyncio.gather(*consuming)
    assert len(waits.spans) == rounds
    watch.check_each(1, "each to be claimed", waits.spans)
    stats = await producer.stats()
    assert (stats.ready, stats.in_flight, stats.totals.completed) == (0, 0, rounds)


@pytest.mark.case("Q2")
async def test_a_slot_that_is_freed_as_a_message_comes_is_taken(make_queue: MakeQueue) -> None:
    """5,000 rounds: the tenant is full; a completion and an enqueue at the same moment, while somebody waits."""
    waits, watch = Waits(), Stopwatch()
    producer = await make_queue(limits=[Limit("tenant", default=1)])
    waiter, other = await make_queue(), await make_queue()
    await waits.put(producer, "first")
    lease = await one(waiter)
    waits.note([lease])
    with watch.looking():
        for n in range(sized(5000)):
            waiting = asyncio.ensure_future(waiter.claim(wait=5))
            steps: list[Callable[[], Any]] = [lease.complete, lambda n=n: waits.put(producer, f"m{n}")]  # type: ignore[misc]
            await asyncio.gather(*(step() for step in (steps if n % 2 else steps[::-1])))
            (lease,) = await waiting
            waits.note([lease])
            if n % 10 == 0:
                waiter, other = other, waiter
    assert await lease.complete() == "done"
    watch.check_each(1, "each to be claimed", waits.spans)
    assert await claimed(producer) == []


# --- Q3 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("Q3")
async def test_an_id_that_is_there_in_any_state_adds_nothing_and_says_so(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)], retry=RetryPolicy.none())

    async def again(expected: str, **options: Any) -> None:
        sent = await queue.enqueue("second", tenant="T", id="X", **options)
        assert (sent.created, sent.state) == (False, expected)

    await queue.enqueue("first", tenant="T", id="X", queue="one")
    await again("ready", queue="one")
    await again("ready", queue="other")
    lease = await one(queue)
    await again("in_flight", queue="one")
    assert lease.message.payload == "first"
    info = await queue.get("T", "X")
    assert info is not None
    assert (info.message.payload, info.message.queue) == ("first", "one")
    assert await lease.fail("no") == "dead"
    await again("dead", queue="one")
    await again("dead", delay=5)
    assert await queue.dead_letters.redrive("T", "X") == 1
    (message,) = await drain(queue)
    assert message.payload == "first"
    assert (await queue.enqueue("second", tenant="T", id="X")).created, "it is gone: the id is free again"
    (message,) = await drain(queue)
    assert message.payload == "second"


@pytest.mark.case("Q3")
async def test_completing_one_delivery_does_not_take_an_equal_id_along(make_queue: MakeQueue) -> None:
    """What was refused while it ran is to be sent again once it is done; then it is a message of its own."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue("first", tenant="T", id="X")
    lease = await one(queue)
    assert not (await queue.enqueue("second", tenant="T", id="X")).created
    await lease.complete()
    assert await state(queue, "T", "X") is None
    assert (await queue.enqueue("second", tenant="T", id="X")).created
    assert await lease.complete() == "done", "it remembers, and touches nothing"
    assert await state(queue, "T", "X") == "ready"


@pytest.mark.case("Q3")
async def test_the_same_id_of_two_tenants_is_two_messages(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=5, key="org")])
    for tenant in "TU":
        await queue.enqueue(f"of {tenant}", tenant=tenant, id="X", metadata={"org": "o"})
    first, second = await queue.claim(2)
    assert {first.message.payload, second.message.payload} == {"of T", "of U"}
    assert (await queue.limits.get("org", "o")).holders == [("T", "X"), ("U", "X")]
    await first.complete()
    left = second.message.tenant
    assert (await queue.limits.get("org", "o")).holders == [(left, "X")]
    assert (await queue.limits.get("tenant", left)).holders == [(left, "X")]
    assert await second.extend() == second.deadline
