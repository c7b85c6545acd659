"""Who waited how long, who had the workers, and how full the limits were."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairqueue.fairness import percentile
from fairqueue.simulate.result import LimitUse, Share

__all__ = ["GroupMeter", "TenantMeter", "Whole"]

MICROS = 1_000_000


@dataclass(slots=True)
class TenantMeter:
    """One tenant's messages; times are microseconds."""

    name: str
    entry: str
    waits: array[int] = field(default_factory=lambda: array("q"))
    sent: int = 0
    started: int = 0
    done: int = 0
    expired: int = 0
    refused: int = 0
    busy: int = 0
    cost: float = 0.0

    def start(self, wait: int, busy: int, cost: float) -> None:
        """A message starts after that wait; it will be busy so long within the run."""
        self.waits.append(wait)
        self.started += 1
        self.busy += busy
        self.cost += cost

    def expire(self, wait: int) -> None:
        """A message has waited for so long, and will never start."""
        self.waits.append(wait)
        self.expired += 1


@dataclass(slots=True)
class GroupMeter:
    """The slots of one limit group; ``limit`` None: unlimited."""

    limit: int | None
    held: int = 0
    most: int = 0
    _since: int = 0
    _held_time: int = 0
    _full_time: int = 0

    def change(self, now: int, by: int) -> None:
        """So many slots more, or fewer, from now on."""
        span = now - self._since
        self._held_time += self.held * span
        if self.limit is not None and self.held >= self.limit:
            self._full_time += span
        self._since = now
        self.held += by
        self.most = max(self.most, self.held)

    def use(self, group: tuple[str, str], duration: int) -> LimitUse:
        """Over the whole run."""
        self.change(duration, 0)
        return LimitUse(
            *group,
            self.limit,
            _rounded(self._held_time / duration),
            self.most,
            _rounded(self._full_time / duration),
        )


@dataclass(frozen=True, slots=True)
class Whole:
    """What all tenants together used of what there was; times are microseconds."""

    duration: int
    capacity: int
    busy: int
    cost: float

    @classmethod
    def of(cls, meters: Sequence[TenantMeter], duration: int, capacity: int) -> Whole:
        """Of a run of that duration with workers for ``capacity`` messages at once."""
        busy, cost = sum(meter.busy for meter in meters), sum(meter.cost for meter in meters)
        return cls(duration, capacity, busy, cost)

    def share(self, name: str, meters: Sequence[TenantMeter]) -> Share:
        """The figures of some of the tenants."""
        waits = sorted(wait for meter in meters for wait in meter.waits)
        sent, started, done, expired, refused, busy = (
            sum(getattr(meter, what) for meter in meters)
            for what in ("sent", "started", "done", "expired", "refused", "busy")
        )
        cost = sum(meter.cost for meter in meters)
        return Share(
            name=name,
            tenants=len(meters),
            sent=sent,
            done=done,
            running=started - done,
            waiting=sent - started - expired - refused,
            expired=expired,
            refused=refused,
            wait_p50_s=_wait(waits, 0.5),
            wait_p95_s=_wait(waits, 0.95),
            wait_max_s=_wait(waits, 1),
            done_per_s=_rounded(done * MICROS / self.duration),
            share=_rounded(busy / self.busy) if self.busy else 0.0,
            utilisation=_rounded(busy / (self.duration * self.capacity)),
            share_of_cost=_rounded(cost / self.cost) if self.cost else 0.0,
        )


def _wait(waits: Sequence[int], part: float) -> float | None:
    return percentile(waits, part) / MICROS if waits else None


def _rounded(value: float) -> float:
    return round(value, 6)
