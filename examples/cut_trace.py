#!/usr/bin/env python3
"""Cuts `lcg-2005-cut.tsv`, which the demo replays, out of the long log it is from.

    python examples/cut_trace.py lcg-2005.tsv.gz > examples/lcg-2005-cut.tsv

The long log is LCG-2005 of the Parallel Workloads Archive (https://www.cs.huji.ac.il/labs/parallel/workload/),
converted to one tab-separated line a job: submit time and run time in seconds, user, group. The cut is a run of
consecutive jobs, their lines unchanged: nothing is chosen, reordered or left out in it. The default is a stretch in
which one user sends a third of the jobs, as in the whole log, among some sixty who send few, and in which the jobs
keep coming rather than in one burst.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from pathlib import Path


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a plain or gzipped text file."""
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as log
    ):
        yield from log


def cut(path: Path, first: int, jobs: int) -> Iterator[str]:
    """The log's own comments, a comment on the cut, the column names, and `jobs` jobs from number `first` on."""
    number = 0
    for line in lines_of(path):
        if line.startswith("#"):
            yield line
        elif number == 0:
            yield f"# This cut: {jobs} consecutive jobs of that log, unchanged, from job {first} on (cut_trace.py).\n"
            yield line
            number = 1
        else:
            if first <= number < first + jobs:
                yield line
            number += 1


def main() -> None:
    """Read the options, print the cut."""
    parser = argparse.ArgumentParser(
        description="Cut a run of consecutive jobs out of a tab-separated job log."
    )
    parser.add_argument("log", type=Path)
    parser.add_argument(
        "--first", type=int, default=58_501, help="number of the first job, from 1 (%(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=6_000, help="how many jobs (%(default)s)")
    options = parser.parse_args()
    for line in cut(options.log, options.first, options.jobs):
        print(line, end="")


if __name__ == "__main__":
    main()
