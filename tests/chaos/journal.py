"""What happened, in one file that all processes append to: one line, one write, with the machine's monotonic clock."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ASKED, ACCEPTED = "asked", "accepted"
"""A producer is about to enqueue these ids; their enqueue has returned."""

START, END = "start", "end"
"""A handler of a message; ``about``: ``token``, when its claim was ``asked`` for, and at the end ``outcome``."""

GIVEN_BACK = "given back"
"""A delivery that no handler has begun is about to be released."""

CANCELLING, CANCEL_DONE = "cancelling", "cancel done"
"""Somebody is about to cancel a message; it is answered, with ``outcome``."""

PAUSED, RESUMING = "paused", "resuming"
"""A pause of ``[tenant, queue, pool]`` was answered; somebody is about to lift it."""

RATED = "rated"
"""The rate of a limit group is in force: ``group``."""

SET = "set"
"""Another setting is in force, a weight or a guarantee: ``about`` says which."""

STARVED = "starved"
"""The process did not run from ``about["since"]`` until then, for whatever reason; of process 0: the server."""

KILLED, FROZEN, THAWED, TERMINATED = "killed", "frozen", "thawed", "terminated"
"""Written by the one that does it, just before it does; of process 0: the server, with its watcher."""

LEFT, EXITED = "left", "exited"
"""Written by the process itself, just before it is gone; by the one that started it, some time after."""

BACK = "back"
"""The server answers again."""

COMPLETED, FAILED, RETRIED, RELEASED, DEAD, CANCELLED = (
    "completed", "failed", "retried", "released", "dead", "cancelled",
)  # fmt: skip
"""How a handler ended."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``process`` is the number of a process in this run; numbers are not used twice, as pids are."""

    at: float
    process: int
    what: str
    id: str = ""
    about: dict[str, Any] = field(default_factory=dict)


class Journal:
    """The file, opened for one process."""

    def __init__(self, path: Path, process: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.process = process

    def write(self, what: str, id_: str = "", process: int | None = None, **about: Any) -> None:
        """Adds a line about this process, or another one."""
        number = self.process if process is None else process
        line = json.dumps(asdict(Entry(time.monotonic(), number, what, id_, about)))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def entries(path: Path) -> list[Entry]:
    """All lines, in the order of their time."""
    with path.open(encoding="utf-8") as lines:
        return sorted((Entry(**json.loads(line)) for line in lines), key=lambda entry: entry.at)
