"""Fair multi-tenant queues for Python on Valkey and Redis.

Example:
    >>> from fairqueue import FairQueue, Limit
    >>> async with FairQueue(limits=[Limit("tenant", default=10)]) as queue:
    ...     await queue.enqueue({"invoice": 7}, tenant="acme")
"""

from __future__ import annotations

from fairqueue.codec import JsonCodec
from fairqueue.config import Codec
from fairqueue.errors import (
    BacklogFullError,
    ConfigurationError,
    DamagedKeyError,
    FairQueueError,
    InvalidMessageError,
    LeaseLostError,
    MessageNotFoundError,
    PayloadTooLargeError,
    QueueClosedError,
    QueueFullError,
    QueueUnavailableError,
    SchemaMismatchError,
    SettingsChangedError,
)
from fairqueue.explanation import Explanation, Holder, Stop
from fairqueue.fairness_report import FairnessReport, TenantFairness
from fairqueue.lease import Lease
from fairqueue.limits import Limit
from fairqueue.maintenance.auditor import AuditReport, Finding
from fairqueue.maintenance.reclaimer import ReclaimReport
from fairqueue.maintenance.reconciler import Healed, ReconcileReport
from fairqueue.message import DeadLetter, Enqueued, LeaseInfo, Message, MessageInfo, MessageState
from fairqueue.new_message import NewMessage
from fairqueue.outcomes import DeadLetterNow, Outcome, Release, Retry
from fairqueue.queue import FairQueue
from fairqueue.retry import RetryPolicy
from fairqueue.running import current_lease
from fairqueue.states import (
    LimitState,
    Pause,
    QueueState,
    QueueStats,
    RateState,
    TenantState,
    Totals,
    WorkerState,
)
from fairqueue.sync import SyncFairQueue
from fairqueue.sync_lease import SyncLease
from fairqueue.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "AuditReport",
    "BacklogFullError",
    "Codec",
    "ConfigurationError",
    "DamagedKeyError",
    "DeadLetter",
    "DeadLetterNow",
    "Enqueued",
    "Explanation",
    "FairQueue",
    "FairQueueError",
    "FairnessReport",
    "Finding",
    "Healed",
    "Holder",
    "InvalidMessageError",
    "JsonCodec",
    "Lease",
    "LeaseInfo",
    "LeaseLostError",
    "Limit",
    "LimitState",
    "Message",
    "MessageInfo",
    "MessageNotFoundError",
    "MessageState",
    "NewMessage",
    "Outcome",
    "Pause",
    "PayloadTooLargeError",
    "QueueClosedError",
    "QueueFullError",
    "QueueState",
    "QueueStats",
    "QueueUnavailableError",
    "RateState",
    "ReclaimReport",
    "ReconcileReport",
    "Release",
    "Retry",
    "RetryPolicy",
    "SchemaMismatchError",
    "SettingsChangedError",
    "Stop",
    "SyncFairQueue",
    "SyncLease",
    "TenantFairness",
    "TenantState",
    "Totals",
    "Worker",
    "WorkerState",
    "__version__",
    "current_lease",
]
