"""Starting, stopping and draining, in every order."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from fairqueue import FairQueue, FairQueueError, Limit, Message, NewMessage, RetryPolicy, Worker
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.support.fixtures import StartWorker
from tests.support.processes import CANCELLED, ENDED, STARTED, Log
from tests.support.proxy import Proxy, hold_reply
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually
from tests.worker.running import all_done, running


class Gate:
    """A handler that notes who came and lets them go when it is opened."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.left: list[str] = []
        self.cancelled: list[str] = []
        self._open = asyncio.Event()

    async def __call__(self, message: Message[Any]) -> None:
        self.came.append(message.id)
        try:
            await self._open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(message.id)
            raise
        self.left.append(message.id)

    def open(self) -> None:
        self._open.set()

    async def has(self, count: int) -> None:
        await eventually(lambda: len(self.came) >= count, f"{count} handlers to have started")


async def start(worker: Worker[Any]) -> asyncio.Task[None]:
    return asyncio.ensure_future(worker.run(signals=False))


async def send(queue: FairQueue[Any], count: int) -> None:
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(count)])


async def test_a_stop_before_the_start_does_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, 1)
    gate = Gate()
    gate.open()
    worker: Worker[Any] = Worker(queue, gate)
    worker.stop()
    worker.stop()
    task = await start(worker)
    await all_done(queue)
    worker.stop()
    await task


async def test_a_stop_right_after_the_start_stops(make_queue: MakeQueue) -> None:
    """The task that runs it has not had its first turn yet."""
    queue = await make_queue()
    worker: Worker[Any] = Worker(queue, Gate())
    task = asyncio.ensure_future(worker.run(signals=False))
    worker.stop()
    await asyncio.wait_for(task, 60)


async def test_a_stop_lets_handlers_end_and_claims_no_more(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, 5)
    gate = Gate()
    worker: Worker[Any] = Worker(queue, gate, concurrency=2)
    task = await start(worker)
    await gate.has(2)
    worker.stop()
    gate.open()
    await task
    assert sorted(gate.left) == ["m0", "m1"]
    stats = await queue.stats()
    assert (stats.ready, stats.in_flight, stats.totals.completed) == (3, 0, 2)


async def test_a_stopped_worker_runs_again_with_its_whole_grace(make_queue: MakeQueue) -> None:
    """Also after a second stop had cut its grace short."""
    queue = await make_queue()
    await send(queue, 1)
    gate = Gate()
    worker: Worker[Any] = Worker(queue, gate, grace=20)
    task = await start(worker)
    await gate.has(1)
    worker.stop()
    worker.stop()
    await asyncio.wait_for(task, 60)
    assert gate.cancelled == ["m0"]
    task = await start(worker)
    await gate.has(2)
    worker.stop()
    await asyncio.sleep(0)
    gate.open()
    await task
    assert gate.left == ["m0"]
    assert (await queue.stats()).totals.completed == 1


async def test_a_second_stop_cuts_the_grace_short(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=1), limits=[Limit("tenant", default=5)])
    await send(queue, 3)
    gate = Gate()
    worker: Worker[Any] = Worker(queue, gate, grace=60)
    task = await start(worker)
    await gate.has(3)
    worker.stop()
    worker.stop()
    await asyncio.wait_for(task, 60)
    stats = await queue.stats()
    assert (stats.ready, stats.in_flight, stats.dead, stats.totals.released) == (3, 0, 0, 3)
    assert (await queue.limits.get("tenant", "a")).held == 0
    leases = await queue.claim(3)
    assert [(lease.message.id, lease.message.attempt) for lease in leases] == [
        ("m0", 1),
        ("m1", 1),
        ("m2", 1),
    ]


