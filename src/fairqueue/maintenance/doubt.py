"""When expired leases may not be judged: after an outage or a freeze they look expired although their handlers run."""

from __future__ import annotations

import time
from collections.abc import Callable

_MOST = 2  # holds in a row: trouble that comes again and again must not stop reclaim for good


class Doubt:
    """Holds reclaim back for ``seconds`` after trouble: the time in which every worker extends its leases again.

    Trouble that comes before the time is over prolongs the hold, up to twice its length until the next judgement. An
    outage that somebody has seen starts anew: nobody could extend anything meanwhile. One that nobody has seen was
    shorter than the time between two looks, and during a hold that is at most ``left`` seconds.

    Args:
        seconds: half a visibility timeout; leases are extended every quarter, so each has at least a quarter left
            after an outage that was no longer than this.
        now: the monotonic clock.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._began: float | None = None
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds until leases may be judged again; 0 when they may be now."""
        return max(0.0, self._until - self._now())

    def trouble(self, at: float | None = None) -> None:
        """Something at this monotonic instant (None: now) may have kept leases from being extended."""
        now = self._now()
        instant = now if at is None else at
        if instant + self._seconds <= now:
            return
        if self._began is None:
            self._began = instant
        self._until = max(self._until, min(instant + self._seconds, self._began + _MOST * self._seconds))

    def outage(self) -> None:
        """The server was looked for and was not there."""
        self._began = None

    def judged(self) -> None:
        """A pass was made: what comes now is a new hold."""
        self._began = None
