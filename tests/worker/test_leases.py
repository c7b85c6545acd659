"""A running handler keeps its message; a handler whose lease is lost is told; nobody runs a message beside it."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from fairqueue import Lease, Limit, Message, NewMessage, RetryPolicy, current_lease
from fairqueue.lease_keeper import LeaseKeeper
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.support.fixtures import StartWorker
from tests.support.processes import CANCELLED, ENDED, STARTED, Log
from tests.support.proxy import Proxy, hold_reply, hold_request, lose_request
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually, watched_until
from tests.worker.running import all_done, expire, running, steal

SHORT: dict[str, Any] = {"clock": None, "visibility_timeout": 0.5, "reclaim_interval": 0.1}
ALONE: dict[str, Any] = SHORT | {"reclaim_interval": 0}  # the test reclaims


# --- kept ----------------------------------------------------------------------------------------------------


def block_with_sleep(seconds: float) -> None:
    time.sleep(seconds)


def block_with_python(seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        gc.collect(0)


@pytest.mark.parametrize("block", [block_with_sleep, block_with_python])
async def test_a_handler_that_blocks_the_event_loop_keeps_its_message(
    make_queue: MakeQueue, start_worker: StartWorker, log: Log, block: Any
) -> None:
    """For more than twice the visibility timeout, with another process alive that would take it."""
    queue = await make_queue(clock=None, visibility_timeout=1.5, reclaim_interval=0.1)
    starts: list[int] = []

    async def handle(message: Message[Any]) -> None:
        starts.append(message.attempt)
        block(3.5)

    other = start_worker(queue={"reclaim_interval": 0.05}, go=False).ready()
    await queue.enqueue({"sleep": 0}, tenant="a")
    async with running(queue, handle):
        await eventually(lambda: starts, "the handler to start")
        other.go()
        await all_done(queue)
    assert starts == [1]
    assert log.events() == []
    stats = await queue.stats()
    assert (stats.totals.completed, stats.totals.reclaimed) == (1, 0)


async def test_a_claim_that_was_answered_to_a_blocked_loop_starts_only_what_is_still_ours(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """The leases of the answer expired and were taken while nobody could read it."""
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=5)], **ALONE)
    other = await make_queue(clock=None)
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(2)])
    gate = threading.Event()
    proxy.next("claim", hold_reply(gate))
    starts: list[tuple[str, int]] = []

    async def handle(message: Message[Any]) -> None:
        starts.append((message.id, message.attempt))

    async with running(queue, handle, concurrency=2):

        async def expired() -> list[Any]:
            return (await other.reclaim()).reclaimed

        assert len(await eventually(expired, "the leases to expire")) == 2
        (taken,) = await other.claim(1)
        gate.set()
        await eventually(lambda: starts, "the other one to run")
        assert taken.message.id not in [id for id, _ in starts]
        assert await taken.complete() == "done"
        await all_done(queue)
    assert len(starts) == 1
    assert (await queue.stats()).totals.completed == 2


async def test_fifty_handlers_are_kept_through_lost_extends(make_queue: MakeQueue, proxy: Proxy) -> None:
    """Of three extends within a visibility timeout two are lost; another client reclaims all the time."""
    queue = await make_queue(url=proxy.url, clock=None, visibility_timeout=4, reclaim_interval=0)
    other = await make_queue(clock=None)
    starts: list[int] = []

    async def handle(message: Message[Any]) -> None:
        starts.append(message.attempt)
        await asyncio.sleep(5)

    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 5}") for n in range(50)])
    async with running(queue, handle):
        await eventually(lambda: len(starts) == 50, "all to start")
        proxy.next("extend", lose_request(), times=2)
        reclaimed = []

        async def ended() -> bool:
            return (await other.stats()).in_flight == 0

        async def reclaim() -> None:
            reclaimed.extend((await other.reclaim()).reclaimed)

        await watched_until(ended, reclaim, "all to end")
    assert reclaimed == []
    assert starts == [1] * 50
    assert (await queue.stats()).totals.completed == 50


async def test_leases_are_kept_where_no_further_thread_can_be_started(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container at its limit of processes."""
    queue = await make_queue(**SHORT)
    starts: list[int] = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def handle(message: Message[Any]) -> None:
        starts.append(message.attempt)
        if len(starts) > 1:
            return
        lease = current_lease()
        enough = lease.deadline + timedelta(seconds=2)  # four times as long as it would have lasted
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            await eventually(
                lambda: lease.deadline > enough or lease.lost.is_set(), "it to be extended, or lost"
            )

    async with running(queue, handle):
        await queue.enqueue(1, tenant="a")
        await eventually(lambda: starts, "the handler to start")
        await all_done(queue)
    assert starts == [1]


