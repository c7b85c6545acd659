"""Writes docs/reliability.md: each reported kind of fault, its tests, and what became of them in the last run.

With --check tells whether the page names the tests there are. The results come from build/faults/, where the tests
under tests/faults write them; the tests themselves are read, not imported.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
CASES = ROOT / "tests" / "faults" / "cases"
RESULTS = ROOT / "build" / "faults"

INTRO = """\
# Reliability

<!-- written by tools/reliability.py -->

People who run queues like this one report what went wrong with theirs. Each of the cases below was met by somebody, most
of them several times, in one system or another. Each has at least one test here, on a real server, with real processes
that are really killed and frozen where the case says so. After every test five checks are run on all that is stored:

- **KEEP** every accepted message is in exactly one place: ready, delayed, in flight, dead, or done;
- **SLOTS** the slots of a limit group are exactly those of the messages in flight;
- **OWNER** a message has at most one lease, and every lease its deadline;
- **MOVES** whatever can be claimed takes its turn, and room is never without somebody who was woken for it;
- **CLEAN** when all work is done, only a small, documented set of keys is left.

Where a fault cannot happen in this design (there is no second list of claimed messages, and one script does a whole
transition), its test shows that. "Visibility is 1 s, for 2" means: 1 where the report asks for 2, to keep the run short.
Numbers of rounds, messages and tenants are those of the reports; the short form of a run takes a tenth of them.

M2 is about pausing, and this version has no pause: its test shows what stops a tenant today, a limit of 0.
"""


@dataclass(frozen=True, slots=True)
class Test:
    """One test function: the case it carries, what it is called, and what it says about itself."""

    case: str
    path: str
    name: str
    says: str


def tests() -> Iterator[Test]:
    """Every test that carries the letter of a case, in the order of the files."""
    for path in sorted(CASES.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (case := _case(node)):
                says = " ".join((ast.get_docstring(node) or "").split())
                yield Test(case, path.relative_to(ROOT).as_posix(), node.name, says)


def _case(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.case":
            return str(ast.literal_eval(decorator.args[0]))
    return None


def catalogue() -> tuple[dict[str, str], dict[str, str]]:
    """The kinds and the cases, by letter."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse((CASES / "catalogue.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = ast.literal_eval(node.value)
    return found["KINDS"], found["CASES"]


def last(kind: str, *identity: str) -> list[dict[str, Any]]:
    """The last line written about each thing; older ones are removed from the file."""
    path = RESULTS / f"{kind}.jsonl"
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    newest = {tuple(line[name] for name in identity): line for line in lines}
    path.write_text("".join(json.dumps(line) + "\n" for line in newest.values()), encoding="utf-8")
    return list(newest.values())


def outcomes() -> dict[tuple[str, str], str]:
    """In words, what became of each test function, by file and name."""
    counted: dict[tuple[str, str], Counter[str]] = {}
    for result in last("cases", "test"):
        path, _, name = result["test"].partition("::")
        counted.setdefault((path, name.partition("[")[0]), Counter())[result["outcome"]] += 1
    return {test: _in_words(outcome) for test, outcome in counted.items()}


def _in_words(outcome: Counter[str]) -> str:
    if set(outcome) == {"passed"}:
        return f"passed ({outcome.total()} variants)" if outcome.total() > 1 else "passed"
    return ", ".join(
        f"**{count} {what}**" if what != "passed" else f"{count} passed" for what, count in outcome.items()
    )


def page() -> str:
    """The page's text."""
    kinds, cases = catalogue()
    results, all_tests = outcomes(), list(tests())
    lines = [INTRO, *_summary(len(cases), all_tests, results)]
    for letter, kind in kinds.items():
        lines += [f"## {letter}. {kind}", "", "| case | test | last run |", "|---|---|---|"]
        for case in (name for name in cases if name[0] == letter):
            rows = [test for test in all_tests if test.case == case]
            for position, test in enumerate(rows):
                title = f"**{case}** {cases[case]}" if position == 0 else ""
                lines.append(
                    f"| {title} | {_described(test)} | {results.get((test.path, test.name), 'not run')} |"
                )
        lines.append("")
    return "\n".join(lines)


