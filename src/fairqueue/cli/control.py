"""``fairqueue pause``, ``resume``, ``cancel`` and ``purge``: what an operator does to work that is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_line, print_rows

F = TypeVar("F", bound=Callable[..., Any])
_NOT_FOUND = 1  # the exit status


def _selectors(command: F) -> F:
    """Several together are one pause, of what has all of them."""
    for name, what in (
        ("pool", "the messages of this pool"),
        ("queue", "the queues of this name"),
        ("tenant", "this tenant"),
    ):
        command = click.option(f"--{name}", metavar=name.upper(), help=f"Only {what}.")(command)
    return command


@click.command()
@_selectors
@click.option("--by", metavar="WHO", help="Who pauses, for others to read.")
@click.option("--reason", metavar="TEXT", help="Why.")
@click.option("--list", "only_list", is_flag=True, help="Pause nothing: list the pauses that stand.")
@common
def pause(common: Common, only_list: bool, **given: str | None) -> None:
    """Start nothing new of a tenant, a queue, a pool, or of what has several of these, until it is resumed.

    What is in flight goes on. A pause outlives restarts; it is independent of other pauses and of limits.
    """
    if only_list:
        _show(common, asyncio.run(_list(common)))
        return
    new = asyncio.run(_pause(common, given))
    _tell(
        common,
        {"paused": True, "new": new},
        "paused" if new else "was paused already: by and reason are replaced",
    )


async def _pause(common: Common, given: dict[str, str | None]) -> bool:
    async with common.queue_that_exists() as queue:
        return await queue.pause(**given)


async def _list(common: Common) -> list[dict[str, Any]]:
    async with common.queue_that_exists() as queue:
        return [asdict(pause) async for pause in queue.pauses()]


def _show(common: Common, found: list[dict[str, Any]]) -> None:
    if common.json:
        print_json(found)
        return
    columns = ("tenant", "queue", "pool", "since", "by", "reason")
    rows = [["-" if one[name] is None else one[name] for name in columns] for one in found]
    print_rows(columns, rows, title=f"{common.namespace} at {common.shown_url}")


def _tell(common: Common, answer: dict[str, Any], text: str) -> None:
    if common.json:
        print_json(answer)
    else:
        print_line(text)


@click.command()
@_selectors
@common
def resume(common: Common, **given: str | None) -> int:
    """Lift the pause of exactly these selectors, and no other.

    Exit status 1 where there is no such pause: `fairqueue pause --list` shows those that stand.
    """
    stood = asyncio.run(_resume(common, given))
    _tell(common, {"resumed": stood}, "resumed" if stood else "there is no such pause")
    return 0 if stood else _NOT_FOUND


async def _resume(common: Common, given: dict[str, str | None]) -> bool:
    async with common.queue_that_exists() as queue:
        return await queue.resume(**given)


@click.command()
@click.argument("tenant")
@click.argument("id")
@common
def cancel(common: Common, tenant: str, id: str) -> int:
    """End one message, wherever it is.

    Prints cancelled; or cancelling where it runs: its handler is told, and it ends with this delivery. Exit status 1 where
    there is no such message: not_found.
    """
    outcome = asyncio.run(_cancel(common, tenant, id))
    _tell(common, {"outcome": outcome}, outcome)
    return _NOT_FOUND if outcome == "not_found" else 0


async def _cancel(common: Common, tenant: str, id_: str) -> str:
    async with common.queue_that_exists() as queue:
        return await queue.cancel(tenant, id_)


@click.command()
@click.argument("tenant")
@click.option("--queue", metavar="QUEUE", help="Only the queue of this name.")
@common
def purge(common: Common, tenant: str, queue: str | None) -> None:
    """End all messages of a tenant that wait: ready or delayed. What runs goes on, dead letters stay."""
    purged = asyncio.run(_purge(common, tenant, queue))
    _tell(common, {"purged": purged}, f"{purged} purged")


async def _purge(common: Common, tenant: str, of_queue: str | None) -> int:
    async with common.queue_that_exists() as queue:
        return await queue.purge(tenant, of_queue)
