"""What commands print: JSON when asked for, tables on a terminal, plain lines separated by tabs elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

_ANY_WIDTH: Final = 10_000


def print_json(value: Any) -> None:
    """One value on one line. Instants are ISO 8601 with their zone, durations seconds."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def visible(text: str) -> str:
    """The text on one line, with what does not print as an escape.

    Errors, reasons and ids come from outside: on a terminal their control characters would clear the screen, hide a
    line, or make one that nobody wrote.
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def print_line(text: str) -> None:
    """One plain line, at once: somebody may wait for it."""
    sys.stdout.write(visible(text) + "\n")
    sys.stdout.flush()


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    numbers: bool = False,
) -> None:
    """A table with a heading on a terminal; elsewhere the rows alone, their cells separated by tabs.

    ``numbers`` sets the last column flush right.
    """
    texts = [[str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        sys.stdout.writelines("\t".join(_on_one_line(cell) for cell in row) + "\n" for row in texts)
        return
    _print_table(columns, texts, title, numbers)


def _on_one_line(cell: str) -> str:
    return visible(" ".join(cell.split()))


def _print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None, numbers: bool
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        last = numbers and column == columns[-1]
        table.add_column(column, justify="right" if last else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))  # Text: a tenant may be called "[bold]"
    console = Console()
    if console.measure(table, options=console.options.update(max_width=_ANY_WIDTH)).maximum > console.width:
        table.padding = 0  # headings that break in words cannot be read
    if title:
        console.print(Text(visible(title)))
    console.print(table)
