"""With a ``ManualClock`` everything that has to do with time follows it, on a real server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from fairqueue import FairQueue, NewMessage, RetryPolicy, SyncFairQueue
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.support.waiting import eventually


async def test_a_delay_of_a_year_takes_no_time(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", delay=timedelta(days=365))
    clock.advance(timedelta(days=365) - timedelta(milliseconds=1))
    assert await queue.claim() == []
    clock.advance(0.001)
    assert [message.payload for message in await drain(queue)] == [1]


async def test_an_instant_is_an_instant_of_the_clock(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", at=clock.now + timedelta(hours=1))
    await queue.enqueue(2, tenant="a", at=datetime(2000, 1, 1, tzinfo=UTC))
    assert [message.payload for message in await drain(queue)] == [2]
    clock.advance(3600)
    assert [message.payload for message in await drain(queue)] == [1]


async def test_leases_retries_and_deadlines_follow_it(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(60, max_attempts=3))
    sent_at = clock.now
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    assert lease.deadline == clock.now + timedelta(seconds=30)
    assert lease.message.enqueued_at == sent_at
    clock.advance(29)
    assert await lease.extend() == clock.now + timedelta(seconds=30)
    await lease.fail("no")
    clock.advance(59)
    assert await queue.claim() == []
    clock.advance(1)
    (lease,) = await queue.claim()
    clock.advance(30)
    assert (await queue.reclaim()).reclaimed == [("a", "m")]
    assert (await queue.stats()).oldest_ready_age == clock.now - sent_at
    assert [message.attempt for message in await drain(queue)] == [3]


async def test_a_claim_that_waits_sees_the_clock_move(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", delay=60)
    waiting = asyncio.ensure_future(queue.claim(1, wait=20))
    await eventually(lambda: queue._consumer._claimer.next_due_ms is not None, "the claim to have looked")
    clock.advance(60)
    (lease,) = await waiting
    assert await lease.complete() == "done"


async def test_all_clients_that_share_it_see_one_time(
    make_queue: MakeQueue, server: str, namespace: str, clock: ManualClock
) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant="a", delay=n * 10) for n in range(3)])
    clock.advance(10)

    def from_a_thread() -> list[Any]:
        with SyncFairQueue(server, namespace, clock=clock) as sync:
            leases = sync.claim(5)
            sync.complete_many(leases)
            return [lease.message.payload for lease in leases]

    assert await asyncio.to_thread(from_a_thread) == [0, 1]
    other: FairQueue[Any] = await make_queue()
    clock.advance(10)
    assert [message.payload for message in await drain(other)] == [2]
