"""The options that every command which runs until it is told to stop has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fairqueue.cli.logs import LEVELS

F = TypeVar("F", bound=Callable[..., Any])

_reclaim = click.option(
    "--reclaim-interval",
    type=float,
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="Between looks for expired leases; 0: never.",
)
_reconcile = click.option(
    "--reconcile-interval",
    type=float,
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Between repairs of slots; 0: never.",
)


def maintenance_options(command: F) -> F:
    """The intervals of its maintenance."""
    return _reclaim(_reconcile(command))


log_option = click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Of what is logged on standard error.",
)
