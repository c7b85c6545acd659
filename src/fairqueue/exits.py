"""How a worker process ends: by itself, or by force when something of the user's holds it."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from typing import Final

__all__ = ["DRAINED", "EXIT_PATIENCE", "FAILED", "LAST_STEPS", "WRONG_USE", "leave", "leave_within"]

DRAINED: Final = 0
"""Every handler has ended or was released."""

FAILED: Final = 1
"""It could not work."""

WRONG_USE: Final = 2
"""It can never work."""

LAST_STEPS = 20.0
"""Seconds that a worker may take beyond its grace to release, settle and say goodbye; then it is killed."""

EXIT_PATIENCE = 2.0
"""Seconds that threads and exit functions of the user's have to let the process go."""


def leave(status: int) -> None:
    """Ends the process now, without waiting for anybody."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def leave_within(seconds: float, status: int) -> None:
    """Ends the process by force unless it has ended by itself until then: threads of handlers may never end."""
    timer = threading.Timer(seconds, leave, [status])
    timer.daemon = True
    timer.start()
