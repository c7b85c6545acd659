"""Options that every command takes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from fairqueue.errors import ConfigurationError, FairQueueError
from fairqueue.queue import FairQueue
from fairqueue.url import Url, parse_url, resolved_url

DEFAULT_NAME = "default"

SCHEMES: Final = "redis://, rediss://, valkey://, valkeys://, unix://, embedded:///path"
URL_HELP: Final = f"The server: {SCHEMES}. Default: $FAIRQUEUE_URL, else .fairqueue in the current directory."
NAME_HELP: Final = "The namespace: two names never see each other."


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
    def address(self) -> Url:
        """The server to use.

        Raises:
            ConfigurationError: the URL is wrong; where it is that of the environment, the text says so.
        """
        try:
            return parse_url(resolved_url(self.url))
        except ConfigurationError as error:
            if self.url or not os.environ.get("FAIRQUEUE_URL"):
                raise
            raise ConfigurationError(f"the environment variable FAIRQUEUE_URL is wrong: {error}") from error

    @property
    def shown_url(self) -> str:
        """The server for people to read, without its password."""
        return str(self.address)

    def queue(self, **options: Any) -> FairQueue[Any]:
        """A client of that server and namespace; it declares nothing, so what is stored there stays."""
        _ = self.address  # names the variable that is wrong
        return FairQueue(self.url, self.namespace, **options)

    def queue_that_exists(self) -> FairQueue[Any]:
        """A client for commands that only look: they make no embedded server where there is none.

        Raises:
            FairQueueError: the directory of the embedded server is not there.
        """
        url = self.address
        if url.path is not None and not url.path.is_dir():
            raise FairQueueError(
                f"there is no queue at {url}: no such directory (--url or FAIRQUEUE_URL name the server)"
            )
        return self.queue()


def common(
    function: Callable[..., Any] | None = None, *, url: str | None = URL_HELP, name: str | None = NAME_HELP
) -> Callable[..., Any]:
    """Adds the three options; the command gets them as one argument ``common``.

    ``url`` and ``name`` are the help of these options; None: they are taken, play no part, and are not shown.
    """
    if function is None:
        return functools.partial(common, url=url, name=name)

    @functools.wraps(function)
    def collected(url: str | None, name: str | None, as_json: bool, **others: Any) -> Any:
        return function(Common(url, name, as_json), **others)

    options = (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--name", metavar="NAME", help=name, hidden=name is None),
        click.option("--url", metavar="URL", help=url, hidden=url is None),
    )
    for option in options:
        option(collected)
    return collected
