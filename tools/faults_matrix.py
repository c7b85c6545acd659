"""Prints what became of the faults that the last run injected.

Exit status 1 if any did harm or had a problem, if none were of some kind, if a case failed, or if anything began and never
said how it ended. The results come from build/faults/, where the tests under tests/faults write them.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from tools import fault_results
from tools.fault_results import HARM, name_of, read, total

WIDTH = 100
KINDS = {
    "commands": "faults at the commands of the scripts",
    "exchanges": "faults at the exchanges of public calls with the server",
    "cancelled": "calls cancelled at random moments",
    "server": "kills of the server, cuts of its append-only file, and keys damaged under load",
}
FINE = {"passed", "skipped"}  # of a case; what is skipped for want of something says so by itself
BESIDES = {"cases": "a test of a reported case", "run": "a run of the tests"}
HOW_TO_READ = """\
A fault at every command: a row for each script and what it was made to do, a mark for each of its commands in turn, which
failed; where the script went on, once more along with all after it. Then maintenance ran and the checks were made, and
everything was worked off and counted; what left exactly what another error at the same command had left has that one's mark.
. all as promised   c the same, but it was the next claim that healed what maintenance had left: an entry that costs nobody a turn
L a message lost   2 run twice without an expired lease   W something wedged
"""


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


def harm_of(results: list[dict[str, Any]]) -> str:
    """What came of them, in words."""
    return ", ".join(f"{words} {total(results, name)}" for name, words in HARM.items())


def main() -> int:
    """Prints the matrix, the first problems of each row, and the sums; the last line is the sum of all."""
    folder = fault_results.FAULTS
    print(HOW_TO_READ)
    print("\n".join(rows(read("commands", folder).ended)))
    print()
    wrong, sums, everything = [], [], []
    for kind, what in KINDS.items():
        results = read(kind, folder)
        everything += results.ended
        for result in results.ended:
            name = name_of(kind, result)
            wrong += [f"{name}: {problem}" for problem in result.get("problems", [])]
        faults, harm = total(results.ended, "faults"), any(total(results.ended, name) for name in HARM)
        sums.append(f"{faults:,} {what}: {harm_of(results.ended)}")
        if not faults or harm:
            wrong.append(f"{kind}: {'harm was done' if faults else 'there were none'}")
    cases = read("cases", folder).ended
    wrong += [f"{name_of('cases', one)}: {one['outcome']}" for one in cases if one["outcome"] not in FINE]
    outcomes = Counter(one["outcome"] for one in cases)
    sums.append(
        f"{len(cases)} tests of reported cases: {', '.join(f'{n} {how}' for how, n in outcomes.items())}"
    )
    sums.append(f"faults injected {total(everything, 'faults'):,}, {harm_of(everything)}")
    for kind in [*KINDS, *BESIDES]:
        for name in read(kind, folder).unfinished:
            wrong.append(f"{name}: began and never said how it ended ({BESIDES.get(kind, kind)})")
    print("\n".join([*wrong, "", *sums] if wrong else sums))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
