"""``fairqueue tenants``: who has messages, of what weight, and how many may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import click

from fairqueue.cli.control_options import or_none
from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_rows
from fairqueue.queue import FairQueue
from fairqueue.states import TenantState

_COLUMNS = ("tenant", "weight", "ready", "blocked", "delayed", "in_flight", "dead")

_tenant = click.argument("tenant")


@click.group(no_args_is_help=False)
def tenants() -> None:
    """Look at the tenants that have messages, give them weights and bound their backlogs, while all runs."""


@tenants.command("list")
@common
def list_(common: Common) -> None:
    """List every tenant with messages, dead letters included."""
    states = asyncio.run(_all(common))
    if common.json:
        print_json([asdict(state) for state in states])
    else:
        print_rows(_COLUMNS, map(_cells, states), numbers=True)


@tenants.command()
@_tenant
@common
def get(common: Common, tenant: str) -> None:
    """Show what TENANT has where; all zero when it has nothing."""
    _show(common, tenant)


@tenants.command()
@_tenant
@click.argument("weight", type=float)
@common
def weight(common: Common, tenant: str, weight: float) -> None:
    """Give TENANT the weight WEIGHT, 0.01 to 100: while both have work, 2 is served twice what 1 is."""
    _show(common, tenant, lambda queue: queue.tenants.set_weight(tenant, weight))


@tenants.command()
@_tenant
@click.argument("limit", metavar="MESSAGES", callback=or_none(int))
@common
def backlog(common: Common, tenant: str, limit: int | None) -> None:
    """Refuse what TENANT enqueues while MESSAGES of its messages wait; none takes the bound away."""
    _show(common, tenant, lambda queue: queue.limits.set_backlog(tenant, limit))


async def _all(common: Common) -> list[TenantState]:
    async with common.queue_that_exists() as queue:
        return sorted([state async for state in queue.tenants.list()], key=lambda state: state.tenant)


def _show(
    common: Common, tenant: str, change: Callable[[FairQueue[Any]], Awaitable[None]] | None = None
) -> None:
    """The tenant as it is after the change."""

    async def look() -> TenantState:
        async with common.queue_that_exists() as queue:
            if change:
                await change(queue)
            return await queue.tenants.get(tenant)

    state = asyncio.run(look())
    if common.json:
        print_json(asdict(state))
        return
    bound = "none" if state.backlog is None else f"{state.backlog}"
    rows = [*zip(_COLUMNS, _cells(state), strict=True), ("backlog", bound)]
    print_rows(("what", "value"), rows, title=f"{common.namespace} at {common.shown_url}", numbers=True)


def _cells(state: TenantState) -> tuple[str, ...]:
    counts = (state.ready, state.blocked, state.delayed, state.in_flight, state.dead)
    return state.tenant, f"{state.weight:g}", *map(str, counts)
