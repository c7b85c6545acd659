"""A worker claims what it can start, settles on the way, costs next to nothing when idle, and wakes at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, Message, NewMessage, RetryPolicy, consuming
from fairqueue.testing import faults
from tests.conftest import MakeQueue
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.worker.running import all_done, running


async def nothing(message: Message[Any]) -> None:
    """Completes."""


# --- no more than it can start -------------------------------------------------------------------------------


async def test_two_workers_of_one_handler_never_hold_what_they_cannot_start(make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None)
    other: FairQueue[Any] = await make_queue(clock=None)
    attempts: list[int] = []
    most = 0

    async def handle(message: Message[Any]) -> None:
        nonlocal most
        attempts.append(message.attempt)
        most = max(most, (await queue.stats()).in_flight)
        await asyncio.sleep(0.01)

    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 3}") for n in range(50)])
    async with running(queue, handle, concurrency=1), running(other, handle, concurrency=1):
        await all_done(queue)
    assert attempts == [1] * 50
    assert most <= 2


async def test_it_fills_its_concurrency_and_never_more(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    now = most = 0

    async def handle(message: Message[Any]) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001 * (message.payload % 5))
        now -= 1

    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 3}") for n in range(300)])
    async with running(queue, handle, concurrency=8):
        await all_done(queue)
    assert most == 8


async def test_settles_travel_with_the_next_claim(make_queue: MakeQueue, proxy: Proxy) -> None:
    """One after another: one round trip a message, not two."""
    queue = await make_queue(url=proxy.url)
    other = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant="a") for n in range(60)])
    async with running(queue, nothing, concurrency=1):
        before = proxy.round_trips
        await all_done(other)
        spent = proxy.round_trips - before
    assert spent <= 60 + 10
    assert proxy.count("settle") <= 60


async def test_many_at_once_are_settled_in_few_round_trips(make_queue: MakeQueue, proxy: Proxy) -> None:
    queue = await make_queue(url=proxy.url)
    other = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 10}") for n in range(1000)])
    async with running(queue, nothing, concurrency=100):
        before = proxy.round_trips
        await all_done(other)
        spent = proxy.round_trips - before
    assert spent < 60
    assert (await queue.stats()).totals.completed == 1000


async def test_pools_are_tried_in_the_order_given(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    seen: list[str] = []

    async def handle(message: Message[Any]) -> None:
        seen.append(message.pool)

    for pool in ("third", "second", "first", "other"):
        await queue.enqueue_many([NewMessage(n, tenant="a", pool=pool) for n in range(3)])
    async with running(queue, handle, concurrency=1, pools=["first", "second", "third"]):
        await eventually(lambda: len(seen) == 9, "all of its pools to be served")
    assert seen == ["first"] * 3 + ["second"] * 3 + ["third"] * 3
    assert (await queue.stats()).ready == 3


# --- cheap ---------------------------------------------------------------------------------------------------


async def commands_in(proxy: Proxy, seconds: float) -> tuple[Counter[str], float]:
    """What a worker sends in a while; a test of what happens when nothing does has to wait for it.

    Also how long that was: on a busy machine it is longer.
    """
    before, began = len(proxy.requests), time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    return Counter(request.name for request in proxy.requests[before:]), took


async def test_idle_it_sends_at_most_two_commands_a_second(make_queue: MakeQueue, proxy: Proxy) -> None:
    """Reconcile, once a minute, adds about ten more."""
    queue = await make_queue(url=proxy.url, clock=None, reconcile_interval=0)
    await queue.enqueue(1, tenant="a", delay=3600)
    async with running(queue, nothing):
        await eventually(lambda: proxy.count("BLPOP") > 0, "the worker to be idle")
        sent, seconds = await commands_in(proxy, 5)
    assert sum(sent.values()) <= 2 * seconds + 2, sent


async def test_idle_it_leaves_the_server_alone(make_queue: MakeQueue, proxy: Proxy) -> None:
    """Everything counted, also what scripts call."""
    queue = await make_queue(url=proxy.url, clock=None, reconcile_interval=0)
    other = await make_queue(clock=None)

    async def calls() -> int:
        stats = await other._engine.command("INFO", "commandstats")
        return sum(of["calls"] for name, of in stats.items() if name != "cmdstat_info")

    async with running(queue, nothing):
        await eventually(lambda: proxy.count("BLPOP") > 0, "the worker to be idle")
        before = await calls()
        _, seconds = await commands_in(proxy, 2)
        assert await calls() - before < 25 * seconds


async def test_with_everybody_at_the_limit_it_is_as_idle(
    make_queue: MakeQueue, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=1)])
    other = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 100}") for n in range(300)])
    held = await other.claim(100)
    assert len(held) == 100
    started: list[str] = []

    async def handle(message: Message[Any]) -> None:
        started.append(message.tenant)

    async with running(queue, handle):
        await eventually(lambda: proxy.count("BLPOP") > 0, "the worker to be idle")
        sent, seconds = await commands_in(proxy, 2)
        assert sum(sent.values()) <= 2 * seconds + 3, sent
        assert started == []
    monkeypatch.setattr(consuming, "IDLE_LOOK", 600.0)
    async with running(queue, handle):
        await eventually(
            lambda: any(bell._waiters for bell in queue._engine._bells.values()), "the next one to be idle"
        )
        await held[0].complete()
        await eventually(lambda: started, "the tenant's next message to start")
        assert started[0] == held[0].message.tenant
        await other.release_many(held[1:])


async def test_full_with_a_backlog_it_does_not_spin(make_queue: MakeQueue, proxy: Proxy) -> None:
    """It rings for others when it is full; with nobody else there that ring must not come back to it for ever."""
    queue = await make_queue(url=proxy.url)
    other = await make_queue()
    go = asyncio.Event()
    started: list[str] = []

    async def handle(message: Message[Any]) -> None:
        started.append(message.id)
        await go.wait()

    async with running(queue, handle, concurrency=2):
        await eventually(lambda: proxy.count("BLPOP") > 0, "the worker to wait")
        await other.enqueue_many([NewMessage(n, tenant="a") for n in range(10)])
        await eventually(lambda: len(started) == 2, "the worker to be full")
        sent, seconds = await commands_in(proxy, 2)
        assert sum(sent.values()) <= 6 * seconds, sent
        go.set()
        await all_done(other)


async def test_failing_handlers_do_not_make_it_spin(make_queue: MakeQueue, proxy: Proxy) -> None:
    queue = await make_queue(url=proxy.url, clock=None, retry=RetryPolicy.fixed(0.4, max_attempts=100))
    attempts: list[int] = []

    async def handle(message: Message[Any]) -> None:
        attempts.append(message.attempt)
        raise ValueError("no")

    await queue.enqueue(1, tenant="a")
    async with running(queue, handle):
        await eventually(lambda: len(attempts) >= 2, "the first retry")
        before = len(attempts)
        sent, seconds = await commands_in(proxy, 2)
        retried = len(attempts) - before
    assert sum(sent.values()) < 20 * seconds, sent
    assert retried <= seconds / 0.4 + 1


# --- at once -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_idle_look")
async def test_a_message_is_started_by_the_bell_alone(make_queue: MakeQueue) -> None:
    """At once: the worker waits with nothing due and no look of its own before ten minutes are over."""
    queue = await make_queue(clock=None)
    other = await make_queue(clock=None)
    started: list[str] = []

    async def handle(message: Message[Any]) -> None:
        started.append(message.id)

    def waits() -> bool:
        return any(bell._waiters for bell in queue._engine._bells.values())

    async with running(queue, handle):
        for n in range(30):
            await eventually(waits, "the worker to wait for the bell")
            assert queue._consumer.idle_seconds() == 600, "nothing else ends its wait"
            await other.enqueue(n, tenant=f"t{n % 3}", id=f"m{n}")
            await eventually(lambda n=n: len(started) == n + 1, "it to start")  # type: ignore[misc]
    assert started == [f"m{n}" for n in range(30)]


@pytest.mark.usefixtures("no_idle_look")
async def test_due_times_are_met_by_the_workers_own_timer(make_queue: MakeQueue) -> None:
    """Never before the instant by the server's clock, and at it, though nobody rings."""
    queue = await make_queue(clock=None)
    other = await make_queue(clock=None)
    started: dict[int, datetime] = {}

    async def handle(message: Message[Any]) -> None:
        seconds, micros = await other._engine.command("TIME")
        started[message.payload] = datetime.fromtimestamp(seconds + micros / 1e6, UTC)

    async with running(queue, handle):
        seconds, micros = await other._engine.command("TIME")
        now = datetime.fromtimestamp(seconds + micros / 1e6, UTC)
        for milliseconds in (350, 750, 1300):
            await other.enqueue(milliseconds, tenant="a", delay=milliseconds / 1000)
        await eventually(lambda: len(started) == 3, "all to become due")
    for milliseconds, at in started.items():
        late = (at - now).total_seconds() - milliseconds / 1000
        assert late >= -0.002, (milliseconds, late)


