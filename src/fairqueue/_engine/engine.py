"""One client's engine: its server, its settings, its session, and the streams its replayable calls come from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fairqueue import embedded
from fairqueue.codec import JsonCodec
from fairqueue.config import Codec, Options
from fairqueue.errors import ConfigurationError, FairQueueError
from fairqueue.limits import Limit
from fairqueue.retry import RetryPolicy

from .agreement import Agreement
from .bell import Bell
from .calls import Call, Calls
from .connection import Connection, import_driver
from .settings import Known
from .streams import StreamPool

T = TypeVar("T")
_log = logging.getLogger("fairqueue")
FIRST_PATIENCE = 5.0  # seconds to reach the server at first: a wrong address shows here
_OLDEST = {"redis": (7, 0), "valkey": (7, 2)}


# What a fork has of its parent's connections. Never closed, never collected: that would take their sockets out of the
# parent's event loop, whose epoll both processes share, and the parent would wait for answers in vain.
_inherited: list[object] = []


class Engine:
    """What queue, leases, maintenance and reads share. Bound to one event loop; made anew after a fork."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.calls = Calls(options.name, options.clock)
        self.codec: Codec = options.codec or JsonCodec()
        self.connection = Connection(self._locate, self.calls.root, self._restore)
        self.agreement = Agreement(options, self.calls, self.connection)
        self.url = ""
        self._server: embedded.EmbeddedServer | None = None
        self._ensured_at = (
            0.0  # when the embedded server was last seen to run; asked again after trouble since
        )
        self._bells: dict[tuple[str, ...], Bell] = {}
        self.forget_parent: Callable[[], object] = lambda: None
        """Told after a fork; returns what must live on untouched."""
        self._connecting: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connected = False
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self.consumer_default = f"{socket.gethostname()}:{self._pid}"
        self.session = secrets.token_hex(8)
        self.claim_streams = StreamPool(self.session + "c")
        self.settle_streams = StreamPool(self.session + "s")
        self.enqueue_streams = StreamPool(self.session + "e")
        self.agreement.speak_as(self.session, self.consumer_default)

    @property
    def settings(self) -> Known:
        """The settings in force, as far as this client knows."""
        return self.agreement.known

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits in force, as far as this client knows.

        Raises:
            ConfigurationError: they were damaged.
        """
        if self.settings.damage:
            raise ConfigurationError(self.settings.damage)
        return self.settings.limits

    @property
    def retry(self) -> RetryPolicy:
        """The retry policy in force, as far as this client knows."""
        return self.settings.retry

    # --- life ------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connects on first use; cheap afterwards.

        Raises:
            ConfigurationError: the server cannot hold queues (a cluster, too old).
            QueueUnavailableError: it cannot be reached. FairQueueError: used from a second event loop.
        """
        self._check_owner()
        if self._connected:
            return
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if not self._connected:
                await asyncio.to_thread(import_driver)
                await self._check_server()
                await self.agreement.reach()
                self._connected = True

    def _check_owner(self) -> None:
        self.own()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise FairQueueError(
                "this FairQueue belongs to another event loop: make one for each loop, or use SyncFairQueue"
            )

    def own(self) -> None:
        """After a fork connections, tasks and sessions are the parent's: this process gets its own."""
        if self._pid == os.getpid():
            return
        _inherited.append((self.connection.forget(), self._bells, self.forget_parent()))
        self._bells, self._loop, self._connecting, self._connected = {}, None, None, False
        self._ensured_at = -1.0  # a claim on the embedded server does not come with a fork either
        self._renew()

    async def _restore(self) -> None:
        await self.agreement.restore()

    async def _locate(self) -> str:
        url = self.options.url
        if url is None or url.scheme != "embedded":
            self.url = self.url or (url.text if url else "")
            return self.url
        if self._server is None:
            self._server = await embedded.start(url.path)
            self._ensured_at = time.monotonic()
            _log.info("fairqueue uses the embedded server at %s", self._server.path)
            self.url = self._server.url
        elif (self.connection.lost_at or 0) > self._ensured_at:
            self._ensured_at = time.monotonic()
            self.url = await asyncio.to_thread(self._server.ensure)
        return self.url

    def located(self) -> str:
        """The URL of the server, for another thread; an embedded one that died is started again."""
        server = self._server
        return server.ensure() if server is not None else self.url

    async def _check_server(self) -> None:
        info = await self.connection.command("INFO", patience=FIRST_PATIENCE)
        if info.get("cluster_enabled") in (1, "1"):
            raise ConfigurationError(
                "expected url to name a single server, got a cluster node: this version does not support clusters"
            )
        _check_version(info)
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            _log.warning(
                "the server may evict keys (maxmemory-policy %s): messages, slots and leases can vanish; "
                "set maxmemory-policy noeviction",
                policy,
            )

    # --- ending ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Gives back bells and connections; an embedded server of ours loses this client."""
        self.own()
        await self.stop_listening()
        await self.connection.close()
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.close)
        self._connected = False
        self._loop, self._connecting = None, None

    async def stop_listening(self) -> None:
        """Closes the bells: what is rung from now on wakes others."""
        for bell in self._bells.values():
            await bell.close()
        self._bells.clear()

    # --- calls -----------------------------------------------------------------------------------------------

    async def run(self, call: Call[T], patience: float | None = None) -> T:
        await self.connect()
        return await self.connection.run(call, patience)

    async def run_replayable(
        self, build: Callable[..., Call[T]], *args: Any, patience: float | None = None
    ) -> T:
        """Runs ``build(*args, stream=...)``: repeated after a lost reply it answers what it did the first time.

        A stream whose call was not answered is left: it may still be done behind our back.
        """
        await self.connect()
        stream = self.settle_streams.take()
        answer = await self.connection.run(build(*args, stream=stream), patience)
        self.settle_streams.answered(stream)
        return answer

    async def run_all(self, calls: Sequence[Call[Any]], patience: float | None = None) -> list[Any]:
        await self.connect()
        return await self.connection.run_all(calls, patience)

    async def command(self, *args: str | int | float | bytes) -> Any:
        await self.connect()
        return await self.connection.command(*args)

    async def read(self, *args: str | int | float | bytes, empty: Any) -> Any:
        await self.connect()
        return await self.connection.read(*args, empty=empty)

    def bell(self, pools: tuple[str, ...]) -> Bell:
        if pools not in self._bells:

            async def give_back(rung: Sequence[str]) -> None:
                with contextlib.suppress(FairQueueError):
                    await self.connection.run(self.calls.ring_bell(rung), patience=0)

            self._bells[pools] = Bell(
                self.calls.root, pools, self.connection.dedicated, give_back, self.connection.note_trouble
            )
        return self._bells[pools]


def _check_version(info: dict[str, Any]) -> None:
    kind = "valkey" if "valkey_version" in info else "redis"
    text = str(info.get(f"{kind}_version", "0"))
    version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if version < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        raise ConfigurationError(f"expected a server of at least {kind} {oldest}, got {kind} {text}")
