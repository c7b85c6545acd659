"""Prints what became of the faults that the last run injected, at each command of each script; exit status 1 if any did harm.

The results come from build/faults/, where the tests under tests/faults write them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "build" / "faults"
WIDTH = 100
ELSEWHERE = {
    "exchanges": "faults injected at the exchanges of public calls with the server",
    "cancelled": "calls cancelled at random moments",
    "server": "kills of the server, cuts of its append-only file, and keys damaged under load",
}
HOW_TO_READ = """\
A fault at every command: a row for each script and what it was made to do, a mark for each of its commands in turn, which
failed once with each kind of error and once along with all after it. Then maintenance ran, everything was worked off and
counted. . all as promised   L a message lost   2 run twice without an expired lease   W something wedged
"""


def newest(path: Path) -> list[dict[str, Any]]:
    """The last line about each script and scenario."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return list({(line.get("script"), line.get("scenario")): line for line in lines}.values())


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


def elsewhere(kind: str) -> tuple[int, int]:
    """How many faults of that kind there were, and how many did harm."""
    path = RESULTS / f"{kind}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    return sum(result["faults"] for result in results), sum(result["problems"] for result in results)


def main() -> int:
    """Prints the matrix and the sums."""
    path = RESULTS / "commands.jsonl"
    if not path.exists():
        print("no results: run make faults")
        return 1
    results = newest(path)
    sums = {name: sum(result[name] for result in results) for name in ("faults", "lost", "wedged", "twice")}
    print(HOW_TO_READ)
    print("\n".join(rows(results)))
    print(
        f"\n{sums['faults']:,} faults injected at the commands of {len({one['script'] for one in results})} scripts: "
        f"lost {sums['lost']}, wedged {sums['wedged']}, run twice without an expired lease {sums['twice']}"
    )
    harm = sums["lost"] + sums["wedged"] + sums["twice"]
    for kind, what in ELSEWHERE.items():
        faults, problems = elsewhere(kind)
        harm += problems
        print(f"{faults:,} {what}: {problems} of them did harm")
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main())
