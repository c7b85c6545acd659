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
from fairqueue.errors import ConfigurationError, FairQueueError, QueueFullError
from fairqueue.limits import Limit, from_settings, to_settings
from fairqueue.retry import RetryPolicy

from .bell import Bell
from .calls import DECLARABLE, Call, Calls, Settings
from .connection import Connection, import_driver
from .keys import key
from .redeclared import follow_up
from .replies import text
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
        self.url = ""
        self.settings = Settings({}, ())
        self.retry = options.retry or RetryPolicy()
        self.limits: tuple[Limit, ...] = options.limits or ()
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
                await self._configure()
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

    async def _configure(self) -> None:
        declared, defaults = _declared(self.options)
        try:
            settings = await self._evaluate(self.calls.configure(self.consumer_default, declared, defaults))
        except QueueFullError:
            settings = await self._stored_already(declared)
        if settings.changed:
            _log.warning(
                "namespace %r: this client's declaration replaced the stored %s",
                self.options.name,
                ", ".join(settings.changed),
            )
        self._learn(settings)
        await follow_up(self.connection, self.calls, settings.stored)

    async def _stored_already(self, declared: dict[str, str]) -> Settings:
        """A full server takes no settings; who needs none stored can work, or the backlog would never drain."""
        fields = await self.connection.command("HGETALL", key(self.calls.root, "settings"))
        stored = {text(name): text(value) for name, value in fields.items()}
        if not stored or any(stored.get(name) != value for name, value in declared.items()):
            raise QueueFullError("the server is out of memory: it cannot store this client's settings")
        return Settings(stored, ())

    async def _restore(self) -> None:
        """The server has lost the settings: it gets those this client knew, also what others had declared.

        Else a client without declarations, if it were the first to speak, would lift the limits of all.
        """
        stored = self.settings.stored
        known = {name: value for name, value in stored.items() if name in DECLARABLE}
        defaults = _defaults(from_settings(stored.get("limits") or "[]"))
        call = self.calls.configure(self.consumer_default, known, defaults, restoring=True)
        self._learn(await self._evaluate(call))

    def _learn(self, settings: Settings) -> None:
        self.settings = settings
        stored = settings.stored
        if self.options.limits is None:
            self.limits = from_settings(stored.get("limits") or "[]")
        if self.options.retry is None and stored.get("retry"):
            self.retry = RetryPolicy.from_settings(stored["retry"])

    async def _evaluate(self, call: Call[T]) -> T:
        """Runs a call that must not ask for settings itself; EVAL, because the server may have no script yet."""
        words = ["EVAL", call.script.source, 1, self.calls.root, *call.args]
        return call.decode(await self.connection.command(*words))

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

    def bell(self, pools: tuple[str, ...]) -> Bell:
        if pools not in self._bells:

            async def give_back(rung: Sequence[str]) -> None:
                with contextlib.suppress(FairQueueError):
                    await self.connection.run(self.calls.ring_bell(rung), patience=0)

            self._bells[pools] = Bell(
                self.calls.root, pools, self.connection.dedicated, give_back, self.connection.note_trouble
            )
        return self._bells[pools]


def _declared(options: Options) -> tuple[dict[str, str], list[tuple[str, int | None]]]:
    declared: dict[str, str] = {}
    if options.scheduler is not None:
        declared["scheduler"] = options.scheduler
    if options.dead_letters is not None:
        declared["dead_letters"] = "1" if options.dead_letters else "0"
    if options.retry is not None:
        declared["retry"] = options.retry.to_settings()
        declared["max_attempts"] = str(options.retry.max_attempts)
        declared["max_crashes"] = str(options.retry.max_crashes)
    if options.limits is not None:
        declared["limits"] = to_settings(options.limits)
    return declared, _defaults(options.limits or ())


def _defaults(limits: Sequence[Limit]) -> list[tuple[str, int | None]]:
    return [(limit.name, limit.default) for limit in limits]


def _check_version(info: dict[str, Any]) -> None:
    kind = "valkey" if "valkey_version" in info else "redis"
    text = str(info.get(f"{kind}_version", "0"))
    version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if version < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        raise ConfigurationError(f"expected a server of at least {kind} {oldest}, got {kind} {text}")