@pytest.mark.usefixtures("no_idle_look")
async def test_a_due_time_sooner_than_all_others_sets_the_timer_anew(make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None)
    other = await make_queue(clock=None)
    started: list[float] = []

    async def handle(message: Message[Any]) -> None:
        started.append(time.monotonic())

    async with running(queue, handle):
        await other.enqueue(1, tenant="a", delay=3600)
        began = time.monotonic()
        await other.enqueue(2, tenant="b", delay=0.3)
        await eventually(lambda: started, "the sooner one to start")
    assert started[0] - began >= 0.29


@pytest.fixture
async def blocked(make_queue: MakeQueue, no_idle_look: None) -> FairQueue[Any]:
    """A queue whose only tenant has no room."""
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=0)])
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(5)])
    return queue


async def wakes(queue: FairQueue[Any], change: Any, count: int) -> None:
    """A worker that idles because of a limit, and looks for itself no more, starts so many messages after the change."""
    started: list[str] = []
    go = asyncio.Event()

    async def handle(message: Message[Any]) -> None:
        started.append(message.id)
        await go.wait()

    async with running(queue, handle):

        async def looked() -> bool:
            return (await queue.stats()).blocked == 5

        await eventually(looked, "the worker to have found it blocked")
        await change
        await eventually(lambda: len(started) >= count, f"{count} to start")
        assert len(started) == count
        go.set()
        await queue.limits.set("tenant", "a", None)
        await all_done(queue)


