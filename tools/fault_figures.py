"""The figures of the last runs of ``make faults`` and ``make chaos``, out of what they have written down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any

from tools import fault_results
from tools.fault_results import HARM, Results, name_of, read, total

WHOLE_KILLS = 1000
SURROUNDINGS = ("commit", "changed", "date", "server", "python")
Figures = dict[str, Any]
"""As they are kept in docs/reliability.json."""


def taken(expected: Collection[str]) -> Figures:
    """What build/ has; ``short``: why that is no whole run of the ``expected`` tests of cases and all the others."""
    kinds = ("cases", "commands", "exchanges", "cancelled", "server")
    found = {kind: read(kind, fault_results.FAULTS) for kind in kinds}
    run, chaos = read("run", fault_results.FAULTS), read("runs", fault_results.CHAOS)
    ran = {line.get("run") for results in found.values() for line in results.ended}
    runs = [line for line in run.ended if line["run"] in ran]
    figures: Figures = {"faults": _surroundings(runs[-1]) if runs else {}}
    figures["cases"] = _outcomes(found["cases"])
    for kind in kinds[1:]:
        figures[kind] = _harm_of(kind, found[kind].ended)
    figures["commands"] |= _of_commands(found["commands"].ended)
    figures["exchanges"] |= _of_exchanges(found["exchanges"].ended)
    figures["chaos"] = _of_chaos(chaos)
    missing = sorted(set(expected) - figures["cases"].keys())
    few = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    not_run = [f"{len(missing)} tests of cases were not run: {few}"] if missing else []
    wrong = [f"{kind} had problems: {name}" for kind in kinds[1:] for name in figures[kind]["problems"]]
    figures["short"] = [*_short(found, run, ran), *not_run, *wrong, *_short_chaos(figures["chaos"])]
    return figures


def _surroundings(run: dict[str, Any]) -> Figures:
    """Of a run: it has written them down itself."""
    return {name: run.get(name) for name in SURROUNDINGS} | {
        "date": f"{datetime.fromtimestamp(run['at'], UTC):%Y-%m-%d}"
    }


def _outcomes(cases: Results) -> dict[str, dict[str, int]]:
    """How often each test function, by file and name, came to which end."""
    counted: dict[str, Counter[str]] = {}
    for result in cases.ended:
        counted.setdefault(result["test"].partition("[")[0], Counter())[result["outcome"]] += 1
    for name in cases.unfinished:
        counted.setdefault(name.partition("[")[0], Counter())["did not end"] += 1
    return {test: dict(sorted(counted[test].items())) for test in sorted(counted)}


def _harm_of(kind: str, results: list[dict[str, Any]]) -> Figures:
    """``problems``: the names of what had any."""
    sums = {what: total(results, what) for what in ("faults", *HARM)}
    return sums | {"problems": [name_of(kind, result) for result in results if result.get("problems")]}


def _of_commands(cuts: list[dict[str, Any]]) -> Figures:
    """``followed``: of how many faults all that came was looked at; None: that was not counted.

    ``healed``: at how many of the ``commands`` something was left that the next claim healed.
    """
    marks = "".join(cut.get("row", "") for cut in cuts).replace(" ", "")
    counted = bool(cuts) and all("followed" in cut for cut in cuts)
    return {
        "scripts": len({cut["script"] for cut in cuts}),
        "scenarios": len(cuts),
        "every": max((cut.get("every", 1) for cut in cuts), default=1),
        "followed": total(cuts, "followed") if counted else None,
        "commands": len(marks),
        "healed": marks.count("c"),
    }


def _of_exchanges(calls: list[dict[str, Any]]) -> Figures:
    """An act is a way to make public calls: ``operations`` are those; None: they were not written down."""
    noted = bool(calls) and all("covers" in call for call in calls)
    operations = {name for call in calls for name in call.get("covers", [])}
    return {
        "acts": len({call["operation"] for call in calls}),
        "operations": len(operations) if noted else None,
    }


def _of_chaos(runs: Results) -> Figures:
    """The last run, however it ended."""
    if runs.unfinished:
        return {"failed": "it began and never said how it ended"}
    if not runs.ended:
        return {}
    run = runs.ended[-1]
    if "failed" in run:
        return _surroundings(run) | {"failed": run["failed"]}
    what = ("seed", "wanted", "kills", "faults", "problems", "messages", "deliveries", "repeated",
            "lost", "wedged", "doubled", "exceeded",
            "forbidden", "pauses", "cancels", "expired", "rated")  # fmt: skip
    return _surroundings(run) | {name: run[name] for name in what if name in run}


def _short(found: dict[str, Results], run: Results, ran: set[str | None]) -> Iterator[str]:
    """Why the results are not those of one whole run of the tests that came to its end."""
    for kind, results in found.items():
        if not results.ended:
            yield f"nothing was written down of {kind}"
        for name in results.unfinished:
            yield f"{name} ({kind}) began and never said how it ended"
    every = max((line.get("every", 1) for results in found.values() for line in results.ended), default=1)
    if every > 1:
        yield f"one in {every} of the commands failed, and the cases were a tenth of their size"
    if len(ran) > 1:
        yield f"the results are of {len(ran)} runs"
    for name in sorted(str(one) for one in ran):
        line = next((line for line in run.ended if line["run"] == name), None)
        if line is None:
            yield f"run {name} did not write down how it ended"
        elif not line["whole"] or line["status"] not in {0, 1}:  # 1: tests failed, and the page tells which
            yield f"run {name} was not of all tests under tests/faults, or was ended"


def _short_chaos(run: Figures) -> Iterator[str]:
    if not run:
        yield "no run of make chaos was written down"
    elif "failed" in run:
        yield f"the last run of make chaos did not come to its end: {run['failed']}"
    elif run["wanted"] < WHOLE_KILLS:
        yield f"make chaos was asked for {run['wanted']} kills, not for {WHOLE_KILLS:,}"
