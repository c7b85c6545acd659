"""What the queue tells about itself: frozen snapshots, each true at one instant of the server."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Literal, overload

__all__ = [
    "Cancelled",
    "LimitState",
    "Pause",
    "QueueState",
    "QueueStats",
    "RateState",
    "TenantState",
    "Totals",
    "WorkerState",
]

Cancelled = Literal["cancelled", "cancelling", "not_found"]
"""What a cancel did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counted since the namespace (or the tenant's first present message) began; also readable as ``totals["enqueued"]``.

    ``freed_late`` slots could not be freed by their message's own transition; ``healed`` is what reconcile put
    right; ``dropped`` messages were out of tries where dead letters are off, or expired and were to be dropped;
    ``expired`` are all that were not started in time, counted as ``dead_lettered`` or ``dropped`` too. ``claimed`` is
    counted for the namespace alone: None in the totals of a tenant.
    """

    enqueued: int = 0
    claimed: int | None = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    expired: int = 0
    redriven: int = 0
    purged: int = 0
    cancelled: int = 0
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
    """A namespace, or one tenant of it.

    ``blocked`` messages are part of ``ready``: they wait for a slot, or were paused when a claim came to them (those of a
    pool that is paused as a whole are not met by claims, and not counted).
    """

    ready: int
    delayed: int
    in_flight: int
    dead: int
    blocked: int
    oldest_ready_age: timedelta | None
    totals: Totals = field(default_factory=Totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState(QueueStats):
    """One tenant: what it has where, its counters while it has messages, and its ``weight`` (1 unless set).

    ``backlog`` is how many of its messages may wait (``limits.set_backlog``), None where there is no bound.
    """

    tenant: str
    weight: float = 1.0
    backlog: int | None = None


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
class RateState:
    """The rate of a limit group: ``n`` deliveries in each ``per``, ``burst`` at once after a pause.

    ``tokens`` deliveries may start now, the next one more at ``next_at``. It is None while all ``burst`` tokens are there.
    Where what is stored is no rate (damaged by hand) ``n`` is 0 and nothing starts, until it is set again.
    """

    n: int
    per: timedelta
    burst: int
    tokens: int
    next_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """One limit group: ``limit`` is what is in force (None: unlimited), ``held`` slots are taken by ``holders``.

    ``guaranteed`` slots are the tenant's before anybody's who has none or holds as many (None: no guarantee; groups of
    ``"tenant"`` alone have one). ``waiting``
    messages are ready but parked at this group, for a slot or for a token of its ``rate`` (None: it has none). ``held`` is None
    where the group's key is broken, so that nothing can be counted: the doctor names it and reconcile rebuilds it.
    """

    group: str
    id: str
    limit: int | None
    held: int | None
    waiting: int
    holders: list[tuple[str, str]]
    rate: RateState | None = None
    guaranteed: int | None = None

    @property
    def free(self) -> int | None:
        """Slots that are free: never negative, None when unlimited or when ``held`` is None."""
        return None if self.limit is None or self.held is None else max(0, self.limit - self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause that stands: of everything that has all the selectors that are not None.

    ``since`` is None where what is stored was damaged: the pause stands all the same.
    """

    tenant: str | None
    queue: str | None
    pool: str | None
    by: str | None
    reason: str | None
    since: datetime | None


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
