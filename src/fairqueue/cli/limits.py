"""``fairqueue limits``: the limits of groups, looked at and changed while all runs."""

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
from fairqueue.states import LimitState, RateState

_COLUMNS = ("limit", "group", "slots", "held", "waiting")
_LISTED = (*_COLUMNS, "guaranteed", "rate")

_group = click.argument("group", metavar="LIMIT")
_id = click.argument("id", metavar="GROUP")


@click.group(no_args_is_help=False)
def limits() -> None:
    """Look at the limits of groups and change them while all runs: from the next claim on.

    LIMIT is the name of a declared limit, GROUP one of its groups: of the limit "tenant" a tenant.
    """


@limits.command("list")
@_group
@common
def list_(common: Common, group: str) -> None:
    """List every group of LIMIT that has a limit or a rate of its own, a held slot or somebody who waits."""

    async def look(queue: FairQueue[Any]) -> list[LimitState]:
        return [state async for state in queue.limits.list(group)]

    states = sorted(asyncio.run(_with_queue(common, look)), key=lambda state: state.id)
    if common.json:
        print_json([asdict(state) for state in states])
    else:
        rows = [(*_cells(state), _or_none(state.guaranteed), _rate(state.rate)) for state in states]
        print_rows(_LISTED, rows)


@limits.command()
@_group
@_id
@common
def get(common: Common, group: str, id: str) -> None:
    """Show GROUP: its limit, what is held and by whom, how many messages wait."""
    _show(common, group, id, _nothing)


@limits.command("set")
@_group
@_id
@click.argument("limit", metavar="SLOTS", callback=or_none(int))
@click.option(
    "--guaranteed",
    type=int,
    metavar="N",
    help="Slots that are this tenant's before anybody's; without it none.",
)
@common
def set_(common: Common, group: str, id: str, limit: int | None, guaranteed: int | None) -> None:
    """Let GROUP hold at most SLOTS slots: 0 admits nothing, none is unlimited."""
    _show(common, group, id, lambda queue: queue.limits.set(group, id, limit, guaranteed=guaranteed))


@limits.command()
@_group
@_id
@common
def reset(common: Common, group: str, id: str) -> None:
    """Take the limit of its own from GROUP: the declared default holds again."""
    _show(common, group, id, lambda queue: queue.limits.reset(group, id))


@limits.command()
@_group
@_id
@click.argument("n", metavar="N", callback=or_none(int))
@click.option(
    "--per", type=float, default=60, show_default=True, metavar="SECONDS", help="N deliveries in this time."
)
@click.option("--burst", type=int, default=1, show_default=True, help="Deliveries at once after a pause.")
@common
def rate(common: Common, *, group: str, id: str, n: int | None, per: float, burst: int) -> None:
    """Deliver at most N messages of GROUP in a time; none takes the rate away."""
    _show(common, group, id, lambda queue: queue.limits.set_rate(group, id, n, per=per, burst=burst))


# --- what all of them do -----------------------------------------------------------------------------------------


async def _nothing(_queue: FairQueue[Any]) -> None:
    """Nothing is changed."""


async def _with_queue(common: Common, use: Callable[[FairQueue[Any]], Awaitable[Any]]) -> Any:
    async with common.queue_that_exists() as queue:
        return await use(queue)


def _show(common: Common, group: str, id_: str, change: Callable[[FairQueue[Any]], Awaitable[None]]) -> None:
    """The group as it is after the change."""

    async def changed(queue: FairQueue[Any]) -> LimitState:
        await change(queue)
        return await queue.limits.get(group, id_)

    state: LimitState = asyncio.run(_with_queue(common, changed))
    if common.json:
        print_json(asdict(state))
        return
    holders = [("held by", f"{tenant}/{message}") for tenant, message in state.holders]
    own = [] if state.guaranteed is None else [("guaranteed", f"{state.guaranteed}")]
    rates = [] if state.rate is None else [("rate", _rate(state.rate)), ("tokens", f"{state.rate.tokens}")]
    rows = [*zip(_COLUMNS, _cells(state), strict=True), *own, *rates, *holders]
    print_rows(("what", "value"), rows, title=f"{common.namespace} at {common.shown_url}")


def _or_none(number: int | None) -> str:
    return "none" if number is None else f"{number}"


def _rate(rate: RateState | None) -> str:
    return "none" if rate is None else f"{rate.n} each {rate.per.total_seconds():g} s, burst {rate.burst}"


def _cells(state: LimitState) -> tuple[str, ...]:
    slots = _or_none(state.limit)
    held = "broken" if state.held is None else f"{state.held}"
    return state.group, state.id, slots, held, f"{state.waiting}"
