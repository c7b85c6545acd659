"""What a replay left behind: every delivery as its handler wrote it down, and what the queue said at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairqueue.demo.plan import Plan, PlannedJob


class Delivery(NamedTuple):
    """One call of the handler, in seconds since the replay began; ``end_s`` is None if it never got to its end."""

    process: str
    attempt: int
    start_s: float
    end_s: float | None


@dataclass(slots=True)
class JobRecord:
    """One job that was submitted, and every delivery of it, in the order they began."""

    job: PlannedJob
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def wait_s(self) -> float | None:
        """Seconds from the time it was due to be submitted to the start of its first delivery; None if never."""
        return max(0.0, self.deliveries[0].start_s - self.job.at_s) if self.deliveries else None

    @property
    def completions(self) -> int:
        """How often a handler got to its end: 1 is right, 0 is lost, 2 is run twice."""
        return sum(delivery.end_s is not None for delivery in self.deliveries)

    @property
    def in_system_s(self) -> float | None:
        """Seconds from its submission to its first completion; None if there was none."""
        ends = [delivery.end_s for delivery in self.deliveries if delivery.end_s is not None]
        return max(0.0, min(ends) - self.job.at_s) if ends else None


@dataclass(frozen=True, slots=True)
class Kill:
    """The worker process that was killed with ``kill -9``, and when (seconds since the replay began)."""

    process: str
    pid: int
    at_s: float


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What the queue itself says when the replay is over."""

    reclaimed: int
    """Deliveries taken back because their lease expired; their slots were freed in the same step."""
    healed: int
    """Leaked slots that reconcile freed, and slots, deadlines and records that it gave back."""
    freed_late: int
    """Slots that could not be freed by their message's own transition."""
    held: int
    """Slots still held, all limit groups together."""
    findings: tuple[str, ...]
    """What ``audit()`` found, one line a finding."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay of a plan under one scheduler."""

    scheduler: str
    plan: Plan
    records: Sequence[JobRecord]
    """One for every job whose enqueue returned, in submit order."""
    wall_s: float
    """From its first second to the last completion, or to the moment it was stopped."""
    late_s: float
    """How late the producer was at most: from when a job was due until its enqueue returned. Waits include it."""
    kill: Kill | None
    facts: QueueFacts
    in_time: bool
    """False if it was stopped because its time was over."""