def _summary(cases: int, all_tests: list[Test], results: dict[tuple[str, str], str]) -> list[str]:
    states = Counter(_state(results.get((test.path, test.name), "not run")) for test in all_tests)
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    cuts = last("commands", "script", "scenario")
    lines = [f"In the last run, of {len(all_tests)} tests of {cases} cases: {counted}."]
    if cuts:
        faults, scripts = _sum(cuts, "faults"), len({cut["script"] for cut in cuts})
        lines.append(
            f"Besides, {faults:,} faults were injected one by one, at {_which(cuts)} that {scripts} scripts send "
            f"in {len(cuts)} scenarios\n(tests/faults/test_every_command.py): {_harm(cuts)}. "
            "After each the maintenance passes ran, the five checks were\nmade, and everything was worked off. "
            "tests/faults/test_every_site.py lists the lines of the scripts that no scenario reaches."
        )
    return [*lines, *_exchanges(), *_chaos(), ""]


def _which(cuts: list[dict[str, Any]]) -> str:
    """The run may have been one of the short form."""
    every = max(cut.get("every", 1) for cut in cuts)
    return "every server command" if every == 1 else f"one in {every} of the server commands"


def _exchanges() -> Iterator[str]:
    """Faults between client and server, calls that were cancelled, and troubles of the server itself."""
    calls, cancelled, server = (
        last("exchanges", "operation", "flavour"),
        last("cancelled", "what"),
        last("server", "what"),
    )
    if calls:
        yield (
            f"{_sum(calls, 'faults'):,} faults were injected at every exchange of {len({call['operation'] for call in calls})} "
            f"public operations with the server, async and sync\n(tests/faults/test_every_exchange.py): {_harm(calls)}."
        )
    if cancelled:
        yield (
            f"{_sum(cancelled, 'faults'):,} calls were cancelled at random moments "
            f"(tests/faults/test_cancelled_anywhere.py):\n{_harm(cancelled)}."
        )
    if server:
        yield (
            f"{_sum(server, 'faults'):,} times the server was killed, its append-only file cut, or a key of it damaged under load"
            f"\n(tests/faults/test_server_trouble.py): {_harm(server)}."
        )


def _chaos() -> Iterator[str]:
    """The last run of ``make chaos``, however short it was."""
    run = max(last("chaos", "seed", "faults"), key=lambda one: one["at"], default=None)
    if run is not None:
        yield (
            f"And `make chaos` killed processes {run['kills']:,} times under load (of {run.get('wanted', run['kills']):,} that were "
            f"asked for), and froze or ended others {run['faults'] - run['kills']:,} times (seed {run['seed']}); "
            f"it found {run['problems']} problems: of "
            f"{run['messages']:,} messages in {run['deliveries']:,}\ndeliveries, {run['repeated']:,} of them again after a lease "
            f"had expired, {run['lost']} were lost, {run['wedged']} stuck, and {run['doubled']} run twice without an expired "
            f"lease;\na limit was exceeded {run['exceeded']} times, by the handlers' own log (tests/chaos)."
        )


def _harm(results: list[dict[str, Any]]) -> str:
    lost, wedged, twice = (_sum(results, what) for what in ("lost", "wedged", "twice"))
    return f"lost {lost}, wedged {wedged}, run twice without an expired lease {twice}"


def _sum(results: list[dict[str, Any]], what: str) -> int:
    return sum(result[what] for result in results)


def _state(result: str) -> str:
    if "failed" in result:
        return "**failed**"
    return "skipped" if "skipped" in result else result.partition(" (")[0]


def _described(test: Test) -> str:
    """The test's name as a sentence, and what it says about itself."""
    sentence = test.name.removeprefix("test_").replace("_", " ")
    link = f"[{sentence[0].upper()}{sentence[1:]}](../{test.path})"
    return f"{link}. {test.says}".replace("|", "\\|") if test.says else link


def up_to_date() -> bool:
    """Does the page name each test, and nothing besides? Results are those of the run that it was written after."""
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return _without_results(written) == _without_results(page())


def _without_results(text: str) -> list[str]:
    return [line.rpartition("|")[0].rpartition("|")[0] for line in text.splitlines() if line.startswith("|")]


def main() -> int:
    """0 when the page is (now) what the tests say."""
    if "--check" in sys.argv:
        return 0 if up_to_date() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
