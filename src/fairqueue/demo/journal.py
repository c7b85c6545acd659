"""The handlers' own log: one file a worker process, one JSON line for every start and every end of a handler.

The demo counts what was lost and what ran twice from these files and not from the queue's counters, so a queue
that miscounts cannot pass. A line is one ``write`` to an append-only file: ``kill -9`` of the writer cannot take
back what was written, only cut short its last line, which is then no line (it has no end) and is not counted.

Instants are readings of the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

from fairqueue.demo.plan import PlannedJob
from fairqueue.demo.result import Delivery, JobRecord

SUFFIX = ".jsonl"


class Entry(NamedTuple):
    """One line of a log: a handler of this process began or ended its ``attempt`` at the message."""

    process: str
    event: str
    id: str
    attempt: int
    at: float


class _Line(TypedDict):
    event: str
    id: str
    attempt: int
    at: float


class JournalWriter:
    """Appends to the log of one process; the file is named after the process. Opened when made, never closed."""

    def __init__(self, directory: Path, process: str) -> None:
        path = directory / f"{process}{SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def started(self, id: str, attempt: int) -> None:
        """The handler was called."""
        self._write(_Line(event="start", id=id, attempt=attempt, at=time.monotonic()))

    def ended(self, id: str, attempt: int) -> None:
        """The handler got to its end. Written before the queue is told, so no completion goes unseen."""
        self._write(_Line(event="end", id=id, attempt=attempt, at=time.monotonic()))

    def _write(self, line: _Line) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


class JournalReader:
    """Follows all logs of a directory and keeps one :class:`JobRecord` for every job, up to date with them."""

    def __init__(self, directory: Path, jobs: Iterable[PlannedJob], *, began: float) -> None:
        """``began`` is the monotonic reading that is second 0 of the replay."""
        self._directory = directory
        self._began = began
        self._offsets: dict[Path, int] = {}
        self.records = {job.id: JobRecord(job) for job in jobs}
        self.running: dict[str, int] = {}
        """Handlers that have begun and not ended, by process."""
        self.done = 0
        """Jobs that were completed at least once."""

    def poll(self) -> list[JobRecord]:
        """Take in what was written since the last call; the records of the jobs that began or ended."""
        entries = [
            entry for path in sorted(self._directory.glob(f"*{SUFFIX}")) for entry in self._new_entries(path)
        ]
        return [self._apply(entry) for entry in sorted(entries, key=lambda entry: entry.at)]

    def _new_entries(self, path: Path) -> Iterator[Entry]:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = self._offsets.get(path, 0) + len(whole)
        for line in whole.splitlines():
            fields: _Line = json.loads(line)
            yield Entry(path.name.removesuffix(SUFFIX), **fields)

    def _apply(self, entry: Entry) -> JobRecord:
        record, at_s = self.records[entry.id], entry.at - self._began
        if entry.event == "start":
            record.deliveries.append(Delivery(entry.process, entry.attempt, at_s, None))
            self.running[entry.process] = self.running.get(entry.process, 0) + 1
            return record
        self.done += record.completions == 0
        index = _open_delivery(record, entry)
        record.deliveries[index] = record.deliveries[index]._replace(end_s=at_s)
        self.running[entry.process] -= 1
        return record


def _open_delivery(record: JobRecord, entry: Entry) -> int:
    """The delivery this end belongs to: the latest of that process and attempt that has none yet."""
    for index in range(len(record.deliveries) - 1, -1, -1):
        delivery = record.deliveries[index]
        if delivery[:2] == (entry.process, entry.attempt) and delivery.end_s is None:
            return index
    raise ValueError(f"expected the start of {entry.id} before its end in the log of {entry.process}")
