"""The fields that users read, and the sync client's types beside the async one's: read by mypy in `make check`, never run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, assert_type

from fairqueue import (
    AuditReport,
    DeadLetter,
    FairQueue,
    Finding,
    Healed,
    JsonCodec,
    Lease,
    LeaseInfo,
    LimitState,
    Message,
    MessageInfo,
    QueueState,
    QueueStats,
    ReclaimReport,
    ReconcileReport,
    SyncFairQueue,
    SyncLease,
    TenantState,
    Totals,
    WorkerState,
)


def message(one: Message[bytes]) -> None:
    assert_type((one.id, one.tenant, one.queue, one.pool), tuple[str, str, str, str])
    assert_type(one.payload, bytes)
    assert_type(one.metadata, dict[str, Any])
    assert_type((one.attempt, one.crashes, one.priority), tuple[int, int, int])
    assert_type(one.cost, float)
    assert_type(one.enqueued_at, datetime)
    assert_type(one.groups, tuple[tuple[str, str], ...])
    one.attempt = 2  # type: ignore[misc]


def looked_at(info: MessageInfo[bytes], letter: DeadLetter[bytes]) -> None:
    assert_type(info.message, Message[bytes | None])
    assert_type(info.lease, LeaseInfo | None)
    assert_type(info.due_at, datetime | None)
    assert_type(info.position, int | None)
    assert_type(letter.message.payload, bytes | None)
    assert_type(letter.raw, bytes)
    assert_type((letter.reason, letter.error), tuple[str, str | None])
    assert_type((letter.attempts, letter.crashes, letter.redrives), tuple[int, int, int])
    assert_type(letter.dead_at, datetime)


def counted(
    stats: QueueStats, tenant: TenantState, limit: LimitState, queue: QueueState, worker: WorkerState
) -> None:
    assert_type(
        (stats.ready, stats.delayed, stats.in_flight, stats.dead, stats.blocked),
        tuple[int, int, int, int, int],
    )
    assert_type(stats.oldest_ready_age, timedelta | None)
    assert_type(stats.totals, Totals)
    assert_type(stats.totals["completed"], int)
    assert_type(tenant.tenant, str)
    assert_type((limit.limit, limit.held, limit.waiting), tuple[int | None, int | None, int])
    assert_type(limit.guaranteed, int | None)
    assert_type(limit.free, int | None)
    assert_type(limit.holders, list[tuple[str, str]])
    assert_type((queue.queue, queue.ready), tuple[str, int])
    assert_type((worker.name, worker.pid, worker.seen_at), tuple[str, int, datetime])


def reported(reclaimed: ReclaimReport, reconciled: ReconcileReport, audited: AuditReport) -> None:
    assert_type(reclaimed.reclaimed, list[tuple[str, str]])
    assert_type(reclaimed.dead, list[tuple[str, str]])
    assert_type(reconciled.checked, int)
    assert_type(reconciled.freed, list[Healed])
    assert_type(reconciled.restored, list[Healed])
    assert_type(reconciled.rebuilt, list[tuple[str, str]])
    assert_type(audited.findings, list[Finding])
    assert_type(audited.ok, bool)


async def lists(queue: FairQueue[bytes]) -> None:
    async for state in queue.queues("acme"):
        assert_type(state, QueueState)
    async for worker in queue.workers():
        assert_type(worker, WorkerState)
    async for tenant in queue.tenants.list():
        assert_type(tenant, TenantState)
    async for name in queue.dead_letters.tenants():
        assert_type(name, str)
    assert_type(await queue.dead_letters.count("acme"), int)
    assert_type(await queue.dead_letters.purge("acme"), int)
    assert_type(await queue.stats("acme"), QueueStats)


def without_asyncio(queue: SyncFairQueue[bytes]) -> None:
    """What the async client answers, without await."""
    (lease,) = queue.claim()
    assert_type(lease, SyncLease[bytes])
    assert_type((lease.token, lease.deadline), tuple[str, datetime])
    assert_type(lease.extend(), datetime)
    assert_type(queue.get("acme", "7"), MessageInfo[bytes] | None)
    assert_type(queue.messages("acme"), tuple[list[MessageInfo[bytes]], str | None])
    assert_type(queue.queues("acme"), Iterator[QueueState])
    assert_type(queue.workers(), Iterator[WorkerState])
    assert_type(queue.limits.get("tenant", "acme"), LimitState)
    assert_type(queue.tenants.get("acme"), TenantState)
    assert_type(queue.tenants.list(), Iterator[TenantState])
    assert_type(queue.dead_letters.tenants(), Iterator[str])
    assert_type(queue.stats(), QueueStats)
    assert_type(queue.reclaim(), ReclaimReport)
    assert_type(queue.reconcile(), ReconcileReport)
    with lease.keep_alive() as kept:
        assert_type(kept, SyncLease[bytes])


def made(lease: Lease[str]) -> None:
    assert_type(lease.lost, threading.Event)
    assert_type(FairQueue[str]("redis://localhost", codec=JsonCodec()), FairQueue[str])
