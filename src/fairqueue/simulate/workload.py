"""A workload: who sends what and when, what the limits are, and who works."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fairqueue.limits import Limit
from fairqueue.simulate.traffic import Arrivals, RunTime
from fairqueue.validation import integer

__all__ = ["Stream", "Tenant", "Workers", "Workload"]

TENANT_LIMIT: Final = "tenant"


@dataclass(frozen=True, slots=True)
class Rate:
    """So many deliveries in so many seconds, and at once after a pause."""

    n: int
    per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class Stream:
    """Messages of one kind that a tenant sends. ``cost`` None: what each costs is the seconds it runs."""

    arrivals: Arrivals
    run: RunTime
    queue: str
    pool: str
    priority: int
    cost: float | None
    metadata: dict[str, str]
    expires_s: float | None


@dataclass(frozen=True, slots=True)
class Tenant:
    """One entry of the file: a tenant, or ``count`` alike. ``limit`` is theirs of the limit ``tenant``, if any."""

    name: str
    count: int
    streams: tuple[Stream, ...]
    limits: dict[str, int | None]
    rates: dict[str, Rate]
    guaranteed: int | None
    weight: float
    backlog: int | None

    def names(self) -> list[str]:
        """What the tenants are called: ``small-1``, ``small-2`` and so on where there are several."""
        if self.count == 1:
            return [self.name]
        width = len(str(self.count))
        return [f"{self.name}-{number:0{width}}" for number in range(1, self.count + 1)]


@dataclass(frozen=True, slots=True)
class Workers:
    """Worker processes that are alike."""

    processes: int
    concurrency: int
    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Paused:
    """What has all these selectors starts nothing from ``from_s`` until ``until_s``."""

    selectors: dict[str, str]
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Workload:
    """A run: made by ``load_workload`` or ``workload_of``."""

    duration_s: float
    seed: int
    scheduler: str
    quantum: float | None
    charge: str
    limits: tuple[Limit, ...]
    own_limits: dict[tuple[str, str], int | None]
    """Limits of single groups, by the limit's name and the group's id."""
    rates: dict[tuple[str, str], Rate]
    """The same of rates."""
    guarantees: dict[str, int]
    """Slots of its own limit, or of the default, that are a tenant's before anybody's."""
    workers: tuple[Workers, ...]
    tenants: tuple[Tenant, ...]
    pauses: tuple[Paused, ...]

    @property
    def capacity(self) -> int:
        """Messages that all workers run at once."""
        return sum(workers.processes * workers.concurrency for workers in self.workers)

    @property
    def expected_messages(self) -> float:
        """How many are sent, on average."""
        return sum(
            tenant.count * stream.arrivals.number_within(self.duration_s)
            for tenant in self.tenants
            for stream in tenant.streams
        )

    def with_seed(self, seed: int) -> Workload:
        """The same with other draws."""
        return replace(self, seed=checked_seed("seed", seed))


def checked_seed(path: str, value: object) -> int:
    """Of the random draws; raises ``ConfigurationError``."""
    return integer(path, value, 0, 2**63 - 1)
