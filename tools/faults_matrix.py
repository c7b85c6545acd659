"""Prints what became of the faults that the last run injected; exit status 1 if any did harm, or none were of some kind.

The results come from build/faults/, where the tests under tests/faults write them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "build" / "faults"
WIDTH = 100
KINDS = {
    "commands": "faults at the commands of the scripts",
    "exchanges": "faults at the exchanges of public calls with the server",
    "cancelled": "calls cancelled at random moments",
    "server": "kills of the server, cuts of its append-only file, and keys damaged under load",
}
HARM = {"lost": "lost", "wedged": "wedged", "twice": "run twice without an expired lease"}
HOW_TO_READ = """\
A fault at every command: a row for each script and what it was made to do, a mark for each of its commands in turn, which
failed; where the script went on, once more along with all after it. Then maintenance ran and the checks were made, and
everything was worked off and counted.
. all as promised   c the same, but it was the next claim that healed what maintenance had left: an entry that costs nobody a turn
L a message lost   2 run twice without an expired lease   W something wedged
"""


IDENTITY = ("script", "scenario", "operation", "flavour", "what", "seed")


def newest(kind: str) -> list[dict[str, Any]]:
    """The last line about each thing."""
    path = RESULTS / f"{kind}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    return list({tuple(result.get(name) for name in IDENTITY): result for result in results}.values())


def rows(results: list[dict[str, Any]]) -> list[str]:
    """The matrix: long rows go on below."""
    printed = []
    for result in results:
        name, marks = f"{result['script']} ({result['scenario']})", result.get("row", "")
        printed += [
            f"{name if start == 0 else '':34} {marks[start : start + WIDTH]}"
            for start in range(0, max(len(marks), 1), WIDTH)
        ]
    return printed


def main() -> int:
    """Prints the matrix, the first problems of each row, and the sums."""
    matrix = newest("commands")
    print(HOW_TO_READ)
    print("\n".join(rows(matrix)))
    for result in matrix:
        for problem in result.get("problems", []):
            print(f"\n{result['script']} ({result['scenario']}): {problem}")
    print()
    status = 0
    for kind, what in KINDS.items():
        results = newest(kind)
        sums = {name: sum(result[name] for result in results) for name in ("faults", *HARM)}
        harm = ", ".join(f"{words} {sums[name]}" for name, words in HARM.items())
        print(f"{sums['faults']:,} {what}: {harm}")
        if not sums["faults"] or any(sums[name] for name in HARM):
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