async def test_a_raised_limit_wakes_it_at_once(blocked: FairQueue[Any], make_queue: MakeQueue) -> None:
    await wakes(blocked, (await make_queue(clock=None)).limits.set("tenant", "a", 3), 3)


async def test_a_limit_that_is_lifted_wakes_it_at_once(
    blocked: FairQueue[Any], make_queue: MakeQueue
) -> None:
    await wakes(blocked, (await make_queue(clock=None)).limits.set("tenant", "a", None), 5)


async def test_a_raised_default_wakes_it_at_once(blocked: FairQueue[Any], make_queue: MakeQueue) -> None:
    await wakes(blocked, make_queue(clock=None, limits=[Limit("tenant", default=2)]), 2)


@pytest.mark.usefixtures("no_idle_look")
async def test_a_healed_leak_wakes_it_at_once(make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=1)])
    await faults.leak_slot(queue, "tenant", "a", "ghost")
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(5)])
    await wakes(queue, (await make_queue(clock=None)).reconcile(), 1)


async def test_a_ring_that_a_frozen_process_took_costs_at_most_a_second(make_queue: MakeQueue) -> None:
    """The message lies there and nobody was told."""
    queue = await make_queue(clock=None)
    other = await make_queue(clock=None)
    started: list[str] = []

    async def handle(message: Message[Any]) -> None:
        started.append(message.id)

    async def popping_waits() -> bool:
        return (await other._engine.command("INFO", "clients"))["blocked_clients"] > 0

    bell = f"{other._engine.calls.root}bell:default"
    frozen = await other._engine.connection.dedicated(90)
    popping = asyncio.ensure_future(
        frozen.blpop([bell], timeout=60)
    )  # before the worker, so it gets the token
    await eventually(popping_waits, "it to wait")
    async with running(queue, handle):
        await eventually(lambda: queue._engine._bells, "the worker to be idle")
        await other.enqueue(1, tenant="a")
        assert await popping is not None
        await eventually(lambda: started, "it to start all the same")
    await frozen.aclose()
    assert consuming.IDLE_LOOK == 1.0, "that look is what found it"
