"""What test runs write down under build/faults/, a JSON line a result, for docs/reliability.md to be made of.

Whatever is counted says first that it begins: what never says how it ended is missing from every sum, and the tools that
read the lines name it (tools/fault_results.py).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.faults.scale import EVERY
from tests.support.processes import ROOT
from tests.support.programs import server_program

FOLDER = ROOT / "build" / "faults"
RUN = "FAIRQUEUE_FAULTS_RUN"
"""The variable that tells the processes of a run of tests its name."""


def began(kind: str, folder: Path | None = None, /, **what: Any) -> None:
    """The thing that a later ``note`` of the same kind tells the result of, with the same names in it."""
    _write(kind, folder, {**what, "began": True})


def note(kind: str, folder: Path | None = None, /, **result: Any) -> None:
    """Adds a line to ``<kind>.jsonl``; what was said of the same thing before is thereby outdated."""
    _write(kind, folder, result)


def _write(kind: str, folder: Path | None, result: dict[str, Any]) -> None:
    folder = folder or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    run = {"run": os.environ[RUN], "every": EVERY} if RUN in os.environ else {}
    line = json.dumps({**run, **result, "at": round(time.time(), 3)}).encode() + b"\n"
    file = os.open(folder / f"{kind}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)  # one write: lines of several processes never mix
    finally:
        os.close(file)


def surroundings() -> dict[str, Any]:
    """What a run ran: the commit, whether anything was changed since, the server, and the Python."""
    changes = _said("git", "status", "--porcelain")
    return {
        "commit": _said("git", "rev-parse", "--short=7", "HEAD") or None,
        "changed": bool(changes),
        "server": _server(),
        "python": platform.python_version(),
    }


def _server() -> str:
    """Its name and version; of one that runs already by what it says itself."""
    if given := os.environ.get("FAIRQUEUE_TEST_SERVER"):
        with redis.Redis.from_url(given) as server:
            info: Any = server.info("server")
        name = "Valkey" if "valkey_version" in info else "Redis"
        return f"{name} {info.get('valkey_version', info['redis_version'])}"
    said = _said(str(server_program()), "--version").split()  # "Valkey server v=9.0.1 sha=..."
    version = next(word.removeprefix("v=") for word in said if word.startswith("v="))
    return f"{said[0]} {version}"


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:  # no git: a copy of the source
        return ""


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
