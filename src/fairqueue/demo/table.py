"""The demo's table, one figure a row, FIFO beside fair: for a terminal, as plain text, as JSON and for the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairqueue.demo.metrics import Figures, Summary, figures
from fairqueue.demo.result import Replay
from fairqueue.demo.words import column, seconds
from fairqueue.validation import counted


class Row(NamedTuple):
    """One figure in both replays, as text; a heading has no cells."""

    label: str
    cells: tuple[str, ...] = ()
    emphasis: bool = False


def rows(replays: Sequence[Replay]) -> list[Row]:
    """The rows of the table, with one cell a replay."""
    found = [figures(replay) for replay in replays]
    return [
        *_class_rows("small", [each.small for each in found]),
        *_class_rows("large", [each.large for each in found]),
        Row("All tenants"),
        _row(
            "Jain index",
            (f"{each.jain:.3f}" for each in found),
            emphasis=True,
        ),
        Row("Messages, from the handlers' own log"),
        _row("submitted", (f"{each.submitted:,}" for each in found)),
        _row("lost", (str(each.lost) for each in found), emphasis=True),
        _row("run twice", (str(each.run_twice) for each in found), emphasis=True),
        _row("begun again after kill -9", (str(each.redelivered) for each in found)),
        Row("Slots, from the queue"),
        *_slot_rows(replays),
    ]


def _class_rows(which: str, summaries: Sequence[Summary]) -> Iterator[Row]:
    first = summaries[0]
    yield Row(f"{which.capitalize()} tenants: {first.tenants}, with {counted(first.jobs, 'job')}")
    yield _row("wait p50", (seconds(each.wait_p50_s) for each in summaries), emphasis=True)
    yield _row("wait p95", (seconds(each.wait_p95_s) for each in summaries), emphasis=True)
    yield _row("share of worker time", (f"{each.share:.1%}" for each in summaries))


def _slot_rows(replays: Sequence[Replay]) -> Iterator[Row]:
    facts = [replay.facts for replay in replays]
    yield _row("leases taken back, slots freed with them", (str(each.reclaimed) for each in facts))
    yield _row("slots healed by reconcile", (str(each.healed) for each in facts))
    yield _row("slots freed late", (str(each.freed_late) for each in facts))
    yield _row("slots held at the end", (str(each.held) for each in facts), emphasis=True)
    yield _row("findings of audit()", (str(len(each.findings)) for each in facts), emphasis=True)


def _row(label: str, cells: Iterator[str], *, emphasis: bool = False) -> Row:
    return Row(label, tuple(cells), emphasis)


def print_table(console: Console, replays: Sequence[Replay]) -> None:
    """Print the table: drawn and in colour on a terminal that can, in plain ASCII elsewhere."""
    can_draw = console.is_terminal and not console.is_dumb_terminal
    table = Table(box=box.SIMPLE_HEAD if can_draw else box.ASCII2, pad_edge=False)
    table.add_column("")
    for replay in replays:
        table.add_column(column(replay.scheduler), justify="right")
    for row in rows(replays):
        if row.cells:
            style = "bold" if row.emphasis else ""
            table.add_row(Text(f"  {row.label}"), *(Text(cell, style=style) for cell in row.cells))
        else:
            table.add_row(Text(row.label, style="cyan"), *("" for _ in replays))
    console.print(table)


def as_json(replays: Sequence[Replay]) -> dict[str, Any]:
    """Everything the table says, as plain numbers: durations in seconds, shares 0 to 1, one object a scheduler."""
    return {replay.scheduler: _replay_json(replay, figures(replay)) for replay in replays}


def _replay_json(replay: Replay, found: Figures) -> dict[str, Any]:
    facts = asdict(replay.facts)
    return {
        "small": asdict(found.small),
        "large": asdict(found.large),
        "jain": found.jain,
        "submitted": found.submitted,
        "lost": found.lost,
        "run_twice": found.run_twice,
        "redelivered": found.redelivered,
        "killed": None if replay.kill is None else asdict(replay.kill),
        "leases_reclaimed": facts["reclaimed"],
        "slots_healed": facts["healed"],
        "slots_freed_late": facts["freed_late"],
        "slots_held": facts["held"],
        "audit_findings": list(facts["findings"]),
        "in_time": replay.in_time,
        "wall_s": replay.wall_s,
        "submitted_late_s": replay.late_s,
    }
