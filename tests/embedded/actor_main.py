"""The program of an actor: a process that uses an embedded server and does what it is told, a line at a time.

Arguments: the path ("-": a private server) and the idle time in seconds. It answers every line with one line.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from fairqueue.embedded import EmbeddedServer, start_sync
from fairqueue.errors import FairQueueError
from tests.embedded.wire import Wire, info


def fork(server: EmbeddedServer, then: str) -> str:
    """Leave a child behind that never ends by itself; it says "ready" through a pipe when it has done `then`."""
    readable, writable = os.pipe()
    child = os.fork()
    if child:
        assert os.read(readable, 10) == b"ready"
        return str(child)
    if then == "ensure":
        server.ensure()
    elif then == "close":
        server.close()
    for standard in (0, 1, 2):  # or our parent's readers would wait for us too
        os.close(standard)
    os.write(writable, b"ready")
    while True:
        signal.pause()


def obey(server: EmbeddedServer, words: list[str]) -> str:
    match words:
        case ["ensure"]:
            return server.ensure()
        case ["url"]:
            return server.url
        case ["run_id"]:
            return info(server.url, "run_id")
        case ["fork", then]:
            return fork(server, then)
        case ["close"]:
            server.close()
            return "closed"
        case ["do", *command]:
            with Wire(server.url) as wire:
                return repr(wire(*command))
    raise AssertionError(f"expected a known command, got {words}")


def main(path: str, idle: str) -> None:
    print("awake", flush=True)
    if sys.stdin.readline() != "go\n":
        return
    try:
        server = start_sync(None if path == "-" else Path(path), idle=timedelta(seconds=float(idle)))
    except FairQueueError as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
        return
    print(server.url, flush=True)
    for line in sys.stdin:
        print(obey(server, line.split()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
