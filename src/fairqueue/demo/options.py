"""The demo's options, checked when they are made."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fairqueue.validation import expected, integer, number

DEFAULT_SECONDS = 50.0
DEFAULT_WORKERS = 3
DEFAULT_REPORT = Path("fairqueue-report.html")

SLOTS_PER_WORKER = 24
"""Handlers that one worker process runs at once."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to replay and how.

    Args:
        trace: A job log, tab-separated or Standard Workload Format, plain or gzipped; None: the cut that is shipped.
        seconds: Wall time for both replays together, 12 to 86,400. They are stopped at 1.2 times this.
        workers: Worker processes, 2 to 32; one of them is killed on the way, and another one started.
        report: Where the HTML report is written.
        jobs: How many jobs of the log to take, spread evenly over it; None: as many as the time allows.
        json: Print one JSON object on standard output, and how it goes on standard error.

    Raises:
        ConfigurationError: an option is wrong; the text names it, the value and what was expected.
    """

    trace: Path | None = None
    seconds: float = DEFAULT_SECONDS
    workers: int = DEFAULT_WORKERS
    report: Path = DEFAULT_REPORT
    jobs: int | None = None
    json: bool = False

    def __post_init__(self) -> None:
        number("seconds", self.seconds, 12, 86_400)
        integer("workers", self.workers, 2, 32)
        if self.jobs is not None:
            integer("jobs", self.jobs, 1)
        if self.report.is_dir() or not os.access(self.report.absolute().parent, os.W_OK):
            raise expected("report", "a file in a directory that can be written to", str(self.report))
