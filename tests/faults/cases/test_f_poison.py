"""F: attempts that nobody counts, and attempts that should not count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, Message, NewMessage, RetryPolicy, Worker
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, one, put, state
from tests.faults.cases.actors import Actor, Cast
from tests.support.processes import STARTED, Log
from tests.support.waiting import eventually

QUICK = {"visibility_timeout": 0.5, "reclaim_interval": 0.1}


async def ended_or(worker: Actor, over: Callable[[], Awaitable[bool]]) -> bool:
    return not worker.lives or await over()


@pytest.mark.case("F1")
async def test_a_message_that_kills_its_worker_is_delivered_so_often_and_no_more(
    make_queue: MakeQueue, cast: Cast, log: Log
) -> None:
    """Visibility 0.5 s, for 1. The cap of deliveries that end in a crash is its own option, here as large as asked."""
    retry = RetryPolicy(max_attempts=3, max_crashes=3)
    queue = await make_queue(clock=None, retry=retry, **QUICK)
    await queue.enqueue({"exit": 137}, tenant="T", id="bad")
    await queue.enqueue_many([NewMessage({}, tenant="T", id=f"good{n}") for n in range(20)])

    async def settled() -> bool:
        stats = await queue.stats()
        return stats.dead + stats.totals.completed == 21

    async def supervise() -> None:
        while not await settled():
            worker = await cast.actor("worker", worker={"concurrency": 1}, **QUICK)
            await eventually(partial(ended_or, worker, settled), "the worker to die or the work to end")

    await asyncio.wait_for(supervise(), 60)
    assert [event.attempt for event in log.events(STARTED) if event.id == "bad"] == [1, 2, 3]
    (letter,), _ = await queue.dead_letters.list("T")
    assert (letter.message.id, letter.reason, letter.crashes) == ("bad", "worker lost", 3)
    assert (await queue.stats()).totals.completed == 20


@pytest.mark.case("F1")
@pytest.mark.parametrize("concurrency", [5, 100])
async def test_a_message_that_kills_its_worker_takes_none_along_that_ran_beside_it(
    make_queue: MakeQueue, cast: Cast, log: Log, concurrency: int
) -> None:
    """All that a worker has in hand expires with it, and comes back together; the last chance is given alone."""
    queue = await make_queue(clock=None, retry=RetryPolicy(max_attempts=3, max_crashes=3), **QUICK)
    await queue.enqueue({"exit": 137}, tenant="T", id="bad")
    await queue.enqueue_many([NewMessage({}, tenant="T", id=f"good{n}") for n in range(20)])

    async def settled() -> bool:
        stats = await queue.stats()
        return stats.dead + stats.totals.completed == 21

    async def supervise() -> None:
        while not await settled():
            worker = await cast.actor("worker", worker={"concurrency": concurrency}, **QUICK)
            await eventually(partial(ended_or, worker, settled), "the worker to die or the work to end")

    await asyncio.wait_for(supervise(), 60)
    dead, _ = await queue.dead_letters.list("T")
    assert [letter.message.id for letter in dead] == ["bad"]
    assert (await queue.stats()).totals.completed == 20


@pytest.mark.case("F2")
async def test_being_turned_away_by_a_limit_is_no_attempt(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)], retry=RetryPolicy(max_attempts=3))
    await put(queue, "T", "m1", "m2")
    holder = await one(queue)
    for _ in range(300):
        assert await queue.claim() == []
        clock.advance(5 / 300)
    await holder.complete()
    second = await one(queue)
    assert (second.message.id, second.message.attempt) == ("m2", 1)


@pytest.mark.case("F2")
@pytest.mark.parametrize(("max_attempts", "stops"), [(3, 5), (1, 1)])
async def test_a_graceful_stop_in_the_middle_is_no_attempt(
    make_queue: MakeQueue, max_attempts: int, stops: int
) -> None:
    queue = await make_queue(
        limits=[Limit("tenant", default=1)], retry=RetryPolicy(max_attempts=max_attempts)
    )
    await put(queue, "T", "m")
    attempts: list[int] = []
    for stopped in range(1, stops + 1):
        await stopped_in_the_middle(queue, attempts)
        assert attempts == [1] * stopped
        assert (await state(queue, "T", "m"), await held(queue, "tenant", "T")) == ("ready", 0)
    assert await queue.dead_letters.count("T") == 0
    assert await claimed(queue) == ["m"]


async def stopped_in_the_middle(queue: FairQueue[Any], attempts: list[int]) -> None:
    """A worker starts the message, is stopped, and its grace is over before the handler has ended."""
    began = asyncio.Event()

    async def handle(message: Message[Any]) -> None:
        attempts.append(message.attempt)
        began.set()
        await asyncio.Event().wait()

    worker = Worker(queue, handle, grace=0.01)
    working = asyncio.ensure_future(worker.run(signals=False))
    await asyncio.wait_for(began.wait(), 60)
    worker.stop()
    await working
