"""The options that every command which runs until it is told to stop has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fairqueue.cli.logs import LEVELS

F = TypeVar("F", bound=Callable[..., Any])


def _interval(duty: str, default: int, between: str) -> Callable[[F], F]:
    return click.option(
        f"--{duty}-interval",
        type=float,
        default=default,
        show_default=True,
        metavar="SECONDS",
        help=f"Between {between}; 0: never.",
    )


def maintenance_options(command: F) -> F:
    """The intervals of its maintenance."""
    reclaim = _interval("reclaim", 5, "looks for expired leases")
    return reclaim(_interval("reconcile", 60, "repairs of slots")(command))


log_option = click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Of what is logged on standard error.",
)
