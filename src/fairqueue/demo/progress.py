"""How a replay goes, while it goes: a live line and bars on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fairqueue.validation import counted

PLAIN_EVERY_S = 4.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a replay under way."""

    scheduler: str
    elapsed_s: float
    total: int
    submitted: int
    done: int
    waiting: int
    running: int
    workers: int


class Screen(Protocol):
    """Where a replay tells how it goes."""

    def note(self, text: str) -> None:
        """Something happened that stays in the output."""

    def show(self, snapshot: Snapshot) -> None:
        """This is how it stands."""


@contextmanager
def screen_for(console: Console) -> Iterator[Screen]:
    """The right screen for this console, for the time of the ``with`` block."""
    if not console.is_terminal or console.is_dumb_terminal:  # TERM=dumb cannot move a bar in place
        yield PlainScreen(console)
        return
    with LiveScreen(console) as live:
        yield live


class PlainScreen:
    """Plain lines: every note, and how it stands every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def note(self, text: str) -> None:
        """Print it."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, snapshot: Snapshot) -> None:
        """Print it if the last one was a while ago."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_EVERY_S
            self.note(f"{snapshot.scheduler:<5}{snapshot.elapsed_s:5.1f} s  {_figures(snapshot)}")


class LiveScreen:
    """One bar a replay that moves in place; notes go above it."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description:<5}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[seconds]:5.1f} s"),
            TextColumn("{task.fields[figures]}"),
            console=console,
            refresh_per_second=5,
        )
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> LiveScreen:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        """Print it above the bars."""
        self._progress.console.print(text, markup=False, highlight=False)

    def show(self, snapshot: Snapshot) -> None:
        """Move the bar of this replay."""
        name, elapsed_s, figures = snapshot.scheduler, snapshot.elapsed_s, _figures(snapshot)
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=snapshot.total, seconds=0.0, figures="")
        self._progress.update(self._bars[name], completed=snapshot.done, seconds=elapsed_s, figures=figures)


def _figures(snapshot: Snapshot) -> str:
    return (
        f"{snapshot.done:,} of {snapshot.total:,} done, {snapshot.waiting:,} waiting, "
        f"{snapshot.running} in flight, {counted(snapshot.workers, 'worker')}"
    )
