"""The events of a run in their order in time: what comes, and what ends."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from fairqueue.clock import ManualClock

__all__ = ["Clockwork"]


@dataclass(slots=True)
class Clockwork:
    """Hands out events instant by instant and moves the clock of the queue along.

    Instants are microseconds since the start. Events of one instant keep the order in which they were added, so that
    the same run has the same order every time.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    now: int = 0
    _heap: list[tuple[int, int, Any]] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count)

    def add(self, at: int, event: Any) -> None:
        """An event at that instant; not before now."""
        heapq.heappush(self._heap, (at, next(self._count), event))

    def next_instant(self, until: int) -> list[Any]:
        """All events of the next instant, where the clock now stands; none: nothing happens before ``until``."""
        if not self._heap or self._heap[0][0] >= until:
            self._move_to(until)
            return []
        self._move_to(self._heap[0][0])
        events = []
        while self._heap and self._heap[0][0] == self.now:
            events.append(heapq.heappop(self._heap)[2])
        return events

    def _move_to(self, instant: int) -> None:
        self.clock.advance(timedelta(microseconds=instant - self.now))
        self.now = instant
