"""A process whose wall clock is wrong: ``python -m tests.support.wrong_clock SECONDS MODULE ARGUMENTS...``.

Runs the module as ``python -m`` would, with the clock so many seconds ahead (or behind) from before anything else is
imported. SIGUSR1 steps it an hour ahead, SIGUSR2 an hour back. The monotonic clock is right: no machine's steps.
"""

from __future__ import annotations

import datetime  # noqa: ICN001 - the module itself is changed
import runpy
import signal
import sys
import time
from typing import Any

HOUR = 3600.0
AHEAD, BACK = signal.SIGUSR1, signal.SIGUSR2

_right_time, _right_time_ns = time.time, time.time_ns
_off = 0.0


class _WrongDatetime(datetime.datetime):
    """Asks the wrong clock; with a zone, and without."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


def install(seconds: float) -> None:
    """From now on all of this process that asks for the time gets the wrong one."""
    _step(seconds)
    time.time = lambda: _right_time() + _off
    time.time_ns = lambda: _right_time_ns() + int(_off * 1e9)
    datetime.datetime = _WrongDatetime  # type: ignore[misc]
    signal.signal(AHEAD, lambda *_: _step(HOUR))
    signal.signal(BACK, lambda *_: _step(-HOUR))


def _step(seconds: float) -> None:
    global _off  # noqa: PLW0603 - the clock of the process
    _off += seconds


if __name__ == "__main__":
    install(float(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
