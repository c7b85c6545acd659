"""Which namespaces a test used, whoever made the queue, and the five checks on each of them when the test is over.

What connects in this process is noted by itself. What commands and programs of their own use is noted by who starts them.
A private embedded server goes with its queue, so its namespaces are looked at just before.
"""

from __future__ import annotations

import asyncio
import functools
import re
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import redis

from fairqueue import FairQueue
from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import key, prefix
from fairqueue.clock import Clock
from fairqueue.embedded import EmbeddedServer
from fairqueue.embedded.directory import DataDirectory
from fairqueue.embedded.sockets import find_socket
from fairqueue.errors import FairQueueError
from fairqueue.testing import assert_whole

TIMEOUT = 5  # seconds: a server that a test left frozen is not waited for
_NOT_THERE = (redis.RedisError, OSError, ValueError)  # the last: a test of wrong URLs
_SETTINGS = re.compile(r"fq:\{(.+):0\}:settings")


class Watch:
    """The namespaces of the test that is under way."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], Clock | None] = {}
        self._directories: set[Path] = set()
        self._elsewhere: set[str] = set()
        self._wrong: list[str] = []
        self._looking = threading.local()

    def begin(self) -> None:
        """Forgets what was noted so far: a test starts."""
        self._used.clear()
        self._directories.clear()
        self._elsewhere.clear()
        self._wrong.clear()

    def use(self, url: str, name: str, clock: Clock | None = None) -> None:
        """A namespace is used. ``embedded:///path`` stands for the server that runs there."""
        if not getattr(self._looking, "now", False):
            self._used[url, name] = clock

    def use_directory(self, path: Path) -> None:
        """All namespaces of an embedded server are used: those of a test alone."""
        self._directories.add(path)

    def checked_elsewhere(self, name: str) -> None:
        """A fixture checks this namespace itself, while what it needs for that is still there."""
        self._elsewhere.add(name)

    def ends(self, url: str) -> None:
        """A server is about to end: what was used there is looked at now."""
        for used in [used for used in self._used if used[0] == url]:
            clock = self._used.pop(used)
            self._look(*used, clock)

    def findings(self) -> list[str]:
        """What is not as promised, of all that was noted and can still be reached."""
        for path in self._directories:
            url = _where(f"embedded://{path}")
            self._used |= {(url, name): None for name in _namespaces(url)}
        used, self._used = self._used, {}
        for (url, name), clock in used.items():
            self._look(_where(url), name, clock)
        return list(dict.fromkeys(self._wrong))

    def _look(self, url: str, name: str, clock: Clock | None) -> None:
        if name not in self._elsewhere and _is_there(url, name):
            self._wrong += _apart(functools.partial(self._audit, url, name, clock))

    async def _audit(self, url: str, name: str, clock: Clock | None) -> list[str]:
        self._looking.now = True  # this thread's own client is not one of the test's
        try:
            async with FairQueue(url, name, clock=clock) as queue:
                await assert_whole(queue)
        except (AssertionError, FairQueueError) as error:
            return [f"{name}: {error}"]
        return []


WATCH = Watch()


def watch() -> None:
    """From now on clients that connect in this process are noted, and private servers looked at before they end."""
    connect, close = Engine.connect, EmbeddedServer.close

    @functools.wraps(connect)
    async def noted(self: Engine) -> None:
        known = self._connected
        await connect(self)
        if not known:
            WATCH.use(self.url, self.options.name, self.options.clock)

    @functools.wraps(close)
    def looked_at(self: EmbeddedServer) -> None:
        if self.directory.private and not self._closed:
            WATCH.ends(self.url)
        close(self)

    Engine.connect = noted  # type: ignore[method-assign]
    EmbeddedServer.close = looked_at  # type: ignore[method-assign]


def _apart(work: Callable[[], Coroutine[Any, Any, list[str]]]) -> list[str]:
    """In a thread and an event loop of its own: whoever asks may be in the middle of one."""
    found: list[str] = []

    def run() -> None:
        found.extend(asyncio.run(work()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def _where(url: str) -> str:
    """The socket of an embedded server; another URL as it is."""
    if not url.startswith("embedded:///"):
        return url
    socket = find_socket(DataDirectory(Path(url.removeprefix("embedded://")), private=False))
    return f"unix://{socket}"


def _is_there(url: str, name: str) -> bool:
    """A test may have stopped its server, damaged it, or never stored anything there."""
    try:
        with _client(url) as server:
            return bool(server.exists(key(prefix(name), "settings")))
    except _NOT_THERE:
        return False


def _namespaces(url: str) -> list[str]:
    try:
        with _client(url) as server:
            names = [found.decode() for found in server.scan_iter(match="fq:{*:0}:settings", count=1000)]
    except _NOT_THERE:
        return []
    return [found.group(1) for name in names if (found := _SETTINGS.fullmatch(name))]


def _client(url: str) -> redis.Redis:
    known = re.sub(r"^valkey(s?)://", r"redis\1://", url)
    return redis.Redis.from_url(known, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
