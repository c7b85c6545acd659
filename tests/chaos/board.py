"""What each process is doing right now, a few bytes each in memory that is shared by forking."""

from __future__ import annotations

import mmap
import threading

from tests.chaos.plan import CLAIMING, DRAINING, IDLE, RUNNING

STARTING = "starting"
_PHASES = (STARTING, IDLE, CLAIMING, DRAINING)


class Board:
    """Made before the forks; each process writes its own place, anybody reads."""

    def __init__(self, processes: int) -> None:
        self._memory = mmap.mmap(-1, 2 * processes)
        self._lock = threading.Lock()  # of one process: its threads count together

    def show(self, process: int, phase: str) -> None:
        self._memory[2 * process] = _PHASES.index(phase)

    def handlers(self, process: int, change: int) -> None:
        """One more runs, or one less."""
        with self._lock:
            self._memory[2 * process + 1] += change

    def phase(self, process: int) -> str:
        """Claiming and draining go before running: both happen beside handlers that run."""
        shown = _PHASES[self._memory[2 * process]]
        return RUNNING if shown == IDLE and self._memory[2 * process + 1] else shown
