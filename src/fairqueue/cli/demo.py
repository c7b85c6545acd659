"""``fairqueue demo``: a job log replayed, first in order of arrival, then fairly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairqueue.cli.options import Common, common
from fairqueue.demo import DemoOptions, run_demo
from fairqueue.demo.options import DEFAULT_REPORT, DEFAULT_SECONDS, DEFAULT_WORKERS


@click.command()
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE", help="A job log; default: a cut of one."
)
@click.option(
    "--seconds", type=float, default=DEFAULT_SECONDS, show_default=True, help="For both replays together."
)
@click.option("--workers", type=int, default=DEFAULT_WORKERS, show_default=True, help="Worker processes.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    default=DEFAULT_REPORT,
    show_default=True,
    metavar="FILE",
    help="Where the HTML report goes.",
)
@click.option(
    "--jobs", type=int, metavar="N", help="Of the log, spread evenly; default: what the time allows."
)
@common(url=None, name=None)
def demo(common: Common, **asked: Any) -> int:
    """Replay a log of real jobs as FIFO, then fairly, killing a worker on the way.

    FILE is tab-separated or in the Standard Workload Format, plain or gzipped. It ends with a table and an HTML
    report. The queues live on private servers that end with the demo: --url and --name play no part.
    """
    return run_demo(DemoOptions(**asked, json=common.json))
