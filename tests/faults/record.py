"""What test runs write down under build/faults/, a JSON line a result, for docs/reliability.md to be made of."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.processes import ROOT

FOLDER = ROOT / "build" / "faults"


def note(kind: str, **result: Any) -> None:
    """Adds a line to ``<kind>.jsonl``; what was said of the same thing before is thereby outdated."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    line = json.dumps({**result, "at": round(time.time(), 3)}).encode() + b"\n"
    file = os.open(FOLDER / f"{kind}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)  # one write: lines of several processes never mix
    finally:
        os.close(file)


class LostError(AssertionError):
    """Something that was accepted is nowhere."""


class RunTwiceError(AssertionError):
    """A message ran again after it was done, or while its lease lived."""


def none_lost(missing: Iterable[object]) -> None:
    """Raises LostError if there are any."""
    if names := list(missing):
        raise LostError(f"lost: {names}")


def none_twice(again: Iterable[object]) -> None:
    """Raises RunTwiceError if there are any."""
    if names := list(again):
        raise RunTwiceError(f"ran twice: {names}")


def each_ran_once(ran: Mapping[str, int], expected: Iterable[str]) -> None:
    """All that is expected ran, and nothing twice, expected or not."""
    none_lost(sorted(name for name in expected if not ran.get(name)))
    none_twice(sorted(name for name, times in ran.items() if times > 1))


@dataclass
class Harm:
    """How many faults were injected, and after how many of them something was lost, wedged, or run twice."""

    faults: int = 0
    lost: int = 0
    wedged: int = 0
    twice: int = 0

    def blame(self, problem: type[BaseException]) -> None:
        """Counts a problem by its type: whatever is not as promised and neither lost nor run twice is wedged."""
        if issubclass(problem, LostError):
            self.lost += 1
        elif issubclass(problem, RunTwiceError):
            self.twice += 1
        else:
            self.wedged += 1
