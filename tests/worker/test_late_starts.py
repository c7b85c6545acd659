"""Between its claim and its start a message may be lost: the process was frozen, the loop blocked, a thread starved.

Started all the same it would run beside another delivery of itself, above its limits too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from fairqueue import Limit, Message, NewMessage, RetryPolicy, SyncFairQueue, Worker
from fairqueue.running import Threads
from tests.conftest import MakeQueue
from tests.support.fixtures import StartWorker
from tests.support.processes import STARTED, Log
from tests.support.proxy import Proxy, hold_reply
from tests.support.waiting import eventually, eventually_sync
from tests.worker.running import all_done, running

T = TypeVar("T")
ALONE: dict[str, Any] = {"clock": None, "visibility_timeout": 0.5, "reclaim_interval": 0}  # the test reclaims


@pytest.fixture
def other(server: str, namespace: str) -> Any:
    """Another client, for a handler that blocks this one's loop."""
    with SyncFairQueue(server, namespace) as queue:
        yield queue


def take_all(other: SyncFairQueue[Any], count: int) -> list[Any]:
    """Waits until so many leases have expired, and takes the messages."""
    reclaimed = 0

    def all_came_back() -> bool:
        nonlocal reclaimed
        reclaimed += len(other.reclaim().reclaimed)
        return reclaimed == count

    eventually_sync(all_came_back, f"{count} leases to expire")
    return other.claim(count)


class Blocking:
    """A handler whose first call does something while it blocks the event loop, with no lease extended meanwhile."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.worker: Worker[Any] | None = None
        self.came: list[str] = []
        self.result: Any = None

    async def __call__(self, message: Message[Any]) -> None:
        self.came.append(message.id)
        if len(self.came) == 1:
            assert self.worker is not None
            self.worker._keeper.stop()
            self.result = self._work()


async def send(queue: Any, *ids: str) -> None:
    await queue.enqueue_many([NewMessage(id, tenant="a", id=id) for id in ids])


async def test_behind_a_handler_that_blocks_the_loop_nothing_starts_that_was_lost_meanwhile(
    make_queue: MakeQueue, other: SyncFairQueue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)], **ALONE)
    await send(queue, "m0", "m1")
    handle = Blocking(lambda: take_all(other, 2))
    worker: Worker[Any] = Worker(queue, handle, concurrency=2)
    handle.worker = worker
    task = asyncio.ensure_future(worker.run(signals=False))
    await eventually(lambda: handle.result, "the other client to have both")
    assert other.complete_many(handle.result) == ["done", "done"]
    await send(queue, "m2")
    await eventually(lambda: "m2" in handle.came, "the worker to go on")
    await all_done(queue)
    worker.stop()
    await task
    assert handle.came == ["m0", "m2"]
    assert "lost before its handler started" in caplog.text
    assert (await queue.stats()).totals.completed == 3


async def test_an_expired_lease_that_nobody_reclaimed_is_extended_and_its_handler_starts(
    make_queue: MakeQueue, proxy: Proxy, other: SyncFairQueue[Any]
) -> None:
    queue = await make_queue(url=proxy.url, **ALONE)
    await send(queue, "m0", "m1")
    came_at: list[float] = []

    def outlast() -> bool:
        ends = time.monotonic() + 0.6  # longer than the visibility timeout is what is tested
        eventually_sync(lambda: time.monotonic() > ends, "the leases to have expired")
        came_at.append(proxy.count("extend"))
        return True

    handle = Blocking(outlast)
    async with running(queue, handle, concurrency=2) as worker:
        handle.worker = worker
        await all_done(queue)
    assert handle.came == ["m0", "m1"]
    assert proxy.count("extend") > came_at[0]
    totals = (await queue.stats()).totals
    assert (totals.completed, totals.reclaimed, totals.claimed) == (2, 0, 2)


async def test_while_the_server_is_away_a_handler_that_may_have_lost_its_message_waits(
    make_queue: MakeQueue,
    proxy: Proxy,
    other: SyncFairQueue[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("fairqueue.running._ASK_AGAIN", 0.05)
    queue = await make_queue(url=proxy.url, **ALONE)
    await send(queue, "m0", "m1")
    handle = Blocking(lambda: (proxy.refuse(), take_all(other, 2))[1])
    queue._engine.connection._patience = 0.2
    async with running(queue, handle, concurrency=2) as worker:
        handle.worker = worker
        await eventually(lambda: handle.result, "the other client to have both")
        refused_at = len(proxy.requests)
        await eventually(
            lambda: caplog.text.count("nobody knows whose") >= 2, "the worker to have asked twice"
        )
        assert handle.came == ["m0"]
        proxy.refuse(False)
        await eventually(lambda: len(proxy.requests) > refused_at, "the worker to ask again")
        assert await asyncio.to_thread(other.complete_many, handle.result) == ["done", "done"]
        await send(queue, "m2")
        await eventually(lambda: "m2" in handle.came, "the worker to go on")
        await all_done(queue)
    assert handle.came == ["m0", "m2"]


class Starved(Threads):
    """Threads that come to their turn when the gate is open."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate
        self.waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        def late() -> T:
            self.waiting += 1
            self._gate.wait(60)
            return work()

        return await super().run(late)


