"""``fairqueue server``: the embedded server of a directory, held in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import click

from fairqueue import embedded
from fairqueue.cli.logs import log_to_stderr
from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_line
from fairqueue.errors import ConfigurationError, FairQueueError
from fairqueue.signals import stop_signals

LOOK_SECONDS = 1.0

_log = logging.getLogger("fairqueue")


@click.command()
@common(
    url="The directory: embedded:///path. Default: $FAIRQUEUE_URL, else .fairqueue in the current directory.",
    name=None,
)
def server(common: Common) -> None:
    """Run the embedded server of a directory until SIGTERM or SIGINT, and print its URL.

    The directory is that of --url embedded:///path; .fairqueue in the current directory unless given. Programs that
    name the directory start its server by themselves: this keeps it running while none of them is there, and
    starts it again should it die. --name plays no part.
    """
    url = common.address
    if url.scheme != "embedded":
        raise ConfigurationError(f"expected --url to be embedded:// with the path of a directory, got {url}")
    log_to_stderr("warning", as_json=common.json)
    asyncio.run(_serve(common, url.path))


async def _serve(common: Common, path: object) -> None:
    stop = asyncio.Event()
    with stop_signals(stop.set):
        held = await embedded.start(path)  # type: ignore[arg-type]
        shown = ""
        try:
            while not stop.is_set():
                if held.url != shown:
                    shown = held.url
                    _tell(common, held)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
                    break
                await _look_after(held)
        finally:
            await asyncio.to_thread(held.close)


async def _look_after(held: embedded.EmbeddedServer) -> None:
    """One that cannot be started again just now, on a full disk say, can be a little later: this is there for that."""
    try:
        await asyncio.to_thread(held.ensure)
    except FairQueueError as error:
        _log.error("the server is away and could not be started, trying again: %s", error)


def _tell(common: Common, held: embedded.EmbeddedServer) -> None:
    if common.json:
        print_json({"url": held.url, "path": str(held.path)})
    else:
        print_line(held.url)
