"""A call of one script: its arguments, how its answer is read, and how the server knows it again."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from fairqueue._engine.keys import SCHEMA, prefix
from fairqueue._engine.script import Argument, Script, load
from fairqueue.clock import Clock

T = TypeVar("T")

ANY_REVISION = ""  # of a call that takes nothing from the settings
MAX_NOTE = 4_000  # characters of an error's text that are kept


@dataclass(slots=True)
class CallNumber:
    """The number of a call in its stream, and how often it has been sent: the server tells a late one by that."""

    number: int
    sent: int = 0

    def sending(self) -> str:
        """What the next sending says."""
        self.sent += 1
        return f"{self.number}.{self.sent - 1}"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One script call. ``adds_data`` calls are refused by a server that is out of memory."""

    script: Script
    args: list[Argument]
    decode: Callable[[Any], T]
    number: CallNumber | None = None
    """Of a call that is recognised when it is repeated."""

    def sending(self) -> list[Argument]:
        """The arguments for one more sending of it."""
        if self.number is None:
            return self.args
        at = self.script.argv.index("callno")
        return [*self.args[:at], self.number.sending(), *self.args[at + 1 :]]


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a replayable call comes from: the client's session, one of its streams, and the call's number there.

    ``owed``: leases that its calls may have taken without an answer, out of ``pools``.
    """

    session: str
    number: int
    call: CallNumber
    owed: int = 0
    pools: tuple[str, ...] = ()


def note_text(value: object) -> str:
    """An error's text as it is stored: bounded, encodable, without the separator."""
    return str(value)[:MAX_NOTE].replace("\x1f", " ").encode("utf-8", "replace").decode("utf-8", "replace")


def optional(value: int | None) -> Argument:
    """A number, or what says that there is none."""
    return "" if value is None else value


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds the calls of one namespace."""

    name: str
    clock: Clock

    @property
    def root(self) -> str:
        return prefix(self.name)

    def _call(
        self, name: str, decode: Callable[[Any], T], *rows: tuple[Argument, ...], **args: Argument
    ) -> Call[T]:
        script = load(name)
        return Call(script, script.args(*rows, schema=SCHEMA, now=self.clock.now_ms() or 0, **args), decode)

    def _replayable(
        self,
        name: str,
        decode: Callable[[Any], T],
        stream: Stream | None,
        *rows: tuple[Argument, ...],
        **args: Argument,
    ) -> Call[T]:
        """One that the server recognises when it is repeated. None: a stream that is used once."""
        stream = stream or Stream(secrets.token_hex(8), 1, CallNumber(1))
        first = f"{stream.call.number}.0"
        call = self._call(
            name, decode, *rows, session=stream.session, stream=stream.number, callno=first, **args
        )
        return replace(call, number=stream.call)
