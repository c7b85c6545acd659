"""The phases of a benchmark: a backlog is enqueued, drained by one worker, and then a worker is idle and called.

The conditions are those of a worker in production but for two: its duties of maintenance are off and leases last
longer than the run, so that the server's script time in the drain is that of claims and settles (a worker's own sign
of life every five seconds and a look for due messages every second aside).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairqueue import FairQueue, Limit, Message, NewMessage, Worker
from fairqueue.bench.meters import ScriptTime, Stopwatch, server_of
from fairqueue.bench.options import PRIVATE_SERVER, BenchOptions
from fairqueue.bench.result import BenchResult
from fairqueue.codec import JsonCodec
from fairqueue.errors import FairQueueError
from fairqueue.fairness import percentile
from fairqueue.inside import engine_of
from fairqueue.validation import counted

PAYLOAD_BYTES = 230
_FILLER = "x" * (PAYLOAD_BYTES - len('{"n":0000000,"text":""}'))

ONE_BY_ONE = 2_000
"""At most so many messages of the backlog, and at most half of it, are enqueued one by one."""

LATENCY_RATE, LATENCY_SECONDS, WARM_UP = 100, 2.0, 20
SLOWEST_DRAIN = 50
"""Messages a second; a drain that would be slower than this is given up."""

_LEASES_OUTLAST_THE_RUN = 24 * 3600


async def run_bench(options: BenchOptions, say: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Measures; takes about half a minute with the defaults.

    Args:
        options: what to measure, and where.
        say: is told what begins.

    Raises:
        FairQueueError: the namespace has messages or workers, or the drain did not end.

    Example:
        >>> result = await run_bench(BenchOptions(tenants=1000))                # doctest: +SKIP
        >>> result.as_json()["drain_per_s"]                                     # doctest: +SKIP
        11873.2
    """
    await _refuse_a_namespace_in_use(options)
    async with _queue(options, options.url) as queue:
        enqueued = await _fill(queue, options, say)
        say(f"draining {options.messages:,} messages")
        drained = await _drain(queue, options)
        say(f"starting {LATENCY_RATE} messages a second, for {LATENCY_SECONDS:g} s")
        latencies = await _latencies(queue, options)
        return BenchResult(
            options=options,
            server=await server_of(engine_of(queue)),
            payload_bytes=len(JsonCodec().encode(_payload(1))),
            enqueue_per_s=enqueued.one_by_one_per_s,
            enqueue_many_per_s=enqueued.bulk_per_s,
            drain_seconds=drained.seconds,
            drain_per_s=options.messages / drained.seconds,
            client_us_per_message=1e6 * drained.cpu_seconds / options.messages,
            server_us_per_message=drained.scripts.microseconds / options.messages,
            script_calls_per_message=drained.scripts.calls / options.messages,
            round_trips_per_message=drained.round_trips / options.messages,
            latency_p50_ms=percentile(latencies, 0.5),
            latency_p99_ms=percentile(latencies, 0.99),
        )


def _queue(options: BenchOptions, url: str) -> FairQueue[Any]:
    return FairQueue(
        url,
        options.name,
        limits=[Limit("tenant", default=options.limit)],
        visibility_timeout=_LEASES_OUTLAST_THE_RUN,
        reclaim_interval=0,
        reconcile_interval=0,
    )


async def _refuse_a_namespace_in_use(options: BenchOptions) -> None:
    """Looked at by a client that declares nothing: one in use keeps its settings."""
    if options.url == PRIVATE_SERVER:
        return
    queue: FairQueue[Any]
    async with FairQueue(options.url, options.name) as queue:
        stats = await queue.stats()
        present = stats.ready + stats.delayed + stats.in_flight + stats.dead
        workers = [worker.name async for worker in queue.workers()]
    if present or workers:
        raise FairQueueError(
            f"expected namespace {options.name!r} to be unused, "
            f"got {counted(present, 'message')} and {counted(len(workers), 'worker')}: choose another name"
        )


# --- enqueueing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Enqueued:
    one_by_one_per_s: float
    bulk_per_s: float


