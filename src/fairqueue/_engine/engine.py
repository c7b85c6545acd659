"""One client's engine: its server, its settings, its session, and the streams its replayable calls come from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from fairqueue import embedded
from fairqueue.codec import JsonCodec
from fairqueue.config import Codec, Options
from fairqueue.errors import ConfigurationError, FairQueueError, QueueFullError, SettingsChangedError
from fairqueue.limits import Limit
from fairqueue.retry import RetryPolicy

from .bell import Bell
from .calls import DECLARABLE, Call, Calls, Settings
from .connection import Connection, import_driver
from .keys import SCHEMA, key
from .redeclared import follow_up
from .replies import text
from .settings import Known, declared, defaults, known, other_schema, overruled
from .streams import StreamPool

T = TypeVar("T")
_log = logging.getLogger("fairqueue")
FIRST_PATIENCE = 5.0  # seconds to reach the server at first: a wrong address shows here
_LEARNINGS = 8  # in a row for one call: who declares that often is at odds with somebody else
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
        self.settings = Known(limits=options.limits or (), retry=options.retry or RetryPolicy())
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

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits in force, as far as this client knows."""
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

    # --- settings --------------------------------------------------------------------------------------------

    async def _configure(self) -> None:
        """Declares, once: who connects again, after a close or a fork, may have been overruled meanwhile, and learns."""
        if self.settings.stored:
            await self.learn()
        else:
            await self._declare()
        await follow_up(self.connection, self.calls, self.settings.stored)

    async def _declare(self) -> None:
        said, groups = declared(self.options)
        try:
            settings = await self._configured(said, groups)
        except QueueFullError:
            settings = await self._stored_already(said)
        if settings.changed:
            _log.warning(
                "namespace %r: this client's declaration replaced the stored %s",
                self.options.name,
                ", ".join(settings.changed),
            )
        self.settings = known(self.options, settings.stored)

    async def _stored_already(self, said: dict[str, str]) -> Settings:
        """A full server takes no settings; who needs none stored can work, or the backlog would never drain."""
        stored = await self._stored()
        if not stored or any(stored.get(name) != value for name, value in said.items()):
            raise QueueFullError("the server is out of memory: it cannot store this client's settings")
        return Settings(stored, ())

    async def _restore(self) -> None:
        """The server has lost the settings: it gets those this client knew, also what others had declared.

        Else a client without declarations, if it were the first to speak, would lift the limits of all.
        """
        lost = {name: value for name, value in self.settings.stored.items() if name in DECLARABLE}
        settings = await self._configured(lost, defaults(self.limits), restoring=True)
        self.settings = known(self.options, settings.stored)

    async def _configured(
        self, said: dict[str, str], groups: Sequence[tuple[str, int | None]], *, restoring: bool = False
    ) -> Settings:
        """One numbered call: a sending that the network brings late must not undo what was declared since.

        By its text, because the server may have no script yet, and without the repair that asks for settings.
        """
        stream = self.settle_streams.take()
        call = self.calls.configure(stream, self.consumer_default, said, groups, restoring)
        settings = await self.connection.evaluate(call)
        self.settle_streams.answered(stream)
        return settings

    async def learn(self, patience: float | None = None) -> None:
        """The settings as the server has them now; what this client declared itself gives way.

        Raises:
            ConfigurationError: they cannot be read. QueueUnavailableError: the server stayed away.
            SchemaMismatchError: another version has taken over.
        """
        stored = await self._stored(patience)
        if "schema" not in stored:
            await self._restore()
        elif stored["schema"] != SCHEMA:
            raise other_schema(f"stored schema {stored['schema']}, this client speaks {SCHEMA}")
        else:
            self._follow(stored)

    async def _stored(self, patience: float | None = None) -> dict[str, str]:
        fields = await self.connection.command("HGETALL", key(self.calls.root, "settings"), patience=patience)
        return {text(name): text(value) for name, value in fields.items()}

    def _follow(self, stored: Mapping[str, str]) -> None:
        before, self.settings = self.settings, known(self.options, stored)
        others = overruled(self.options, stored)
        if others and before.revision != self.settings.revision:
            _log.warning(
                "namespace %r: %s declared another %s than this client, which follows",
                self.options.name,
                stored.get("changed_by", "somebody"),
                ", ".join(others),
            )

    async def as_declared(self, once: Callable[[], Awaitable[T]]) -> T:
        """Runs what speaks of settings; again, with those of now, while the server says that they have changed.

        Raises:
            SettingsChangedError: they changed each time; nothing was done.
        """
        for _ in range(_LEARNINGS):
            try:
                return await once()
            except SettingsChangedError:
                await self.learn()
        return await once()

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
