"""The proofs as text: a table for the terminal, and below it whatever is not proven."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import groupby

from rich.console import Console
from rich.table import Table

from tests.guards.proof import Proof
from tests.guards.runner import PASSES, Collected, Pair, is_proven

WIDTH = 140
CATALOGUE_HEAD = """# Guards

What the queue promises about slots, waking and delivery, promise by promise: for each a test, and what is taken out of the
code in its counter-proof, under which the test fails. `make guards` runs all of them and prints this table with the outcomes;
[the decision](adr/0004-proven-guards.md) says how. This page is generated: `python -m tests.guards --docs`."""
RULES = {
    "slots 1": "the lease remembers what it holds",
    "slots 2": "in flight first, then the slot",
    "slots 3": "freeing a slot never blocks the transition",
    "slots 4": "a message's own leftover slot never blocks it",
    "slots 5": "reconcile makes slots and deadlines equal to the leases",
    "slots 6": "the order of writes loses nothing",
    "slots 7": "every guard is proven",
    "baton": "who leaves room wakes, who cannot take it hands it on",
    "pauses": "what is paused does not start until it is resumed",
    "cancel": "a cancel is final, a purge complete",
    "guarantee 1": "at least once",
    "guarantee 2": "fenced",
    "guarantee 3": "fair",
    "guarantee 5": "limited",
    "guarantee 6": "in order",
    "guarantee 7": "never early",
    "guarantee 9": "counted",
    "backlog": "no more wait than may, and what was seen is not accepted again",
    "time to live": "what was not started by its instant is never started",
    "rates": "no more in a time than the rate, and whoever waits comes with its token",
    "schema": "who speaks another schema changes nothing",
}
COLUMNS = ("rule", "guard", "taken out", "with", "without")


def printed(collected: Collected) -> str:
    """The table, the runs that did not come out as they must, and a line that sums up."""
    parts = [_table(collected.pairs), *_wrong(collected)]
    unproven = sum(not is_proven(pair) for pair in collected.pairs)
    failed = sum(verdict.word != PASSES for verdict in collected.plain.values())
    guards = len({pair.test for pair in collected.pairs})
    parts.append(
        f"{guards} guards, {len(collected.pairs)} counter-proofs, "
        + ("all proven" if collected.proven else f"{unproven} NOT PROVEN, {failed} other tests failed")
    )
    return "\n".join(parts)


def _table(pairs: list[Pair]) -> str:
    table = Table(box=None, pad_edge=False)
    for title in COLUMNS:
        table.add_column(title, no_wrap=title in ("rule", "with", "without"))
    before = None
    for pair in sorted(pairs, key=lambda pair: place(pair.proof.rule)):
        again = before is not None and before.test == pair.test
        rule, promise = ("", "") if again else (pair.proof.rule, pair.proof.promise)
        table.add_row(rule, promise, pair.mutation.name, pair.intact.word, pair.mutated.word)
        before = pair
    output = io.StringIO()
    Console(file=output, width=WIDTH).print(table)
    return output.getvalue()


def reasons(collected: Collected) -> str:
    """Each counter-proof with the assertion that failed: it has to be about what is promised, not about an error."""
    lines = []
    for pair in collected.pairs:
        lines += [
            f"{pair.proof.rule}: {pair.proof.promise}",
            f"  without {pair.mutation.name}",
            f"    {pair.mutated.why}",
        ]
    return "\n".join(lines)


def catalogue(proofs: Iterable[Proof]) -> str:
    """The proofs as a page of the documentation."""
    lines = [CATALOGUE_HEAD]
    for rule, group in groupby(
        sorted(proofs, key=lambda proof: place(proof.rule)), key=lambda proof: proof.rule
    ):
        lines += [f"\n## {rule.capitalize()}: {RULES[rule]}\n", "| guard | fails without |", "|---|---|"]
        for proof in group:
            names = "; ".join(mutation.name for mutation in proof.mutations)
            lines.append(f"| {proof.promise} | {names} |")
    return "\n".join(lines) + "\n"


def place(rule: str) -> int:
    """Where a rule stands in the table: slots first, then the baton, pauses and cancels, then the guarantees."""
    return list(RULES).index(rule) if rule in RULES else len(RULES)


def _wrong(collected: Collected) -> list[str]:
    found = []
    for pair in collected.pairs:
        if not is_proven(pair):
            found.append(
                f"NOT PROVEN: {pair.test} without {pair.mutation.name!r}: "
                f"{pair.intact.word} with the guard, {pair.mutated.word} without"
            )
            found.append(pair.mutated.details if pair.intact.word == PASSES else pair.intact.details)
    for name, verdict in collected.plain.items():
        if verdict.word != PASSES:
            found.append(f"FAILED: {name}: {verdict.word}\n{verdict.details}")
    if not collected.pairs:
        found.append(collected.output)
    return found
