"""``SyncFairQueue``: the same queue without ``await``, for Django, Flask and scripts.

Every method runs the asyncio client's in a background event loop, so there is one implementation of everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, Self

from fairqueue.clock import Clock
from fairqueue.config import Codec
from fairqueue.explanation import Explanation
from fairqueue.fairness_report import FairnessReport
from fairqueue.generics import P
from fairqueue.limits import Limit
from fairqueue.maintenance.auditor import AuditReport
from fairqueue.maintenance.reclaimer import ReclaimReport
from fairqueue.maintenance.reconciler import ReconcileReport
from fairqueue.message import Enqueued, MessageInfo
from fairqueue.new_message import NewMessage
from fairqueue.outcomes import Outcome
from fairqueue.portal import Portal
from fairqueue.producing import listed
from fairqueue.queue import FairQueue
from fairqueue.retry import RetryPolicy
from fairqueue.states import Cancelled, Pause, QueueState, QueueStats, WorkerState
from fairqueue.sync_controls import SyncDeadLetters, SyncLimitsControl, SyncTenants
from fairqueue.sync_lease import SyncLease, bare

__all__ = ["SyncFairQueue"]


class SyncFairQueue(Generic[P]):
    """``FairQueue`` without ``await``: the same arguments, methods, guarantees and errors. Safe from any thread.

    Connects anew after a fork, so it may be made before a web server forks its workers.

    Example:
        >>> with SyncFairQueue() as queue:
        ...     queue.enqueue({"invoice": 7}, tenant="acme")
    """

    def __init__(
        self,
        url: str | None = None,
        name: str = "default",
        limits: Iterable[Limit] | None = None,
        retry: RetryPolicy | None = None,
        visibility_timeout: timedelta | float = 30,
        reclaim_interval: timedelta | float = 5,
        reconcile_interval: timedelta | float = 60,
        scheduler: str | None = None,
        shards: int | None = None,
        codec: Codec | None = None,
        max_payload_bytes: int = 1_048_576,
        dead_letters: bool | None = None,
        durability: str = "server",
        clock: Clock | None = None,
        quantum: float | None = None,
    ) -> None:
        self._queue: FairQueue[P] = FairQueue(
            url,
            name,
            limits,
            retry,
            visibility_timeout,
            reclaim_interval,
            reconcile_interval,
            scheduler,
            shards,
            codec,
            max_payload_bytes,
            dead_letters,
            durability,
            clock,
            quantum,
        )
        self._portal = Portal()
        self.limits = SyncLimitsControl(self._queue.limits, self._portal)
        self.tenants = SyncTenants(self._queue.tenants, self._portal)
        self.dead_letters = SyncDeadLetters(self._queue.dead_letters, self._portal)

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:  # nobody calls __exit__ then
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> None:
        """See ``FairQueue.connect``."""
        self._portal.open()
        self._portal.call(self._queue.connect)

    def close(self) -> None:
        """See ``FairQueue.close``. Calls that other threads wait in raise ``QueueClosedError``."""
        self._portal.close(self._queue.close)

    @property
    def url(self) -> str:
        """See ``FairQueue.url``."""
        return self._queue.url

    @property
    def name(self) -> str:
        """The namespace."""
        return self._queue.name

    def enqueue(
        self,
        payload: P,
        *,
        tenant: str,
        queue: str = "default",
        id: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        max_attempts: int | None = None,
        pool: str = "default",
        priority: int = 0,
        cost: float = 1,
        expires: timedelta | float | datetime | None = None,
        on_expiry: str = "dead",
        dedupe_for: timedelta | float | None = None,
    ) -> Enqueued:
        """See ``FairQueue.enqueue``."""
        return self._portal.call(
            lambda: self._queue.enqueue(
                payload,
                tenant=tenant,
                queue=queue,
                id=id,
                delay=delay,
                at=at,
                metadata=metadata,
                max_attempts=max_attempts,
                pool=pool,
                priority=priority,
                cost=cost,
                expires=expires,
                on_expiry=on_expiry,
                dedupe_for=dedupe_for,
            )
        )

    def enqueue_many(self, messages: Iterable[NewMessage[P]]) -> list[Enqueued]:
        """See ``FairQueue.enqueue_many``."""
        found = listed(messages)  # a generator of the caller's runs in the caller's thread
        return self._portal.call(lambda: self._queue.enqueue_many(found))

    def claim(
        self,
        n: int = 1,
        wait: timedelta | float = 0,
        consumer: str | None = None,
        pools: Sequence[str] = ("default",),
        visibility_timeout: timedelta | float | None = None,
    ) -> list[SyncLease[P]]:
        """See ``FairQueue.claim``."""

        async def claimed() -> list[SyncLease[P]]:
            leases = await self._queue.claim(n, wait, consumer, pools, visibility_timeout)
            return [SyncLease(lease, self._portal) for lease in leases]

        return self._portal.call(claimed, lambda leases: self._queue.release_many(bare(leases)))

    def complete_many(self, leases: Sequence[SyncLease[P]]) -> list[Outcome]:
        """See ``FairQueue.complete_many``."""
        return self._portal.call(lambda: self._queue.complete_many(bare(leases)))

    def fail_many(
        self, leases: Sequence[SyncLease[P]], error: BaseException | str | None = None
    ) -> list[Outcome]:
        """See ``FairQueue.fail_many``."""
        return self._portal.call(lambda: self._queue.fail_many(bare(leases), error))

    def release_many(self, leases: Sequence[SyncLease[P]], delay: timedelta | float = 0) -> list[Outcome]:
        """See ``FairQueue.release_many``."""
        return self._portal.call(lambda: self._queue.release_many(bare(leases), delay))

    def extend_many(self, leases: Sequence[SyncLease[P]]) -> list[Outcome]:
        """See ``FairQueue.extend_many``."""
        return self._portal.call(lambda: self._queue.extend_many(bare(leases)))

    def pause(
        self,
        tenant: str | None = None,
        queue: str | None = None,
        pool: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """See ``FairQueue.pause``."""
        return self._portal.call(lambda: self._queue.pause(tenant, queue, pool, by, reason))

    def resume(self, tenant: str | None = None, queue: str | None = None, pool: str | None = None) -> bool:
        """See ``FairQueue.resume``."""
        return self._portal.call(lambda: self._queue.resume(tenant, queue, pool))

    def pauses(self) -> Iterator[Pause]:
        """See ``FairQueue.pauses``."""
        return self._portal.iterate(self._queue.pauses())

    def cancel(self, tenant: str, id: str) -> Cancelled:
        """See ``FairQueue.cancel``."""
        return self._portal.call(lambda: self._queue.cancel(tenant, id))

    def purge(self, tenant: str, queue: str | None = None) -> int:
        """See ``FairQueue.purge``."""
        return self._portal.call(lambda: self._queue.purge(tenant, queue))

    def stats(self, tenant: str | None = None) -> QueueStats:
        """See ``FairQueue.stats``."""
        return self._portal.call(lambda: self._queue.stats(tenant))

    def get(self, tenant: str, id: str) -> MessageInfo[P] | None:
        """See ``FairQueue.get``."""
        return self._portal.call(lambda: self._queue.get(tenant, id))

    def fairness(self, window: timedelta | float = 900) -> FairnessReport:
        """See ``FairQueue.fairness``."""
        return self._portal.call(lambda: self._queue.fairness(window))

    def explain(self, tenant: str, id: str) -> Explanation:
        """See ``FairQueue.explain``."""
        return self._portal.call(lambda: self._queue.explain(tenant, id))

    def messages(
        self,
        tenant: str,
        queue: str | None = None,
        state: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[MessageInfo[P]], str | None]:
        """See ``FairQueue.messages``."""
        return self._portal.call(lambda: self._queue.messages(tenant, queue, state, limit, cursor))

    def queues(self, tenant: str) -> Iterator[QueueState]:
        """See ``FairQueue.queues``."""
        return self._portal.iterate(self._queue.queues(tenant))

    def workers(self) -> Iterator[WorkerState]:
        """See ``FairQueue.workers``."""
        return self._portal.iterate(self._queue.workers())

    def reclaim(self) -> ReclaimReport:
        """See ``FairQueue.reclaim``."""
        return self._portal.call(self._queue.reclaim)

    def reconcile(self) -> ReconcileReport:
        """See ``FairQueue.reconcile``."""
        return self._portal.call(self._queue.reconcile)

    def audit(self, fix: bool = False) -> AuditReport:
        """See ``FairQueue.audit``."""
        return self._portal.call(lambda: self._queue.audit(fix))