async def test_what_goes_wrong_with_one_lease_does_not_end_the_keeping_of_others(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(**ALONE)
    other = await make_queue(clock=None)
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(2)])
    gone, kept = await queue.claim(2)
    await expire(other, "a", gone.message.id)
    keeper = LeaseKeeper(queue._engine, 500)

    def fail() -> None:
        raise RuntimeError("the event loop has just closed")

    keeper.keep(gone, fail)
    keeper.keep(kept, lambda: None)
    keeper.start()
    try:
        await eventually(gone.lost.is_set, "the loss to be told")
        enough = kept.deadline + timedelta(seconds=2)
        await eventually(lambda: kept.deadline > enough, "the other to be extended")
    finally:
        keeper.stop()
    await kept.complete()


async def test_an_extend_goes_to_the_full_visibility_timeout(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(visibility_timeout=0.4, reclaim_interval=0)
    go = asyncio.Event()
    leases: list[Lease[Any]] = []

    async def handle(message: Message[Any]) -> None:
        leases.append(current_lease())
        await go.wait()

    await queue.enqueue(1, tenant="a")
    async with running(queue, handle):
        await eventually(lambda: leases, "the handler to start")
        for _ in range(3):
            clock.advance(0.3)
            full = clock.now + timedelta(seconds=0.4)
            await eventually(lambda full=full: leases[0].deadline == full, "a full timeout from now")  # type: ignore[misc]
        go.set()


# --- not kept ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_handler_that_takes_too_long_is_ended_and_its_message_retried(
    make_queue: MakeQueue, kind: str
) -> None:
    """Nobody keeps it alive, its slot is free, the next message runs, and its late result is refused."""
    queue = await make_queue(
        clock=None, limits=[Limit("tenant", default=1)], retry=RetryPolicy.fixed(0, max_attempts=2)
    )
    starts: list[tuple[str, int]] = []
    late: list[str] = []
    go = threading.Event()

    async def in_loop(message: Message[Any]) -> None:
        starts.append((message.id, message.attempt))
        if message.attempt == 1 and message.id == "hangs":
            await asyncio.sleep(60)

    def in_thread(message: Message[Any]) -> None:
        starts.append((message.id, message.attempt))
        if message.attempt == 1 and message.id == "hangs":
            go.wait(60)
            late.append(message.id)

    await queue.enqueue_many([NewMessage(n, tenant="a", id=id) for n, id in enumerate(["hangs", "next"])])
    async with running(queue, in_loop if kind == "async" else in_thread, handler_timeout=0.2):
        await all_done(queue)
        go.set()
    assert sorted(starts) == [("hangs", 1), ("hangs", 2), ("next", 1)]
    stats = await queue.stats()
    assert (stats.totals.completed, stats.totals.failed, stats.totals.reclaimed) == (2, 1, 0)


async def test_the_timeout_is_said_in_the_error(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=1))

    async def handle(message: Message[Any]) -> None:
        await asyncio.sleep(60)

    await queue.enqueue(1, tenant="a")
    async with running(queue, handle, handler_timeout=0.05):
        await all_done(queue)
    ((dead,), _) = await queue.dead_letters.list("a")
    assert dead.error == "TimeoutError: the handler took longer than 0.05 s"


