"""Reads what test runs have written down under build/faults/ and build/chaos/ (tests/faults/record.py): a line each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FAULTS, CHAOS = ROOT / "build" / "faults", ROOT / "build" / "chaos"

IDENTITIES = {
    "commands": ("script", "scenario"),
    "exchanges": ("operation", "flavour"),
    "cancelled": ("what",),
    "server": ("what",),
    "cases": ("test",),
    "run": ("run",),
    "runs": (),  # of chaos: the last one is meant
}
"""What names the thing that a line is about, by the kind of line."""

HARM = {"lost": "lost", "wedged": "wedged", "twice": "run twice without an expired lease"}
"""What may come of a fault, by its name in a line, in words."""


@dataclass
class Results:
    """The last result of each thing, and the names of those that began and never said how they ended."""

    ended: list[dict[str, Any]] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


def read(kind: str, folder: Path = FAULTS) -> Results:
    """Of each thing what was written last; a result has what was written at its beginning too."""
    path = folder / f"{kind}.jsonl"
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        line = json.loads(text)
        name = tuple(line.get(part) for part in IDENTITIES[kind])
        before = newest.get(name, {})
        newest[name] = (
            line if line.get("began") or not before.get("began") else before | line | {"began": False}
        )
    results = Results()
    for name, line in newest.items():
        if line.get("began"):
            results.unfinished.append(" ".join(map(str, name)) or f"the last run of {folder.name}")
        else:
            results.ended.append(line)
    return results


def name_of(kind: str, result: dict[str, Any]) -> str:
    """What the result is of."""
    return " ".join(str(result[part]) for part in IDENTITIES[kind])


def total(results: list[dict[str, Any]], what: str) -> int:
    """The sum of what they counted."""
    return sum(result[what] for result in results)
