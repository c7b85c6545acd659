"""Options that every command takes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from fairqueue.config import parse_url
from fairqueue.queue import FairQueue, resolved_url

DEFAULT_NAME = "default"


@dataclass(frozen=True, slots=True)
class Common:
    """What ``--url``, ``--name`` and ``--json`` say."""

    url: str | None
    name: str | None
    json: bool

    @property
    def namespace(self) -> str:
        """The namespace to use."""
        return DEFAULT_NAME if self.name is None else self.name

    @property
    def shown_url(self) -> str:
        """The server for people to read, without its password."""
        return str(parse_url(resolved_url(self.url)))

    def queue(self, **options: Any) -> FairQueue[Any]:
        """A client of that server and namespace; it declares nothing, so what is stored there stays."""
        return FairQueue(self.url, self.namespace, **options)


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the three options; the command gets them as one argument ``common``."""

    @functools.wraps(function)
    def collected(url: str | None, name: str | None, as_json: bool, **others: Any) -> Any:
        return function(Common(url, name, as_json), **others)

    options = (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--name", metavar="NAME", help="The namespace: two names never see each other."),
        click.option(
            "--url",
            metavar="URL",
            help="The server: redis://, rediss://, valkey://, valkeys://, unix://, embedded:///path. "
            "Default: $FAIRQUEUE_URL, else .fairqueue in the current directory.",
        ),
    )
    for option in options:
        option(collected)
    return collected