async def test_a_thread_that_comes_late_to_its_turn_does_not_start_what_was_lost(
    make_queue: MakeQueue, other: SyncFairQueue[Any]
) -> None:
    queue = await make_queue(**ALONE)
    came: list[tuple[str, int]] = []
    gate = threading.Event()
    threads = Starved(gate)

    def handle(message: Message[Any]) -> None:
        came.append((message.id, message.attempt))

    async with running(queue, handle, concurrency=2) as worker:
        worker._runner._threads = threads
        await send(queue, "m0", "m1")
        await eventually(lambda: threads.waiting == 2, "both threads to wait")
        worker._keeper.stop()
        taken = await asyncio.to_thread(take_all, other, 2)
        gate.set()
        await asyncio.to_thread(other.complete_many, taken[:1])
        await asyncio.to_thread(other.release_many, taken[1:])
        await all_done(queue)
    assert came == [(taken[1].message.id, 2)]


async def test_a_thread_whose_run_was_given_up_before_its_turn_does_not_start(make_queue: MakeQueue) -> None:
    """Timed out, the message was failed and is tried again: both at once would be one too many."""
    queue = await make_queue(retry=RetryPolicy.fixed(0, max_attempts=2))
    came: list[int] = []
    gate = threading.Event()
    threads = Starved(gate)

    def handle(message: Message[Any]) -> None:
        came.append(message.attempt)

    worker: Worker[Any] = Worker(queue, handle, concurrency=1, handler_timeout=0.3)
    worker._runner._threads = threads
    task = asyncio.ensure_future(worker.run(signals=False))
    await send(queue, "m")
    await eventually(lambda: threads.waiting == 1, "the first thread to wait")

    async def failed() -> bool:
        return (await queue.stats()).totals.failed == 1

    await eventually(failed, "the run to be given up")
    gate.set()
    await all_done(queue)
    worker.stop()
    await task
    assert came == [2]


async def test_thawed_between_the_claim_and_the_start_it_does_not_start_what_was_lost(
    make_queue: MakeQueue, start_worker: StartWorker, log: Log, proxy: Proxy
) -> None:
    """The answer of the claim waits in the socket of a process that is frozen."""
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=1)])
    gate = threading.Event()
    proxy.next("claim", hold_reply(gate))
    await queue.enqueue({"sleep": 0}, tenant="a", id="m")
    frozen = start_worker(url=proxy.url, queue={"visibility_timeout": 1.0, "reclaim_interval": 0})

    async def claimed() -> bool:
        return (await queue.stats()).in_flight == 1

    await eventually(claimed, "the worker to claim")
    frozen.freeze()
    gate.set()

    async def reclaimed() -> Any:
        return (await queue.reclaim()).reclaimed

    assert await eventually(reclaimed, "the lease to expire") == [("a", "m")]
    (taken,) = await queue.claim()
    frozen.thaw()
    await queue.enqueue({"sleep": 0}, tenant="b", id="next")
    await eventually(lambda: log.count(STARTED) == 1, "the thawed worker to go on")
    assert await taken.complete() == "done"
    await all_done(queue)
    assert [(event.id, event.attempt) for event in log.events(STARTED)] == [("next", 1)]