def _payload(number: int) -> dict[str, Any]:
    return {"n": 1_000_000 + number, "text": _FILLER}


def _tenant(options: BenchOptions, number: int) -> str:
    return f"tenant-{number % options.tenants}"


async def _fill(queue: FairQueue[Any], options: BenchOptions, say: Callable[[str], None]) -> _Enqueued:
    single = min(ONE_BY_ONE, options.messages // 2)
    say(f"enqueueing {single:,} messages one by one, then {options.messages - single:,} in bulk")
    watch = Stopwatch()
    for number in range(single):
        await queue.enqueue(_payload(number), tenant=_tenant(options, number))
    one_by_one = watch.seconds
    watch = Stopwatch()
    await queue.enqueue_many(
        NewMessage(_payload(number), tenant=_tenant(options, number))
        for number in range(single, options.messages)
    )
    return _Enqueued(single / one_by_one, (options.messages - single) / watch.seconds)


# --- draining ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Drained:
    seconds: float
    cpu_seconds: float
    scripts: ScriptTime
    round_trips: int


async def _drain(queue: FairQueue[Any], options: BenchOptions) -> _Drained:
    """From the first claim of a connected worker until the last outcome is stored and the worker has ended."""
    left = options.messages

    async def handle(_: Message[Any]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            worker.stop()

    worker = Worker(queue, handle, concurrency=options.concurrency)
    connection = engine_of(
        queue
    ).connection  # an idle worker's blocking wait has another one: that is not counted
    before, trips_before = await ScriptTime.read(engine_of(queue)), connection.round_trips
    watch = Stopwatch()
    try:
        async with asyncio.timeout(60 + options.messages / SLOWEST_DRAIN):
            await worker.run(signals=False)
    except TimeoutError:
        raise FairQueueError(f"the drain did not end: {left:,} of {options.messages:,} left") from None
    seconds, cpu_seconds = watch.seconds, watch.cpu_seconds
    round_trips = connection.round_trips - trips_before
    scripts = (await ScriptTime.read(engine_of(queue))).since(before)
    await _check_drained(queue, left)
    return _Drained(seconds, cpu_seconds, scripts, round_trips)


async def _check_drained(queue: FairQueue[Any], left: int) -> None:
    """A figure for work that was lost or done twice would be worth nothing."""
    stats = await queue.stats()
    present = stats.ready + stats.delayed + stats.in_flight + stats.dead
    if left or present:
        raise FairQueueError(
            f"expected every message to be handled once, got {present} left and {-left} too many"
        )


# --- latency -----------------------------------------------------------------------------------------------------


async def _latencies(queue: FairQueue[Any], options: BenchOptions) -> list[float]:
    """Milliseconds from just before each enqueue to the start of its handler, at a steady rate, worker idle."""
    latencies: list[float] = []
    wanted = WARM_UP + int(LATENCY_RATE * LATENCY_SECONDS)

    async def handle(message: Message[Any]) -> None:
        latencies.append(1000 * (time.perf_counter() - message.payload["sent"]))
        if len(latencies) == wanted:
            worker.stop()

    worker = Worker(queue, handle, concurrency=options.concurrency)
    running = asyncio.ensure_future(worker.run(signals=False))
    try:
        async with _queue(options, queue.url) as producer, asyncio.timeout(30 + LATENCY_SECONDS):
            await _produce(producer, options, wanted)
            await asyncio.shield(running)
    except TimeoutError:
        raise FairQueueError(f"expected {wanted} messages to start, got {len(latencies)}") from None
    finally:
        worker.stop()
        await running
    return latencies[WARM_UP:]


async def _produce(producer: FairQueue[Any], options: BenchOptions, count: int) -> None:
    """At instants fixed beforehand: a slow enqueue does not slow the rate down."""
    began = time.perf_counter()
    sending: list[asyncio.Task[Any]] = []
    for number in range(count):
        await asyncio.sleep(max(0, began + number / LATENCY_RATE - time.perf_counter()))
        payload = _payload(number) | {"sent": time.perf_counter()}
        sending.append(asyncio.ensure_future(producer.enqueue(payload, tenant=_tenant(options, number))))
    await asyncio.gather(*sending)
