"""D: a message runs twice, or is finished by one who no longer has it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from fairqueue import FairQueue, LeaseLostError, Limit, Message, RetryPolicy, Worker
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, ids, one, put, state
from tests.faults.cases.actors import Cast
from tests.faults.scale import sized
from tests.support.proxy import Proxy, hold_request
from tests.support.waiting import eventually

ONE = [Limit("tenant", default=1)]


# --- D1 ----------------------------------------------------------------------------------------------------------


async def looked(queues: list[FairQueue[Any]]) -> list[tuple[str, int]]:
    """Every consumer reclaims and claims; ids and attempts of what they got, still held."""
    got = []
    for queue in queues:
        assert (await queue.reclaim()).reclaimed == []
        got += await queue.claim(10)
    return [(lease.message.id, lease.message.attempt) for lease in got]


@pytest.mark.case("D1")
async def test_a_delay_longer_than_the_visibility_timeout_starts_once_and_not_early(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    consumers = [await make_queue(visibility_timeout=1) for _ in range(3)]
    await put(consumers[0], "T", "m", delay=5)
    for _ in range(49):
        clock.advance(0.1)
        assert await looked(consumers) == []
    clock.advance(0.1)
    assert await looked(consumers) == [("m", 1)]


@pytest.mark.case("D1")
async def test_a_retry_later_than_the_visibility_timeout_starts_once_an_attempt(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    consumers = [
        await make_queue(visibility_timeout=1, retry=RetryPolicy.fixed(5, max_attempts=4)) for _ in range(3)
    ]
    await put(consumers[0], "T", "m")
    for attempt in (1, 2, 3):
        lease = await one(consumers[attempt - 1])
        assert (lease.message.attempt, await lease.fail("no")) == (attempt, "retried")
        for _ in range(24):
            clock.advance(0.2)
            assert await looked(consumers) == []
        clock.advance(0.2)
    assert await looked(consumers) == [("m", 4)]


# --- D2 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("D2")
async def test_a_worker_takes_no_more_than_it_can_start(make_queue: MakeQueue) -> None:
    """There is no batch to set: a worker claims what it can start at once.

    Its last message starts later than the visibility timeout after the first, and was never taken before.
    """
    starts: Counter[tuple[str, int]] = Counter()
    most = 0

    async def handle(message: Message[Any]) -> None:
        nonlocal most
        starts[message.id, message.attempt] += 1
        most = max(most, (await queue.stats()).in_flight)
        await asyncio.sleep(0.6)

    options = {"clock": None, "visibility_timeout": 1, "reclaim_interval": 0.1}
    queue, messages = await make_queue(**options), sized(50)
    await put(queue, "T", *(f"m{n}" for n in range(messages)))
    workers = [Worker(await make_queue(**options), handle, concurrency=1) for _ in range(2)]
    running = [asyncio.ensure_future(worker.run(signals=False)) for worker in workers]

    async def all_done() -> bool:
        return (await queue.stats()).totals.completed == messages

    await eventually(all_done, "all to be completed", 300)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    assert starts == {(f"m{n}", 1): 1 for n in range(messages)}
    assert most == 2


@pytest.mark.case("D2")
async def test_what_was_claimed_and_never_started_runs_once(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Claimed is in flight: no list of claimed messages lies between the queue and a worker."""
    queue = await make_queue(visibility_timeout=1)
    await put(queue, "T", *(f"m{n}" for n in range(10)))
    outdated = await queue.claim(10)
    clock.advance(3)
    assert len((await queue.reclaim()).reclaimed) == 10
    runs = await drain(queue)
    assert [(message.id, message.attempt) for message in runs] == [(f"m{n}", 2) for n in range(10)]
    assert await queue.extend_many(outdated) == ["lost"] * 10, "recognised before they are started"
    assert await queue.complete_many(outdated) == ["lost"] * 10
    assert (await queue.stats()).totals.completed == 10


