"""What the commands that change settings share."""

from __future__ import annotations

from collections.abc import Callable

import click

__all__ = ["or_none"]

Parsed = Callable[[click.Context, click.Parameter, str], "float | None"]


def or_none(kind: type[int] | type[float]) -> Parsed:
    """The callback of an argument that is a number or the word ``none``: for click None is an argument that is missing."""

    def parsed(context: click.Context, parameter: click.Parameter, value: str) -> float | None:
        if value == "none":
            return None
        try:
            return kind(value)
        except ValueError:
            wanted = "an integer" if kind is int else "a number"
            raise click.BadParameter(
                f"expected {wanted} or none, got {value!r}", context, parameter
            ) from None

    return parsed
