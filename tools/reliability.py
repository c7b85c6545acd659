"""Writes docs/reliability.md: each reported kind of fault, its tests, and what became of them in the last run.

Without an option it takes the figures of the last runs of ``make faults`` and ``make chaos`` (build/faults, build/chaos),
keeps them in docs/reliability.json, and writes the page from there. They have to be whole runs; --allow-short takes others,
and the page says what they were. --render writes the page again from the figures that are kept: after a test got another
name, say. --check tells whether the page is what these figures and the tests make of it, word for word; and it says, which
is no fault of the page, when the source or the faults have changed since the runs. The tests themselves are read, not
imported.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from tools.fault_figures import Figures, taken
from tools.fault_results import HARM

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURES = ROOT / "docs" / "reliability.md", ROOT / "docs" / "reliability.json"
RUN = ("src", "tests/faults")  # what the figures are of
CASES = ROOT / "tests" / "faults" / "cases"

INTRO = """\
# Reliability

<!-- written by tools/reliability.py from reliability.json and the tests: make reliability -->

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
Numbers of rounds, messages and tenants are those of the reports; the short form of a run takes a tenth of them. `make faults` is
the run (`FAULTS_EVERY=8 make faults` the short form), `make chaos` the one of kills (`make chaos KILLS=30`).

"""


# --- the tests ----------------------------------------------------------------------------------------------------


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


def name_of(test: Test) -> str:
    """As the results have it."""
    return f"{test.path}::{test.name}"


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


# --- the page --------------------------------------------------------------------------------------------------------


def page(figures: Figures) -> str:
    """The page's text: the tests that there are now, and these figures."""
    kinds, cases = catalogue()
    all_tests = list(tests())
    results = {test: _in_words(Counter(figures["cases"].get(name_of(test), {}))) for test in all_tests}
    lines = [INTRO, _summary(len(cases), results, figures), ""]
    for letter, kind in kinds.items():
        lines += [f"## {letter}. {kind}", "", "| case | test | last run |", "|---|---|---|"]
        for case in (name for name in cases if name[0] == letter):
            rows = [test for test in all_tests if test.case == case]
            for position, test in enumerate(rows):
                title = f"**{case}** {cases[case]}" if position == 0 else ""
                lines.append(f"| {title} | {_described(test)} | {results[test]} |")
        lines.append("")
    return "\n".join(lines)


def _in_words(outcome: Counter[str]) -> str:
    if not outcome:
        return "not run"
    if set(outcome) == {"passed"}:
        return f"passed ({outcome.total()} variants)" if outcome.total() > 1 else "passed"
    return ", ".join(
        f"**{count} {what}**" if what != "passed" else f"{count} passed" for what, count in outcome.items()
    )


def _state(result: str) -> str:
    for what in ("failed", "did not end"):
        if what in result:
            return f"**{what}**"
    return "skipped" if "skipped" in result else result.partition(" (")[0]


def _summary(cases: int, results: dict[Test, str], figures: Figures) -> str:
    """In sentences, a paragraph each."""
    states = Counter(map(_state, results.values()))
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    short = (
        [f"**The last run was not whole, or had problems:** {'; '.join(figures['short'])}."]
        if figures["short"]
        else []
    )
    paragraphs = [
        _of_run("make faults", figures["faults"]),
        *short,
        f"In the last run, of {len(results)} tests of {cases} cases: {counted}.",
        *_commands(figures["commands"]),
        *_exchanges(figures),
        *_chaos(figures["chaos"]),
    ]
    return "\n\n".join(fill(text, 120, break_on_hyphens=False, break_long_words=False) for text in paragraphs)


def _of_run(what: str, run: Figures) -> str:
    """What ran, as it wrote down itself."""
    if not run.get("server"):
        return f"The run of `{what}` that the figures are of did not write down its commit, its server and its Python."
    commit = f"commit {run['commit']}" if run["commit"] else "a commit that is not known"
    changed = ", with changes besides," if run["changed"] else ""
    found = f"The figures of `{what}` are of {commit}{changed} on {run['date']}, with {run['server']} and Python {run['python']}."
    return (
        f"{found} What has changed since: `git diff {run['commit']} -- {' '.join(RUN)}`."
        if run["commit"]
        else found
    )


def since(run: Figures) -> str:
    """In words, what the figures do not speak of: a source, or faults, that are not those of the commit that was run."""
    commit = run.get("commit")
    if not commit:
        return "the figures are of a commit that was not written down"
    words = ["git", "-C", str(ROOT), "diff", "--quiet", commit, "HEAD", "--", *RUN]
    status = subprocess.run(words, capture_output=True, check=False).returncode
    if status > 1:
        return f"the figures are of commit {commit}, which is not known here"
    return f"the figures are of commit {commit}: {' or '.join(RUN)} are not those any more" if status else ""