async def test_the_end_of_grace_releases_uncounted(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=1))
    await send(queue, 2)
    gate = Gate()
    worker: Worker[Any] = Worker(queue, gate, grace=0.1)
    for _ in range(3):
        task = await start(worker)
        before = len(gate.came)
        await gate.has(before + 2)
        worker.stop()
        await asyncio.wait_for(task, 60)
    assert len(gate.cancelled) == 6
    leases = await queue.claim(2)
    assert [lease.message.attempt for lease in leases] == [1, 1]
    assert (await queue.stats()).dead == 0


async def test_a_handler_that_ends_by_itself_on_cancellation_is_believed(make_queue: MakeQueue) -> None:
    """It tidies up in its own time and returns: then the work is done."""
    queue = await make_queue()
    await send(queue, 1)
    came = asyncio.Event()

    async def handle(message: Message[Any]) -> None:
        came.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)

    worker: Worker[Any] = Worker(queue, handle, grace=0)
    task = await start(worker)
    await came.wait()
    worker.stop()
    await asyncio.wait_for(task, 60)
    assert (await queue.stats()).totals.completed == 1


async def test_a_run_that_is_cancelled_drains_without_grace(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, 2)
    gate = Gate()
    worker: Worker[Any] = Worker(queue, gate)
    task = await start(worker)
    await gate.has(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(gate.cancelled) == ["m0", "m1"]
    stats = await queue.stats()
    assert (stats.ready, stats.in_flight) == (2, 0)


async def test_it_runs_once_at_a_time(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    async with running(queue, Gate()) as worker:
        await eventually(lambda: worker._loop is not None, "the worker to run")
        with pytest.raises(FairQueueError, match="runs already"):
            await worker.run(signals=False)


async def test_what_a_claim_under_way_brings_after_the_stop_is_not_started(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await send(queue, 3)
    gate, opened = Gate(), threading.Event()
    proxy.next("claim", hold_reply(opened))
    worker: Worker[Any] = Worker(queue, gate)
    task = await start(worker)
    other = await make_queue()

    async def taken() -> bool:
        return (await other.stats()).in_flight == 3

    await eventually(taken, "the claim to have been done")
    worker.stop()
    opened.set()
    await asyncio.wait_for(task, 60)
    assert gate.came == []
    stats = await queue.stats()
    assert (stats.ready, stats.in_flight, stats.totals.released) == (3, 0, 3)


async def test_leases_are_kept_alive_while_it_drains(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(visibility_timeout=0.4, reclaim_interval=0.1)
    await send(queue, 2)
    gate = Gate()
    worker: Worker[Any] = Worker(queue, gate, grace=60)
    task = await start(worker)
    await gate.has(2)
    worker.stop()
    leases = list(worker._deliveries.running.values())
    for _ in range(4):
        clock.advance(0.3)
        full = clock.now + timedelta(seconds=0.4)
        await eventually(
            lambda full=full: [lease.deadline for lease in leases] == [full] * 2, "both to be extended"
        )  # type: ignore[misc]
    gate.open()
    await task
    totals = (await queue.stats()).totals
    assert (totals.completed, totals.reclaimed) == (2, 0)


async def test_a_worker_is_listed_while_it_runs(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    async with running(queue, Gate(), concurrency=7, pools=["x", "y"], name="mine"):

        async def listed() -> list[Any]:
            return [(one.name, one.concurrency, one.pools) async for one in queue.workers()]

        assert await eventually(listed, "the worker to be listed") == [("mine", 7, ("x", "y"))]
    assert [one async for one in queue.workers()] == []


async def test_run_sync_works_until_it_is_stopped(make_queue: MakeQueue, server: str, namespace: str) -> None:
    queue = await make_queue(clock=None)
    await send(queue, 3)
    done = threading.Event()
    seen: list[str] = []

    async def handle(message: Message[Any]) -> None:
        seen.append(message.id)
        if len(seen) == 3:
            done.set()

    worker: Worker[Any] = Worker(FairQueue(server, namespace), handle)
    thread = threading.Thread(target=worker.run_sync)
    thread.start()
    await asyncio.to_thread(done.wait, 20)
    worker.stop()
    await asyncio.to_thread(thread.join, 20)
    assert not thread.is_alive()
    assert sorted(seen) == ["m0", "m1", "m2"]
    assert (await queue.stats()).totals.completed == 3


async def test_threads_that_still_run_are_not_released(make_queue: MakeQueue) -> None:
    """Released, the message would run twice at once. Its lease expires, and its late result is refused."""
    queue = await make_queue(clock=None, visibility_timeout=2, reclaim_interval=0.1)
    await send(queue, 1)
    came, go = threading.Event(), threading.Event()

    def handle(message: Message[Any]) -> None:
        came.set()
        go.wait(60)

    worker: Worker[Any] = Worker(queue, handle, grace=0)
    task = await start(worker)
    await asyncio.to_thread(came.wait, 20)
    worker.stop()
    await asyncio.wait_for(task, 60)
    assert (await queue.stats()).in_flight == 1
    assert await queue.claim() == []
    task = await start(worker)  # a worker that runs again does not keep what it gave up
    came.clear()
    await asyncio.to_thread(came.wait, 20)
    assert came.is_set(), "the message has not come back"
    go.set()
    await all_done(queue)
    worker.stop()
    await task
    assert (await queue.stats()).totals.reclaimed == 1


async def test_threads_are_released_if_the_process_ends_right_after(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, 1)
    came, go = threading.Event(), threading.Event()

    def handle(message: Message[Any]) -> None:
        came.set()
        go.wait(60)

    worker: Worker[Any] = Worker(queue, handle, grace=0)
    worker._exits_after = True
    task = await start(worker)
    await asyncio.to_thread(came.wait, 20)
    worker.stop()
    await asyncio.wait_for(task, 60)
    (lease,) = await queue.claim()
    assert lease.message.attempt == 1
    go.set()


# --- by signals, in a process of its own ---------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_ends_with_0(
    make_queue: MakeQueue, start_worker: StartWorker, log: Log, number: signal.Signals
) -> None:
    """Visibility 1.5 s, a handler of 3 s, a second worker that would take what is let go."""
    queue = await make_queue(clock=None)
    await queue.enqueue({"sleep": 3}, tenant="a", id="long")
    options = {"visibility_timeout": 1.5, "reclaim_interval": 0.1}
    worker = start_worker(queue=options, concurrency=1, grace=60)
    await eventually(lambda: log.count(STARTED) == 1, "the handler to start")
    other = start_worker(queue=options, concurrency=1)
    worker.signal(number)
    for n in range(3):
        await queue.enqueue({"sleep": 0}, tenant="a", id=f"after-{n}")
    watch = Stopwatch()
    with watch.looking():
        assert await asyncio.to_thread(worker.wait) == 0
        ended = time.monotonic()
    (end,) = [event for event in log.events(ENDED) if event.id == "long"]
    watch.check(1.5, "it to end after its handler", end.at, ended)
    await all_done(queue)
    starts = [(event.id, event.attempt) for event in log.events(STARTED)]
    assert sorted(starts) == [("after-0", 1), ("after-1", 1), ("after-2", 1), ("long", 1)]
    assert {event.pid for event in log.events(STARTED) if event.id != "long"} == {other.pid}
    assert (await queue.stats()).totals.completed == 4


async def test_a_second_signal_cuts_the_grace_short(
    make_queue: MakeQueue, start_worker: StartWorker, log: Log
) -> None:
    queue = await make_queue(clock=None)
    await queue.enqueue({"sleep": 60}, tenant="a", id="long")
    worker = start_worker(grace=60)
    await eventually(lambda: log.count(STARTED) == 1, "the handler to start")
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGINT)
    assert await asyncio.to_thread(worker.wait) == 0
    assert log.count(CANCELLED) == 1
    (lease,) = await queue.claim()
    assert (lease.message.id, lease.message.attempt) == ("long", 1)
