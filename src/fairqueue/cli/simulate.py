"""``fairqueue simulate``: what would a workload get, with these limits and workers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import click

from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_rows
from fairqueue.validation import counted

if TYPE_CHECKING:
    from fairqueue.simulate import LimitUse, Share, Simulated, Workload

_COLUMNS = ("tenants", "sent", "done", "waiting", "p50 s", "p95 s", "max s", "done/s", "share", "used")
_LIMIT_COLUMNS = ("limit", "slots", "held", "most", "full")
_MOST_LIMITS: Final = 10
_NEWS_EVERY_S: Final = 1


@click.command()
@click.argument("workload", type=click.Path(path_type=Path))
@click.option(
    "--compare", type=click.Path(path_type=Path), metavar="FILE", help="A second workload, shown beside it."
)
@click.option("--seed", type=int, metavar="N", help="Other draws than those of the file's seed.")
@common(url=None, name=None)
def simulate(common: Common, workload: Path, compare: Path | None, seed: int | None) -> None:
    """Run a workload on the real engine under a virtual clock, and tell who would wait how long.

    WORKLOAD is a YAML file (or JSON, .json): tenants, what they send and when, limits, workers. The run has a private
    server of its own: --url and --name play no part. The same file and seed give the same output.
    """
    from fairqueue.simulate import load_workload

    files = [workload] if compare is None else [workload, compare]
    loaded = [load_workload(path) for path in files]
    if seed is not None:
        loaded = [one.with_seed(seed) for one in loaded]
    runs = asyncio.run(_runs(loaded))
    if common.json:
        found = [{"workload": str(path), **run.as_json()} for path, run in zip(files, runs, strict=True)]
        print_json({"runs": found})
        return
    _print(_names(files), runs)


async def _runs(workloads: Sequence[Workload]) -> list[Simulated]:
    from fairqueue.simulate import simulate as run

    with _News() as news:
        return [await run(workload, partial(news.tell, workload.duration_s)) for workload in workloads]


class _News:
    """Tells people at a terminal how far the run is: one of millions of messages takes long."""

    def __init__(self) -> None:
        self._wanted, self._next = sys.stderr.isatty(), time.monotonic() + _NEWS_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")

    def tell(self, duration_s: float, now_s: float, sent: int) -> None:
        if self._wanted and time.monotonic() >= self._next:
            self._next = time.monotonic() + _NEWS_EVERY_S
            self._write(f"{now_s:,.0f} of {duration_s:,.0f} s, {counted(sent, 'message')}")

    def _write(self, text: str) -> None:
        if self._wanted:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()


def _names(files: Sequence[Path]) -> list[str]:
    """The files by their last name, where that tells them apart."""
    return (
        [one.name for one in files]
        if len({one.name for one in files}) == len(files)
        else [str(one) for one in files]
    )


def _print(names: Sequence[str], runs: Sequence[Simulated]) -> None:
    """Of two workloads each line says in its first cell which."""
    named = list(zip(names, runs, strict=True))
    entries = [(name, share) for name, run in named for share in run.entries]
    if _alike(runs):  # each with its counterpart below
        order = [share.name for share in runs[0].entries]
        entries.sort(key=lambda entry: order.index(entry[1].name))
    which = len(runs) > 1
    _print_rows(
        which, _COLUMNS, [(name, *_cells(share)) for name, share in entries], "\n".join(map(_title, runs))
    )
    limits = [(name, *cells) for name, run in named for cells in _limit_rows(run.limits)]
    if limits:
        _print_rows(which, _LIMIT_COLUMNS, limits, "Limits that were full at times")


def _print_rows(which: bool, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    if which:
        print_rows(("workload", *columns), rows, title=title)
    else:
        print_rows(columns, [row[1:] for row in rows], title=title)


def _alike(runs: Sequence[Simulated]) -> bool:
    """The entries have the same names."""
    return len({tuple(share.name for share in run.entries) for run in runs}) == 1


def _title(run: Simulated) -> str:
    ends = (("expired", run.expired), ("refused", run.refused))
    lost = "".join(f"{number:,} {what}, " for what, number in ends if number)
    return (
        f"{run.duration_s:g} s, seed {run.seed}, {run.scheduler}, {run.capacity} at once: "
        f"{run.sent:,} sent, {run.done:,} done, {run.waiting:,} wait, {lost}workers {run.utilisation:.1%} used"
    )


def _cells(share: Share) -> tuple[str, ...]:
    name = share.name if share.tenants == 1 else f"{share.name} x{share.tenants}"
    return (
        name, f"{share.sent}", f"{share.done}", f"{share.waiting}",
        _seconds(share.wait_p50_s), _seconds(share.wait_p95_s), _seconds(share.wait_max_s),
        f"{share.done_per_s:.2f}", f"{share.share:.1%}", f"{share.utilisation:.1%}",
    )  # fmt: skip


def _limit_rows(limits: Sequence[LimitUse]) -> Iterator[tuple[str, ...]]:
    """Those that were full, the fullest first."""
    full = sorted((use for use in limits if use.full), key=lambda use: -use.full)
    for use in full[:_MOST_LIMITS]:
        yield (
            f"{use.group}:{use.id}", "-" if use.limit is None else f"{use.limit}",
            f"{use.held_mean:.2f}", f"{use.held_max}", f"{use.full:.1%}",
        )  # fmt: skip


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
