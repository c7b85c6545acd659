"""A handler whose message is cancelled is told within one extend interval; what it does then is how the message ends."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from fairqueue import FairQueue, Message, Release, Retry, current_lease
from fairqueue.lease import EXTENDS_PER_TIMEOUT
from tests.conftest import MakeQueue
from tests.engine.tools import raw
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually
from tests.worker.running import all_done, running

SHORT: dict[str, Any] = {"clock": None, "visibility_timeout": 2, "reclaim_interval": 0}
SLACK = 0.5  # seconds; a quarter of an interval, for a machine that others use too


async def test_an_async_handler_is_cancelled_within_an_extend_interval(make_queue: MakeQueue) -> None:
    """Cancelled just after an extend: within one interval means by the next one, and not by the one after it."""
    queue = await make_queue(clock=None, visibility_timeout=8, reclaim_interval=0)
    started, seen, told = asyncio.Event(), [], []

    async def handle(message: Message[Any]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(time.monotonic())
            seen.append(current_lease().cancelled.is_set())
            raise

    await queue.enqueue(1, tenant="a", id="m")
    async with running(queue, handle):
        await asyncio.wait_for(started.wait(), 30)
        await _next_extend(queue)
        watch = Stopwatch()
        assert await queue.cancel("a", "m") == "cancelling"
        await all_done(queue)
        watch.check(8 / EXTENDS_PER_TIMEOUT + SLACK, "the handler to be told", until=told[0])
    assert seen == [True]
    totals = (await queue.stats()).totals
    assert (totals.cancelled, totals.failed, totals.released, totals.completed) == (1, 0, 0, 0)


async def _next_extend(queue: FairQueue[Any]) -> None:
    async def deadline() -> float:
        return float(await raw(queue, "ZSCORE", "deadlines", args=("a\x1fm",)))

    before = await deadline()

    async def moved() -> bool:
        return await deadline() > before

    await eventually(moved, "the lease to be extended")


async def test_a_handler_that_finishes_all_the_same_has_done_it(make_queue: MakeQueue) -> None:
    queue = await make_queue(**SHORT)
    started = asyncio.Event()

    async def handle(message: Message[Any]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return  # it had come so far that it went on to its end

    await queue.enqueue(1, tenant="a", id="m")
    async with running(queue, handle):
        await asyncio.wait_for(started.wait(), 30)
        await queue.cancel("a", "m")
        await all_done(queue)
    totals = (await queue.stats()).totals
    assert (totals.cancelled, totals.completed) == (0, 1)


@pytest.mark.parametrize(
    "end", [None, RuntimeError("stopped"), Retry(), Release()], ids=lambda end: type(end).__name__
)
async def test_a_thread_sees_it_at_its_lease(make_queue: MakeQueue, end: BaseException | None) -> None:
    queue = await make_queue(**SHORT)
    started, told = threading.Event(), []

    def handle(message: Message[Any]) -> None:
        started.set()
        told.append(current_lease().cancelled.wait(30))
        if end is not None:
            raise end

    await queue.enqueue(1, tenant="a", id="m")
    async with running(queue, handle):
        await eventually(started.is_set, "the handler to start")
        await queue.cancel("a", "m")
        await all_done(queue)
    assert told == [True]
    totals = (await queue.stats()).totals
    assert (totals.cancelled, totals.completed) == ((0, 1) if end is None else (1, 0))
    assert (totals.failed, totals.retried, totals.released, totals.dead_lettered) == (0, 0, 0, 0)


async def test_keep_alive_tells_who_claimed_by_hand(make_queue: MakeQueue) -> None:
    queue = await make_queue(**SHORT)
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim(1)
    async with lease.keep_alive():
        await queue.cancel("a", "m")
        await eventually(lease.cancelled.is_set, "an extend to tell")
    assert await lease.fail("stopped") == "cancelled"
