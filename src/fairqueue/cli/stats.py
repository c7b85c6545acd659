"""``fairqueue stats``: how much is where, of a namespace or of one tenant."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_rows
from fairqueue.validation import shown


@click.command()
@click.option("--tenant", metavar="TENANT", help="One tenant instead of the namespace, and its queues.")
@common
def stats(common: Common, tenant: str | None) -> None:
    """Count what is ready, delayed, in flight, dead and blocked, and what happened so far.

    A queue that is not there is said to be missing, not made.
    """
    found = asyncio.run(_look(common, tenant))
    if tenant is not None and not any(found[state] for state in ("ready", "delayed", "in_flight", "dead")):
        sys.stderr.write(f"fairqueue: tenant {shown(tenant)} has no messages in {common.namespace}\n")
    if common.json:
        print_json(found)
        return
    title = f"{common.namespace} at {common.shown_url}"
    print_rows(("what", "value"), list(_rows(found)), title=title, numbers=True)


async def _look(common: Common, tenant: str | None) -> dict[str, Any]:
    async with common.queue_that_exists() as queue:
        found = {"name": queue.name, "url": common.shown_url, **asdict(await queue.stats(tenant))}
        if tenant is None:
            found["workers"] = [asdict(worker) async for worker in queue.workers()]
        else:
            found["queues"] = [asdict(one) async for one in queue.queues(tenant)]
        return found


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        if name == "totals":
            yield from ((f"total {total}", _text(count)) for total, count in value.items())
        elif name == "workers":
            yield "workers", f"{len(value)}"
        elif name == "queues":
            yield from ((f"queue {one['queue']} in pool {one['pool']}", f"{one['ready']}") for one in value)
        else:
            yield name, _text(value)


def _text(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.1f} s"
    return "-" if value is None else str(value)
