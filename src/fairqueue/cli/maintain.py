"""``fairqueue maintain``: promote, reclaim and reconcile on their intervals, without a worker."""

from __future__ import annotations

import asyncio
import logging

import click

from fairqueue.cli.logs import log_to_stderr
from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_line
from fairqueue.cli.service import log_option, maintenance_options
from fairqueue.inside import engine_of
from fairqueue.maintenance.service import Maintenance
from fairqueue.signals import stop_signals

_log = logging.getLogger("fairqueue")


@click.command()
@maintenance_options
@log_option
@common
def maintain(common: Common, reclaim_interval: float, reconcile_interval: float, log_level: str) -> None:
    """Keep a namespace whole until SIGTERM or SIGINT.

    Every worker does the same beside its work: this is for namespaces whose workers sleep, or claim by hand. An
    interval of 0 turns that duty off.
    """
    log_to_stderr(log_level, as_json=common.json)
    asyncio.run(_maintain(common, reclaim_interval, reconcile_interval))


async def _maintain(common: Common, reclaim_interval: float, reconcile_interval: float) -> None:
    stop = asyncio.Event()
    if common.missing:
        _log.warning(common.made)
    with stop_signals(stop.set):
        async with common.queue(
            reclaim_interval=reclaim_interval, reconcile_interval=reconcile_interval
        ) as queue:
            maintenance = Maintenance(engine_of(queue))
            await maintenance.start()
            if common.json:
                print_json({"maintaining": queue.name})
            else:
                print_line(f"maintaining {queue.name} at {common.shown_url}")
            await stop.wait()
            await maintenance.stop()
