"""Options that every command takes."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from fairqueue.errors import ConfigurationError, FairQueueError, InvalidMessageError
from fairqueue.inside import engine_of
from fairqueue.inspect import is_there
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

    @property
    def missing(self) -> bool:
        """There is no embedded server's directory where one is named: the first client to connect makes it."""
        path = self.address.path
        return path is not None and not path.exists()

    @property
    def made(self) -> str:
        """What to tell where that happened: perhaps it was meant to be another directory."""
        return f"made a new queue, {self.shown_url} (--url or FAIRQUEUE_URL name another)"

    @contextlib.asynccontextmanager
    async def queue_that_exists(self) -> AsyncIterator[FairQueue[Any]]:
        """A client for commands that only look: they make neither an embedded server nor a namespace.

        Raises:
            FairQueueError: the directory of the embedded server is not there, or nobody ever used the namespace.
        """
        if self.missing:
            raise FairQueueError(
                f"there is no queue at {self.shown_url}: no such directory (--url or FAIRQUEUE_URL name the server)"
            )
        queue = self.queue()
        try:
            if not await is_there(engine_of(queue)):
                raise FairQueueError(
                    f"there is no namespace {self.namespace!r} at {self.shown_url}: "
                    "nobody ever used it (--name names another)"
                )
            async with queue:
                yield queue
        finally:
            await queue.close()


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
        try:
            return function(Common(url, name, as_json), **others)
        except (ConfigurationError, InvalidMessageError) as error:
            raise type(error)(_as_typed(str(error))) from error

    options = (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--name", metavar="NAME", help=name, hidden=name is None),
        click.option("--url", metavar="URL", help=url, hidden=url is None),
    )
    for option in options:
        option(collected)
    return collected


def _as_typed(text: str) -> str:
    """An error of the library, with the option as it is typed in the place of the argument's name in Python."""
    found = re.match(r"expected (\w+) to ", text)
    typed = {
        parameter.name: parameter.opts[-1]
        if isinstance(parameter, click.Option)
        else parameter.human_readable_name
        for parameter in click.get_current_context().command.params
    }
    if found is None or found[1] not in typed:
        return text
    return f"expected {typed[found[1]]} to {text[found.end() :]}"