def _commands(cuts: Figures) -> Iterator[str]:
    if not cuts["faults"]:
        return
    which = "every server command" if cuts["every"] == 1 else f"one in {cuts['every']} of the server commands"
    passes = (
        "the maintenance passes ran, the five checks were made, and everything was worked off and counted"
    )
    if cuts["followed"] is None:
        followed = (
            f"Then {passes}; but where an error left exactly what the first one at the same command had left, it was not "
            "followed any further and has that one's verdict (how many these were was not counted)."
        )
    else:
        followed = (
            f"After {cuts['followed']:,} of them {passes}; the other {cuts['faults'] - cuts['followed']:,} left exactly "
            "what the first error at the same command had left, were not followed any further, and have its verdict."
        )
    yield (
        f"Besides, {cuts['faults']:,} faults were injected one by one, at {which} that {cuts['scripts']} scripts send "
        f"in {cuts['scenarios']} scenarios (tests/faults/test_every_command.py): {_harm(cuts)}. {followed} "
        f"At {cuts['healed']:,} of the {cuts['commands']:,} commands something was left that the next claim healed. "
        "tests/faults/test_every_site.py lists the lines of the scripts that no scenario reaches."
    )


def _exchanges(figures: Figures) -> Iterator[str]:
    """Faults between client and server, calls that were cancelled, and troubles of the server itself."""
    calls, cancelled, server = figures["exchanges"], figures["cancelled"], figures["server"]
    if calls["faults"]:
        acts = f"{calls['acts']} acts"
        made = (
            acts
            if calls["operations"] is None
            else f"{calls['operations']} public operations, made in {acts},"
        )
        yield (
            f"{calls['faults']:,} faults were injected at every exchange of {made} with the server, async and sync "
            f"(tests/faults/test_every_exchange.py): {_harm(calls)}."
        )
    if cancelled["faults"]:
        yield (
            f"{cancelled['faults']:,} calls were cancelled at random moments "
            f"(tests/faults/test_cancelled_anywhere.py): {_harm(cancelled)}."
        )
    if server["faults"]:
        yield (
            f"{server['faults']:,} times the server was killed, its append-only file cut, or a key of it damaged under load "
            f"(tests/faults/test_server_trouble.py): {_harm(server)}."
        )


def _chaos(run: Figures) -> Iterator[str]:
    """The last run of ``make chaos``, however short it was."""
    if "failed" in run:
        yield f"The last run of `make chaos` **did not come to its end**: {run['failed']}."
    elif run:
        asked = f" (of {run['wanted']:,} that were asked for)" if run["wanted"] else ""
        found = "" if run["problems"] is None else f"it found {run['problems']} problems: "
        yield (
            f"And `make chaos` killed processes {run['kills']:,} times under load{asked}, and froze or ended others "
            f"{run['faults'] - run['kills']:,} times (seed {run['seed']}); {found}of {run['messages']:,} messages in "
            f"{run['deliveries']:,} deliveries, {run['repeated']:,} of them again after a lease had expired, {run['lost']} "
            f"were lost, {run['wedged']} stuck, and {run['doubled']} run twice without an expired lease; a limit was "
            f"exceeded {run['exceeded']} times, by the handlers' own log (tests/chaos). {_flow(run)}{_of_run('make chaos', run)}"
        )


def _flow(run: Figures) -> str:
    """A run from before there was any of it has none of its figures."""
    if "forbidden" not in run:
        return ""
    return (
        f"Meanwhile {run['pauses']:,} pauses stood, {run['cancels']:,} cancels were answered, {run['expired']:,} messages "
        f"expired and {run['rated']:,} deliveries were under a rate, all with weights and guarantees that changed: "
        f"{run['forbidden']} were started although they were paused, cancelled, expired or out of tokens. "
    )


def _harm(figures: Figures) -> str:
    harm = ", ".join(f"{words} {figures[what]}" for what, words in HARM.items())
    return f"{harm}, with **problems in {', '.join(figures['problems'])}**" if figures["problems"] else harm


def _described(test: Test) -> str:
    """The test's name as a sentence, and what it says about itself."""
    sentence = test.name.removeprefix("test_").replace("_", " ")
    link = f"[{sentence[0].upper()}{sentence[1:]}](../{test.path})"
    return f"{link}. {test.says}".replace("|", "\\|") if test.says else link


# --- what there is to do ---------------------------------------------------------------------------------------------


def kept() -> Figures:
    """The figures that the page was written with."""
    figures: Figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    return figures


def main(options: list[str]) -> int:
    """0 when the page is (now) what the tests and the figures say."""
    if "--check" in options:
        for what in ("faults", "chaos"):
            if older := since(kept()[what]):
                print(f"make {what}: {older}", file=sys.stderr)
        return 0 if PAGE.read_text(encoding="utf-8") == page(kept()) else 1
    if "--render" not in options:
        figures = taken([name_of(test) for test in tests()])
        nothing = not figures["cases"] and not figures["chaos"]
        if nothing or (figures["short"] and "--allow-short" not in options):
            print(
                "\n".join(["The last run was not whole, or had problems:", *figures["short"]]),
                file=sys.stderr,
            )
            print("`make faults chaos` makes whole ones; --allow-short takes it as it is.", file=sys.stderr)
            return 1
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(kept()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