async def test_an_async_handler_whose_lease_is_lost_is_cancelled(make_queue: MakeQueue) -> None:
    queue = await make_queue(**ALONE)
    other = await make_queue(clock=None)
    cancelled = asyncio.Event()
    leases: list[Lease[Any]] = []

    async def handle(message: Message[Any]) -> None:
        leases.append(current_lease())
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await queue.enqueue(1, tenant="a", id="m")
    async with running(queue, handle, concurrency=1) as worker:
        await eventually(lambda: leases, "the handler to start")
        taken = await steal(other, worker)
        await asyncio.wait_for(cancelled.wait(), 60)
        assert leases[0].lost.is_set()
        assert await taken.complete() == "done"
        await queue.enqueue(2, tenant="a", id="n")
        await eventually(lambda: len(leases) == 2, "the worker to go on")
        worker.stop()
        worker.stop()
    assert (await queue.stats()).ready == 1


async def test_a_thread_whose_lease_is_lost_can_see_it(make_queue: MakeQueue) -> None:
    queue = await make_queue(**ALONE)
    other = await make_queue(clock=None)
    seen = threading.Event()
    leases: list[Lease[Any]] = []

    def handle(message: Message[Any]) -> None:
        lease: Lease[Any] = current_lease()
        leases.append(lease)
        if lease.lost.wait(60):
            seen.set()

    await queue.enqueue(1, tenant="a", id="m")
    async with running(queue, handle) as worker:
        await eventually(lambda: leases, "the handler to start")
        taken = await steal(other, worker)
        assert await asyncio.to_thread(seen.wait, 20)
    assert await taken.complete() == "done"
    assert (await queue.stats()).totals.completed == 1


async def test_work_that_was_done_after_its_lease_was_lost_ends_a_message_nobody_took(
    make_queue: MakeQueue,
) -> None:
    """It came back by reclaim and waits; running it again would be a duplicate."""
    queue = await make_queue(**ALONE, limits=[Limit("tenant", default=1)])
    other = await make_queue(clock=None)
    lost = threading.Event()
    starts: list[int] = []

    def handle(message: Message[Any]) -> None:
        starts.append(message.attempt)
        current_lease().lost.wait(60)
        lost.set()

    await queue.enqueue(1, tenant="a", id="m")
    async with running(queue, handle, concurrency=1):
        await eventually(lambda: starts, "the handler to start")
        await queue.limits.set("tenant", "a", 0)
        await expire(other, "a", "m")
        assert await asyncio.to_thread(lost.wait, 20)
        await all_done(queue)
    assert starts == [1]
    assert (await queue.stats()).totals.completed == 1


async def test_the_outcome_of_what_finished_late_is_not_another_delivery(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """The settle arrives long after the lease expired and somebody else has the message: it changes nothing."""
    queue = await make_queue(url=proxy.url, **SHORT)
    other = await make_queue(clock=None)
    done: list[str] = []

    async def handle(message: Message[Any]) -> None:
        done.append(message.id)

    await queue.enqueue(1, tenant="a", id="m")
    gate = threading.Event()
    proxy.next("settle", hold_request(gate))
    async with running(queue, handle, concurrency=1) as worker:
        await eventually(lambda: done and proxy.count("settle") == 1, "the settle to be under way")
        worker._keeper.stop()

        async def gone() -> list[Any]:
            await other.reclaim()
            return await other.claim()

        (taken,) = await eventually(gone, "the lease to expire")
        gate.set()
        worker.stop()
    assert await taken.fail("mine") == "retried"
    assert (await queue.stats()).totals.completed == 0


# --- other processes -----------------------------------------------------------------------------------------


async def test_killed_with_9_its_message_comes_back_to_another(
    make_queue: MakeQueue, start_worker: StartWorker, log: Log
) -> None:
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=1)])
    await queue.enqueue({"sleep": 60}, tenant="a", id="m")
    victim = start_worker(queue={"visibility_timeout": 1.0, "reclaim_interval": 0})
    await eventually(lambda: log.count(STARTED) == 1, "the handler to start")
    # A server that is younger than half its visibility timeout is not judged yet.
    start_worker(queue={"visibility_timeout": 2.0, "reclaim_interval": 0.2})
    watch = Stopwatch()
    victim.kill()
    await eventually(lambda: log.count(STARTED) == 2, "the message to come back")
    watch.check(1.0 + 0.2 + 1.0, "the message to come back")
    first, second = log.events(STARTED)
    assert (second.id, second.attempt) == ("m", 2)
    assert second.pid != first.pid
    assert (await queue.limits.get("tenant", "a")).held == 1
    info = await queue.get("a", "m")
    assert info is not None
    assert info.message.crashes == 1


