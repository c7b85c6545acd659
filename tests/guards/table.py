"""The proofs as text: a table for the terminal, and below it whatever is not proven."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from tests.guards.runner import PASSES, Collected, Pair, is_proven

WIDTH = 140
COLUMNS = ("rule", "guard", "taken out", "with", "without")


def printed(collected: Collected) -> str:
    """The table, the runs that did not come out as they must, and a line that sums up."""
    parts = [_table(collected.pairs), *_wrong(collected)]
    bad = sum(not is_proven(pair) for pair in collected.pairs)
    guards = len({pair.test for pair in collected.pairs})
    parts.append(
        f"{guards} guards, {len(collected.pairs)} counter-proofs, "
        + ("all proven" if collected.proven else f"{bad} NOT PROVEN")
    )
    return "\n".join(parts)


def _table(pairs: list[Pair]) -> str:
    table = Table(box=None, pad_edge=False)
    for title in COLUMNS:
        table.add_column(title, no_wrap=title in ("rule", "with", "without"))
    before = None
    for pair in pairs:
        again = before is not None and before.test == pair.test
        rule, promise = ("", "") if again else (pair.proof.rule, pair.proof.promise)
        table.add_row(rule, promise, pair.mutation.name, pair.intact.word, pair.mutated.word)
        before = pair
    output = io.StringIO()
    Console(file=output, width=WIDTH).print(table)
    return output.getvalue()


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
