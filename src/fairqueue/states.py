"""What the queue tells about itself: frozen snapshots, each true at one instant of the server."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Literal, overload

__all__ = ["LimitState", "QueueState", "QueueStats", "TenantState", "Totals", "WorkerState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counted since the namespace (or the tenant's first present message) began; also readable as ``totals["enqueued"]``.

    ``freed_late`` slots could not be freed by their message's own transition; ``healed`` is what reconcile put
    right; ``dropped`` messages were out of tries where dead letters are off. ``claimed`` is counted for the namespace
    alone: None in the totals of a tenant.
    """

    enqueued: int = 0
    claimed: int | None = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    redriven: int = 0
    purged: int = 0
    reclaimed: int = 0
    freed_late: int = 0
    healed: int = 0
    dropped_entries: int = 0

    @overload
    def __getitem__(  # type: ignore[overload-overlap]  # "claimed" is a str too: the first that fits is meant
        self, name: Literal["claimed"]
    ) -> int | None: ...

    @overload
    def __getitem__(self, name: str) -> int: ...

    def __getitem__(self, name: str) -> int | None:
        value: int | None = getattr(self, name)
        return value

    @classmethod
    def of(cls, counters: dict[str, int]) -> Totals:
        """The totals among the stored counters."""
        return cls(**{f.name: counters.get(f.name, 0) for f in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """A namespace, or one tenant of it. ``blocked`` messages are ready but wait for a slot; they are part of ``ready``."""

    ready: int
    delayed: int
    in_flight: int
    dead: int
    blocked: int
    oldest_ready_age: timedelta | None
    totals: Totals = field(default_factory=Totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState(QueueStats):
    """One tenant: what it has where, and its counters while it has messages."""

    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue of a tenant in one pool, with ready messages."""

    tenant: str
    queue: str
    pool: str
    ready: int
    blocked: int
    oldest_ready_age: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """One limit group: ``limit`` is what is in force (None: unlimited), ``held`` slots are taken by ``holders``.

    ``waiting`` messages are ready but parked at this group. ``held`` is None where the group's key is broken, so that
    nothing can be counted: the doctor names it and reconcile rebuilds it.
    """

    group: str
    id: str
    limit: int | None
    held: int | None
    waiting: int
    holders: list[tuple[str, str]]

    @property
    def free(self) -> int | None:
        """Slots that are free: never negative, None when unlimited or when ``held`` is None."""
        return None if self.limit is None or self.held is None else max(0, self.limit - self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """A worker that gave a sign of life in the last minute."""

    name: str
    host: str
    pid: int
    pools: tuple[str, ...]
    concurrency: int
    running: int
    version: str
    started_at: datetime
    seen_at: datetime