async def test_frozen_past_its_lease_and_thawed_it_gives_up(
    make_queue: MakeQueue, start_worker: StartWorker, log: Log
) -> None:
    """Limit 1: while the other one runs the message nothing else of the tenant starts."""
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=1)])
    let_go = log.path.with_name("let-go")
    await queue.enqueue({"first": 60, "until": str(let_go)}, tenant="a", id="m")
    frozen = start_worker(queue={"visibility_timeout": 1.5, "reclaim_interval": 0})
    await eventually(lambda: log.count(STARTED) == 1, "the handler to start")
    frozen.freeze()
    other = start_worker(queue={"reclaim_interval": 0.1})
    await eventually(lambda: log.count(STARTED) == 2, "the message to be delivered again")
    await queue.enqueue({"sleep": 0}, tenant="a", id="next")
    frozen.thaw()
    await eventually(lambda: log.count(CANCELLED) == 1, "the thawed handler to be cancelled")
    assert (await queue.limits.get("tenant", "a")).held == 1
    let_go.touch()
    await all_done(queue)
    assert [(event.id, event.pid) for event in log.events(CANCELLED)] == [("m", frozen.pid)]
    m_end = next(event.at for event in log.events(ENDED) if event.id == "m")
    next_start = next(event.at for event in log.events(STARTED) if event.id == "next")
    assert next_start > m_end
    assert {event.pid for event in log.events(ENDED) if event.id == "m"} == {other.pid}
    assert (await queue.stats()).totals.completed == 2


async def test_frozen_past_its_lease_with_nobody_else_it_goes_on(
    make_queue: MakeQueue, start_worker: StartWorker, log: Log
) -> None:
    """Its own reclaim, woken at the same moment, leaves its own leases the time to be extended."""
    queue = await make_queue(clock=None)
    await queue.enqueue({"sleep": 3}, tenant="a", id="m")
    worker = start_worker(queue={"visibility_timeout": 2, "reclaim_interval": 0.1})
    await eventually(lambda: log.count(STARTED) == 1, "the handler to start")
    worker.freeze()
    (lease_ends,) = [info.lease.deadline for info in (await queue.messages("a"))[0] if info.lease]
    frozen_at = time.monotonic()

    async def expired() -> bool:
        seconds, _ = await queue._engine.command("TIME")
        return seconds > lease_ends.timestamp() + 1 and time.monotonic() - frozen_at > 1.5

    await eventually(expired, "the lease to have expired")
    worker.thaw()
    await all_done(queue)
    assert [(event.what, event.attempt) for event in log.events()] == [(STARTED, 1), (ENDED, 1)]
    totals = (await queue.stats()).totals
    assert (totals.completed, totals.reclaimed) == (1, 0)


async def test_a_worker_that_exits_in_its_handler_is_a_crash(
    make_queue: MakeQueue, start_worker: StartWorker, log: Log
) -> None:
    queue = await make_queue(clock=None, retry=RetryPolicy(max_attempts=12, max_crashes=2))
    options = {"visibility_timeout": 1.5, "reclaim_interval": 0.1}
    await queue.enqueue({"exit": 137}, tenant="a", id="bad")
    await queue.enqueue_many([NewMessage({"sleep": 0}, tenant="a", id=f"good{n}") for n in range(5)])
    for _ in range(2):
        worker = start_worker(queue=options, concurrency=1)
        assert await asyncio.to_thread(worker.wait) == 137
    last = start_worker(queue={"reclaim_interval": 0.1}, concurrency=1)
    await all_done(queue)
    ((dead,), _) = await queue.dead_letters.list("a")
    assert (dead.message.id, dead.reason, dead.crashes) == ("bad", "worker lost", 2)
    assert log.count(ENDED) == 5
    last.signal(signal.SIGTERM)
    assert await asyncio.to_thread(last.wait) == 0