# --- D3 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("D3")
@pytest.mark.parametrize("meanwhile", ["completes", "extends", "somebody else has it"])
async def test_nothing_comes_between_finding_a_lease_expired_and_putting_its_message_back(
    make_queue: MakeQueue, clock: ManualClock, proxy: Proxy, meanwhile: str
) -> None:
    """Both are one script: a reclaim that was asked for before, and comes after, goes by what is true then."""
    queue = await make_queue(limits=ONE)
    late = await make_queue(url=f"{proxy.url}?socket_timeout=60")  # it asks once, however long it is held up
    await put(queue, "T", "m", "next")
    lease = await one(queue)
    clock.advance(31)
    gate = threading.Event()
    proxy.next("reclaim", hold_request(gate))
    reclaiming = asyncio.ensure_future(late.reclaim())
    await eventually(lambda: proxy.count("reclaim") == 1, "the reclaim to be under way")
    if meanwhile == "completes":
        assert await lease.complete() == "done"
    elif meanwhile == "extends":
        await lease.extend()
    else:
        assert (await queue.reclaim()).reclaimed == [("T", "m")]
        lease = await one(queue)
    assert not reclaiming.done()
    gate.set()
    assert (await reclaiming).reclaimed == []
    assert proxy.count("reclaim") == 1, "the pass was not one call"
    if meanwhile == "completes":
        assert (await state(queue, "T", "m"), await held(queue, "tenant", "T")) == (None, 0)
    else:
        assert (await queue.limits.get("tenant", "T")).holders == [("T", "m")]
        assert await claimed(queue) == []
        assert await lease.complete() == "done"
    assert await claimed(queue) == ["next"]


# --- D4 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("D4")
@pytest.mark.parametrize("late", ["extend", "complete", "fail"])
async def test_a_thawed_process_cannot_touch_what_another_one_has(
    make_queue: MakeQueue, clock: ManualClock, cast: Cast, late: str
) -> None:
    queue = await make_queue(limits=ONE, visibility_timeout=1)
    first = await cast.actor(clock=clock, visibility_timeout=1)
    await put(queue, "T", "m")
    await first.ask("claim")
    first.freeze()
    first.tell(late)
    clock.advance(1.5)
    await queue.reclaim()
    second = await one(queue)
    deadline = second.deadline
    first.thaw()
    assert await first.hear() == ["lost"]
    info = await queue.get("T", "m")
    assert info is not None
    assert info.lease is not None
    assert (info.lease.token, info.lease.deadline, info.message.attempt) == (second.token, deadline, 2)
    assert await held(queue, "tenant", "T") == 1
    assert await second.complete() == "done"


@pytest.mark.case("D4")
@pytest.mark.parametrize("way", ["complete", "fail", "release"])
async def test_settling_by_an_old_token_raises_and_changes_nothing(
    make_queue: MakeQueue, clock: ManualClock, way: str
) -> None:
    queue = await make_queue(limits=ONE)
    await put(queue, "T", "m")
    first = await one(queue)
    clock.advance(31)
    await queue.reclaim()
    second = await one(await make_queue())
    before = await queue.get("T", "m")
    with pytest.raises(LeaseLostError):
        await getattr(first, way)()
    assert first.lost.is_set()
    assert await queue.get("T", "m") == before
    assert await held(queue, "tenant", "T") == 1
    assert await second.complete() == "done"


@pytest.mark.case("D4")
async def test_the_handler_of_a_lost_lease_is_told_to_stop(make_queue: MakeQueue) -> None:
    """Another client takes the message over by its own, faster, clock; the worker learns it at its next extend."""
    queue = await make_queue(clock=None, visibility_timeout=0.5)
    began, told = asyncio.Event(), asyncio.Event()

    async def handle(_: Message[Any]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            raise

    worker = Worker(queue, handle, concurrency=1)
    working = asyncio.ensure_future(worker.run(signals=False))
    await put(queue, "T", "m")
    await asyncio.wait_for(began.wait(), 60)
    info = await queue.get("T", "m")
    assert info is not None
    assert info.lease is not None
    ahead = ManualClock(info.lease.deadline)
    ahead.advance(60)
    other = await make_queue(clock=ahead)
    assert (await other.reclaim()).reclaimed == [("T", "m")]
    leases = await other.claim()
    await asyncio.wait_for(told.wait(), 60)
    worker.stop()
    await working
    assert ids(leases) == ["m"]
    assert await other.complete_many(leases) == ["done"]
