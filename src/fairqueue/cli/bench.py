"""``fairqueue bench``: messages a second on this machine."""

from __future__ import annotations

import asyncio
import sys

import click

from fairqueue.bench import BenchOptions, run_bench
from fairqueue.cli.options import SCHEMES, Common, common
from fairqueue.cli.output import print_json, print_rows
from fairqueue.validation import counted

_DEFAULTS = BenchOptions()


@click.command()
@click.option(
    "--tenants", type=int, default=_DEFAULTS.tenants, show_default=True, metavar="T", help="Of the backlog."
)
@click.option(
    "--messages", type=int, default=_DEFAULTS.messages, show_default=True, metavar="N", help="Of the backlog."
)
@click.option(
    "--limit", type=int, default=_DEFAULTS.limit, show_default=True, metavar="L", help="Of each tenant."
)
@click.option(
    "--concurrency",
    type=int,
    default=_DEFAULTS.concurrency,
    show_default=True,
    metavar="C",
    help="Of the worker.",
)
@common(
    url=f"The server: {SCHEMES}. Default: a private, temporary one.",
    name=f'The namespace, for --url; default: "{_DEFAULTS.name}".',
)
def bench(common: Common, tenants: int, messages: int, limit: int, concurrency: int) -> None:
    """Measure enqueue, drain and latency, and what the server itself could do.

    On a private, temporary server unless --url is given; there, in the namespace "bench" unless --name is given.
    One that has messages or workers is refused, and the limits stored under the name are replaced.
    """
    options = BenchOptions(
        tenants,
        messages,
        limit,
        concurrency,
        url=_DEFAULTS.url if common.url is None else common.url,
        name=_DEFAULTS.name if common.name is None else common.name,
    )
    result = asyncio.run(run_bench(options, _say))
    if common.json:
        print_json(result.as_json())
        return
    title = (
        f"{counted(messages, 'message')} of {counted(tenants, 'tenant')}, limit {limit}, on {result.server}"
    )
    print_rows(("what", "figure"), result.rows(), title=title, numbers=True)


def _say(text: str) -> None:
    """How it goes, for those who watch; nothing in a pipe or a log."""
    if sys.stderr.isatty():
        sys.stderr.write(text + "\n")
