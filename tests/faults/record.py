"""What test runs write down under build/faults/, a JSON line a result, for docs/reliability.md to be made of."""

from __future__ import annotations

import json
import os
import time
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


@dataclass
class Harm:
    """How many faults were injected, and after how many of them something was lost, wedged, or run twice."""

    faults: int = 0
    lost: int = 0
    wedged: int = 0
    twice: int = 0

    def blame(self, problem: str) -> None:
        """Counts a problem by what it says: whatever is not as promised and neither lost nor run twice is wedged."""
        if "lost" in problem:
            self.lost += 1
        elif "ran again" in problem or "run again" in problem or "twice" in problem:
            self.twice += 1
        else:
            self.wedged += 1
