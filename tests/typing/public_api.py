"""What a type checker tells users of the public interface: read by mypy in `make check`, never run.

A change of a public type shows here as an `assert_type` that no longer holds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, assert_type

from fairqueue import (
    AuditReport,
    DeadLetter,
    DeadLetterNow,
    Enqueued,
    FairQueue,
    Lease,
    Limit,
    LimitState,
    Message,
    MessageInfo,
    MessageState,
    NewMessage,
    Outcome,
    QueueStats,
    ReclaimReport,
    ReconcileReport,
    Release,
    Retry,
    RetryPolicy,
    SyncFairQueue,
    SyncLease,
    TenantState,
    Worker,
    current_lease,
)


class Invoice(TypedDict):
    """A payload with a type of its own."""

    number: int


def connecting() -> None:
    limits = [Limit("tenant", default=10), Limit("org", key="org"), Limit("model", key=lambda m: m.queue)]
    queue: FairQueue[Invoice] = FairQueue(
        "redis://localhost", "shop", limits, visibility_timeout=timedelta(minutes=1)
    )
    assert_type(queue.url, str)
    assert_type(queue.name, str)
    assert_type(RetryPolicy.fixed(5), RetryPolicy)


async def producing(queue: FairQueue[Invoice]) -> None:
    sent = await queue.enqueue({"number": 7}, tenant="acme", delay=timedelta(hours=1), metadata={"org": "x"})
    assert_type(sent, Enqueued)
    assert_type(sent.created, bool)
    assert_type(sent.state, MessageState)
    later = NewMessage(Invoice(number=8), tenant="acme", at=datetime(2030, 1, 1, tzinfo=UTC))
    assert_type(later, NewMessage[Invoice])
    assert_type(await queue.enqueue_many([later]), list[Enqueued])
    await queue.enqueue({"numbr": 7}, tenant="acme")  # type: ignore[typeddict-item]
    await queue.enqueue({"number": 7})  # type: ignore[call-arg]


async def consuming(queue: FairQueue[Invoice]) -> None:
    leases = await queue.claim(10, wait=1, pools=("default", "slow"))
    assert_type(leases, list[Lease[Invoice]])
    lease = leases[0]
    assert_type(lease.message, Message[Invoice])
    assert_type(lease.message.payload["number"], int)
    assert_type(lease.token, str)
    assert_type(lease.deadline, datetime)
    assert_type(lease.lost, threading.Event)
    assert_type(await lease.extend(), datetime)
    assert_type(await lease.complete(), Outcome)
    async with lease.keep_alive():
        await lease.fail(ValueError("no such invoice"))
    assert_type(await queue.release_many(leases, delay=5), list[Outcome])


async def handle(message: Message[Invoice]) -> None:
    if message.attempt > 3:
        raise DeadLetterNow("too often")
    if message.payload["number"] < 0:
        raise Release(delay=5)
    assert_type(current_lease().message.tenant, str)
    raise Retry(delay=timedelta(seconds=1))


def handle_in_a_thread(message: Message[Invoice]) -> None:
    assert_type(message.payload, Invoice)


def working(queue: FairQueue[Invoice]) -> None:
    worker = Worker(queue, handle, concurrency=10, grace=timedelta(seconds=5))
    assert_type(worker, Worker[Invoice])
    Worker(queue, handle_in_a_thread, handler_timeout=60)


async def controlling(queue: FairQueue[Invoice]) -> None:
    await queue.limits.set("tenant", "acme", None)
    assert_type(await queue.limits.get("tenant", "acme"), LimitState)
    async for state in queue.limits.list("tenant"):
        assert_type(state, LimitState)
    assert_type(await queue.tenants.get("acme"), TenantState)


async def looking(queue: FairQueue[Invoice]) -> None:
    assert_type(await queue.stats(), QueueStats)
    assert_type(await queue.get("acme", "7"), MessageInfo[Invoice] | None)
    assert_type(await queue.messages("acme"), tuple[list[MessageInfo[Invoice]], str | None])
    letters, cursor = await queue.dead_letters.list("acme")
    assert_type(letters, list[DeadLetter[Any]])
    assert_type(cursor, str | None)
    assert_type(await queue.dead_letters.redrive("acme", "7", "8"), int)


async def maintaining(queue: FairQueue[Invoice]) -> None:
    assert_type(await queue.reclaim(), ReclaimReport)
    assert_type(await queue.reconcile(), ReconcileReport)
    assert_type(await queue.audit(fix=True), AuditReport)


def without_asyncio(queue: SyncFairQueue[Invoice]) -> None:
    assert_type(queue.enqueue({"number": 7}, tenant="acme"), Enqueued)
    leases = queue.claim(wait=1)
    assert_type(leases, list[SyncLease[Invoice]])
    assert_type(leases[0].message, Message[Invoice])
    assert_type(leases[0].complete(), Outcome)
    assert_type(queue.limits.list("tenant"), Iterator[LimitState])
    assert_type(queue.audit(), AuditReport)
