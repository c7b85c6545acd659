"""Guarantee 9: attempt = deliveries less releases; crashes = deliveries that ended by expiry, included in attempt."""

from __future__ import annotations

import asyncio
from typing import Any

from fairqueue import FairQueue, Message, RetryPolicy, Worker
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, state, told


async def one(make_queue: MakeQueue, **options: Any) -> Queue:
    queue: FairQueue[Any] = await make_queue(**options)
    await queue.enqueue(1, tenant="a", id="m")
    return queue


@guard(
    "guarantee 9",
    "every delivery counts as an attempt",
    without("the count", "includes/claim_take.lua", "was + 1, int(now)", "was, int(now)"),
)
async def test_deliveries_are_counted(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await one(make_queue, retry=RetryPolicy.fixed(1))
    attempts = []
    for _ in range(3):
        (lease,) = await queue.claim()
        attempts.append(lease.message.attempt)
        await lease.fail("oops")
        clock.advance(1)
    assert attempts == [1, 2, 3]


@guard(
    "guarantee 9",
    "a release does not count",
    without("taking the attempt back", "settle.lua", "'l', math.max(0, h.attempt - 1)", "'l', h.attempt"),
)
async def test_releases_are_not_counted(make_queue: MakeQueue) -> None:
    queue = await one(make_queue)
    for _ in range(3):
        (lease,) = await queue.claim()
        assert lease.message.attempt == 1
        await lease.release()


@guard(
    "guarantee 9",
    "a delivery that ended by expiry counts as a crash, and as an attempt",
    without("the count", "reclaim.lua", "'c', h.crashes + 1", "'c', h.crashes"),
)
async def test_crashes_are_counted(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await one(make_queue)
    await queue.claim()
    clock.advance(31)
    await queue.reclaim()
    (lease,) = await queue.claim()
    assert (lease.message.attempt, lease.message.crashes) == (2, 1)


@guard(
    "guarantee 9",
    "a failure does not count as a crash, a crash is not lost by a failure",
    without(
        "keeping the crashes",
        "includes/header.lua",
        "h.state, h.token, h.via, h.attempt, h.crashes,",
        "h.state, h.token, h.via, h.attempt, h.via == 'f' and 0 or h.crashes,",
    ),
)
async def test_crashes_survive_failures(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await one(make_queue, retry=RetryPolicy.fixed(1))
    await queue.claim()
    clock.advance(31)
    await queue.reclaim()
    (lease,) = await queue.claim()
    await lease.fail("oops")
    clock.advance(1)
    (lease,) = await queue.claim()
    assert (lease.message.attempt, lease.message.crashes) == (3, 1)


@guard(
    "guarantee 9",
    "a message is dead at the failure of its last attempt, not before and not after",
    without("the last attempt", "settle.lua", "if h.attempt >= budget then", "if h.attempt > budget then"),
)
async def test_dead_at_the_last_attempt(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await one(make_queue, retry=RetryPolicy.fixed(1, max_attempts=3))
    outcomes = []
    for _ in range(3):
        (lease,) = await queue.claim()
        outcomes.append(await told(lease.fail("oops")))
        clock.advance(1)
    assert outcomes == ["retried", "retried", "dead"]


@guard(
    "guarantee 9",
    "a message is dead at its last crash, not before and not after",
    without("the last crash", "reclaim.lua", "if h.crashes >= budget then", "if h.crashes > budget then"),
)
async def test_dead_at_the_last_crash(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await one(make_queue, retry=RetryPolicy(max_crashes=2))
    states = []
    for _ in range(2):
        await queue.claim()
        clock.advance(31)
        await queue.reclaim()
        states.append(await state(queue, "a", "m"))
    assert states == ["ready", "dead"]


@guard(
    "guarantee 9",
    "a message's own number of attempts goes before the policy's",
    without(
        "its own number",
        "includes/claim_take.lua",
        "h.max_attempts ~= '' and h.max_attempts or settings.max_attempts",
        "settings.max_attempts",
    ),
)
async def test_its_own_number_of_attempts(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(1, max_attempts=5))
    await queue.enqueue(1, tenant="a", id="m", max_attempts=1)
    (lease,) = await queue.claim()
    assert await told(lease.fail("oops")) == "dead"


@guard(
    "guarantee 9",
    "after a redrive attempt and crashes start again",
    without(
        "starting again",
        "redrive.lua",
        "h.attempt, h.crashes, h.redrives, h.via, h.seq = 0, 0,",
        "h.attempt, h.crashes, h.redrives, h.via, h.seq = h.attempt, h.crashes,",
    ),
)
async def test_a_redrive_starts_again(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await one(make_queue, retry=RetryPolicy(max_crashes=1))
    await queue.claim()
    clock.advance(31)
    await queue.reclaim()
    await queue.dead_letters.redrive("a", "m")
    (lease,) = await queue.claim()
    assert (lease.message.attempt, lease.message.crashes) == (1, 0)


@guard(
    "guarantee 9",
    "a clean shutdown counts for nothing",
    without(
        "releasing what was cancelled",
        "fairqueue.deliveries:Deliveries._ended",
        'Settlement("release")',
        'failure("the worker stopped")',
    ),
)
async def test_a_clean_shutdown_counts_for_nothing(make_queue: MakeQueue) -> None:
    queue = await one(make_queue, clock=None)
    started = asyncio.Event()

    async def endless(message: Message[Any]) -> None:
        started.set()
        await asyncio.Event().wait()

    worker = Worker(queue, endless, grace=0)
    running = asyncio.ensure_future(worker.run(signals=False))
    await started.wait()
    worker.stop()
    await running
    info = await queue.get("a", "m")
    assert info is not None
    assert (info.state.value, info.message.attempt) == ("ready", 0)
