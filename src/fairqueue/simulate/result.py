"""The figures of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["LimitUse", "Share", "Simulated"]


@dataclass(frozen=True, slots=True)
class Share:
    """What an entry of the file, or one tenant of it, got.

    Waits are seconds from a message's arrival to its start, over every message that was accepted; one that had not started
    when the run ended, or expired, counts with what it had waited by then. None: nothing was sent.
    """

    name: str
    tenants: int
    """How many tenants the entry stands for."""
    sent: int
    done: int
    running: int
    waiting: int
    """Sent, and not started when the run ended."""
    expired: int
    """Not started within their time to live."""
    refused: int
    """Sent while as many waited as the tenant's backlog may hold."""
    wait_p50_s: float | None
    wait_p95_s: float | None
    wait_max_s: float | None
    done_per_s: float
    share: float
    """Of the worker time that all tenants used, 0 to 1."""
    utilisation: float
    """Of the worker time there was, 0 to 1."""
    share_of_cost: float
    """Of the cost of all messages that started, 0 to 1."""


@dataclass(frozen=True, slots=True)
class LimitUse:
    """How much of a limit group was used."""

    group: str
    id: str
    limit: int | None
    held_mean: float
    """Slots held, on average over the run."""
    held_max: int
    full: float
    """The part of the time in which no slot was free, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A run. Two runs of the same workload are equal."""

    duration_s: float
    seed: int
    scheduler: str
    capacity: int
    """Messages that all workers run at once."""
    sent: int
    done: int
    waiting: int
    expired: int
    refused: int
    utilisation: float
    """Of the worker time there was, 0 to 1."""
    entries: tuple[Share, ...]
    """In the order of the file."""
    tenants: tuple[Share, ...]
    """Each tenant by itself."""
    limits: tuple[LimitUse, ...]
    """Of the groups that held a slot, by group and id."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)
