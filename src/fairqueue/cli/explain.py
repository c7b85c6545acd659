"""``fairqueue explain``: why a message is not running."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import click

from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_line
from fairqueue.explanation import Explanation


@click.command()
@click.argument("tenant")
@click.argument("id")
@common
def explain(common: Common, tenant: str, id: str) -> None:
    """Tell why the message ID of TENANT is not running: what stops it, or whose turn comes first.

    A message that is not there is a failure: it is gone (done, cancelled, purged or dropped), or was never enqueued.
    """
    found = asyncio.run(_look(common, tenant, id))
    if common.json:
        print_json(asdict(found) | {"lines": found.lines})
        return
    for line in found.lines:
        print_line(line)


async def _look(common: Common, tenant: str, id_: str) -> Explanation:
    async with common.queue_that_exists() as queue:
        return await queue.explain(tenant, id_)
