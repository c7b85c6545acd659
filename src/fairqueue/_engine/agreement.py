"""What a client and the server agree on: it declares settings once, and follows what is declared later."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from fairqueue.config import Options
from fairqueue.errors import DamagedKeyError, QueueFullError, SettingsChangedError
from fairqueue.retry import RetryPolicy

from .calls import DECLARABLE, Calls, Settings
from .connection import Connection
from .keys import SCHEMA, key
from .redeclared import follow_up
from .replies import text
from .settings import Known, declared, defaults, known, other_schema, overruled
from .streams import StreamPool

T = TypeVar("T")
_log = logging.getLogger("fairqueue")
_LEARNINGS = 8  # in a row for one call: who declares that often is at odds with somebody else


class Agreement:
    """The settings in force, as far as this client knows.

    Args:
        options: what the client was made with.
        calls: the calls of its namespace.
        connection: its connection to the server.
    """

    def __init__(self, options: Options, calls: Calls, connection: Connection) -> None:
        self._options, self._calls, self._connection = options, calls, connection
        self.known = Known(limits=options.limits or (), retry=options.retry or RetryPolicy())
        self._streams, self._who = StreamPool(""), ""

    def speak_as(self, session: str, who: str) -> None:
        """The session that declarations are sent in, and who is told to have made them."""
        self._streams, self._who = StreamPool(session + "d"), who

    async def reach(self) -> None:
        """Declares, once: who connects again, after a close or a fork, may have been overruled meanwhile, and learns."""
        if self.known.stored:
            await self.learn()
        else:
            await self._declare()
        await follow_up(self._connection, self._calls, self.known.stored)

    async def _declare(self) -> None:
        said, groups = declared(self._options)
        try:
            settings = await self._configured(said, groups)
        except QueueFullError:
            settings = await self._stored_already(said)
        if settings.changed:
            _log.warning(
                "namespace %r: this client's declaration replaced the stored %s",
                self._options.name,
                ", ".join(settings.changed),
            )
        self.known = known(self._options, settings.stored)

    async def _stored_already(self, said: dict[str, str]) -> Settings:
        """A full server takes no settings; who needs none stored can work, or the backlog would never drain."""
        stored = await self._stored()
        if not stored or any(stored.get(name) != value for name, value in said.items()):
            raise QueueFullError("the server is out of memory: it cannot store this client's settings")
        return Settings(stored, ())

    async def restore(self) -> None:
        """The server has lost the settings: it gets those this client knew, also what others had declared.

        Else a client without declarations, if it were the first to speak, would lift the limits of all.
        """
        lost = {name: value for name, value in self.known.stored.items() if name in DECLARABLE}
        settings = await self._configured(lost, defaults(self.known.limits), restoring=True)
        self.known = known(self._options, settings.stored)

    async def _configured(
        self, said: dict[str, str], groups: Sequence[tuple[str, int | None]], *, restoring: bool = False
    ) -> Settings:
        """One numbered call: a sending that the network brings late must not undo what was declared since.

        By its text, because the server may have no script yet, and without the repair that asks for settings.
        """
        stream = self._streams.take()
        call = self._calls.configure(stream, self._who, said, groups, restoring)
        settings = await self._connection.evaluate(call)
        self._streams.answered(stream)
        return settings

    async def learn(self, patience: float | None = None) -> None:
        """The settings as the server has them now; what this client declared itself gives way.

        Raises:
            ConfigurationError: they cannot be read. QueueUnavailableError: the server stayed away.
            SchemaMismatchError: another version has taken over.
        """
        stored = await self._stored(patience)
        if "schema" not in stored:
            await self.restore()
        elif stored["schema"] != SCHEMA:
            raise other_schema(f"stored schema {stored['schema']}, this client speaks {SCHEMA}")
        else:
            self._follow(stored)

    async def _stored(self, patience: float | None = None) -> dict[str, str]:
        try:
            fields = await self._connection.command(
                "HGETALL", key(self._calls.root, "settings"), patience=patience
            )
        except DamagedKeyError:  # whoever declares or restores them next removes what is there
            return {}
        return {text(name): text(value) for name, value in fields.items()}

    def _follow(self, stored: Mapping[str, str]) -> None:
        before, self.known = self.known, known(self._options, stored)
        others = overruled(self._options, stored)
        if others and before.revision != self.known.revision:
            _log.warning(
                "namespace %r: %s declared another %s than this client, which follows",
                self._options.name,
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
