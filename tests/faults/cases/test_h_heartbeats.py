"""H: leases that run out although the work goes on, or live although it does not."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, Message, NewMessage, RetryPolicy, Worker
from fairqueue.lease_keeper import LeaseKeeper
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import held, one, put
from tests.faults.cases.actors import Cast
from tests.support.processes import ENDED, STARTED, Log
from tests.support.waiting import eventually

ONE = [Limit("tenant", default=1)]
QUICK = {"visibility_timeout": 0.8, "reclaim_interval": 0.05}
FOUR_TIMES = 3.2


async def all_completed(queue: FairQueue[Any], expected: int) -> bool:
    return (await queue.stats()).totals.completed == expected


# --- H1 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("H1")
@pytest.mark.parametrize(
    "how", ["block", "spin", "collect"], ids=["time.sleep", "a loop in Python", "gc.collect"]
)
async def test_a_handler_that_blocks_the_event_loop_keeps_its_message(
    make_queue: MakeQueue, cast: Cast, log: Log, how: str
) -> None:
    """For four times the visibility timeout, here 0.8 s; a second worker reclaims every 50 ms."""
    queue = await make_queue(clock=None, limits=ONE)
    await queue.enqueue({how: FOUR_TIMES}, tenant="T", id="m")
    for _ in range(2):
        await cast.actor("worker", worker={"concurrency": 1}, **QUICK)
    await eventually(lambda: all_completed(queue, 1), "it to be completed")
    assert [(event.what, event.attempt) for event in log.events()] == [(STARTED, 1), (ENDED, 1)]
    assert (await queue.stats()).totals.reclaimed == 0


@pytest.mark.case("H1")
async def test_a_c_call_that_holds_the_interpreter_lock_for_too_long_loses_its_message_and_no_more(
    make_queue: MakeQueue, cast: Cast, log: Log
) -> None:
    """No thread of that process can extend the lease meanwhile: let visibility_timeout be longer than such calls."""
    queue = await make_queue(clock=None, limits=ONE)
    await queue.enqueue({"hold": FOUR_TIMES, "once": True}, tenant="T", id="m")
    workers = [await cast.actor("worker", worker={"concurrency": 1}, **QUICK) for _ in range(2)]
    await eventually(lambda: log.count(ENDED) == 2, "both runs to have ended")
    await eventually(lambda: all_completed(queue, 1), "one of them to be accepted")
    assert [event.attempt for event in log.events(STARTED)] == [1, 2]
    assert await held(queue, "tenant", "T") == 0
    await queue.enqueue({}, tenant="T", id="after")
    await eventually(lambda: all_completed(queue, 2), "the tenant to go on")
    assert all(worker.lives for worker in workers)


# --- H2 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("H2")
@pytest.mark.parametrize("threads", [False, True], ids=["coroutine", "thread"])
async def test_a_handler_that_never_returns_is_given_up(make_queue: MakeQueue, threads: bool) -> None:
    """The longest run is 2 s, for 3; the visibility timeout is shorter than that."""
    queue = await make_queue(
        clock=None, limits=ONE, visibility_timeout=1.5, reclaim_interval=0.05, retry=RetryPolicy.fixed(0.2)
    )
    await put(queue, "T", "hangs", "next")
    starts: Counter[tuple[str, int]] = Counter()
    let_go, returned = threading.Event(), threading.Event()

    async def handle(message: Message[Any]) -> None:
        starts[message.id, message.attempt] += 1
        if (message.id, message.attempt) == ("hangs", 1):
            await asyncio.Event().wait()

    def handle_in_thread(message: Message[Any]) -> None:
        starts[message.id, message.attempt] += 1
        if (message.id, message.attempt) == ("hangs", 1):
            let_go.wait(60)
            returned.set()

    worker = Worker(queue, handle_in_thread if threads else handle, concurrency=2, handler_timeout=2)
    working = asyncio.ensure_future(worker.run(signals=False))
    await eventually(lambda: all_completed(queue, 2), "both to be completed")
    let_go.set()
    if threads:
        await eventually(returned.is_set, "the abandoned handler to return")
    worker.stop()
    await working
    assert starts == {("hangs", 1): 1, ("next", 1): 1, ("hangs", 2): 1}
    totals = (await queue.stats()).totals
    assert (totals.completed, totals.failed, totals.reclaimed) == (2, 1, 0)
    assert await held(queue, "tenant", "T") == 0


# --- H3 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("H3")
async def test_every_extend_gives_the_whole_timeout(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(visibility_timeout=1.5)
    await put(queue, "T", "m")
    lease = await one(queue)
    for _ in range(25):
        clock.advance(0.4)
        assert (await queue.reclaim()).reclaimed == []
        assert await lease.extend() == clock.now + timedelta(seconds=1.5)


@pytest.mark.case("H3")
async def test_fifty_handlers_in_a_busy_process_lose_nothing(
    make_queue: MakeQueue, cast: Cast, log: Log
) -> None:
    """Handlers of 4 s, for 10, at 80 % of a processor; somebody reclaims every 20 ms."""
    queue = await make_queue(clock=None)
    await queue.enqueue_many([NewMessage({"work": 4}, tenant="T", id=f"m{n}") for n in range(50)])
    await cast.actor("worker", worker={"concurrency": 50}, visibility_timeout=1.5, reclaim_interval=0.02)

    async def done() -> bool:
        return (await queue.reclaim()).reclaimed != [] or await all_completed(queue, 50)

    await eventually(done, "all to be completed")
    assert (log.count(STARTED), log.count(ENDED)) == (50, 50)
    assert (await queue.stats()).totals.reclaimed == 0


@pytest.mark.case("H3")
async def test_two_extends_in_a_row_may_be_lost(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third one goes through."""
    numbers = itertools.count(1)
    extend_all = LeaseKeeper._extend_all

    async def extend_now_and_then(keeper: LeaseKeeper, connection: Any) -> None:
        if next(numbers) % 3 == 0:
            await extend_all(keeper, connection)

    monkeypatch.setattr(LeaseKeeper, "_extend_all", extend_now_and_then)
    queue = await make_queue(clock=None, visibility_timeout=2, reclaim_interval=0.02)
    go_on, starts = asyncio.Event(), []

    async def handle(message: Message[Any]) -> None:
        starts.append(message.id)
        await go_on.wait()

    worker = Worker(queue, handle)
    working = asyncio.ensure_future(worker.run(signals=False))
    await put(queue, "T", *(f"m{n}" for n in range(5)))
    until = time.monotonic() + 6

    async def over() -> bool:
        return time.monotonic() > until or (await queue.stats()).totals.reclaimed > 0

    await eventually(over, "three times the visibility timeout to pass")
    assert (await queue.stats()).totals.reclaimed == 0
    go_on.set()
    worker.stop()
    await working
    assert sorted(starts) == [f"m{n}" for n in range(5)]
    assert await all_completed(queue, 5)
