"""``fairqueue fairness``: who was served what in the last minutes, and what each was entitled to."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import timedelta

import click

from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_line, print_rows
from fairqueue.fairness_report import FairnessReport, TenantFairness

_COLUMNS = (
    "tenant", "weight", "due", "share", "lag", "starts", "waiting", "p50", "p95", "longest", "starved",
)  # fmt: skip


@click.command()
@click.option("--window", type=float, default=900, show_default=True, metavar="SECONDS", help="60 to 3600.")
@common
def fairness(common: Common, window: float) -> None:
    """Tell which share of the service each tenant was entitled to, which it got, and how long it waited.

    Those that are farthest behind come first. A share is a part of all that was served.
    """
    found = asyncio.run(_look(common, window))
    if common.json:
        print_json({"name": common.namespace, **asdict(found)})
        return
    title = f"{common.namespace} at {common.shown_url}"
    print_rows(_COLUMNS, [_row(one) for one in found.tenants], title=title)
    print_line(f"served {found.served:,.10g} since {found.since:%H:%M:%S} UTC, Jain index {found.jain:.3f}")


async def _look(common: Common, window: float) -> FairnessReport:
    async with common.queue_that_exists() as queue:
        return await queue.fairness(window)


def _row(one: TenantFairness) -> tuple[str, ...]:
    waits = (one.wait_p50, one.wait_p95, one.longest_wait, one.starved)
    return (
        one.tenant, f"{one.weight:g}", f"{one.entitlement:.1%}", f"{one.share:.1%}", f"{one.lag:,.6g}",
        f"{one.deliveries}", f"{one.waiting}", *map(_seconds, waits),
    )  # fmt: skip


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.3g} s"
