"""Messages: what a producer hands over, what a handler gets, and what the queue tells about them.

A message is identified by its tenant and its id together. All instants are aware ``datetime``s in UTC.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from fairqueue.errors import InvalidMessageError
from fairqueue.validation import (
    LARGEST_INTEGER,
    duration_ms,
    expected,
    identifier,
    instant_ms,
    integer,
    number,
    shown,
)

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from typing_extensions import TypeVar  # for checkers alone: it is not needed at run time

    # Without an annotation a queue takes any payload, also for a strict checker.
    P = TypeVar("P", default=Any)
    P_co = TypeVar("P_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    P = TypeVar("P")
    P_co = TypeVar("P_co", covariant=True)

__all__ = [
    "DeadLetter",
    "Enqueued",
    "LeaseInfo",
    "Message",
    "MessageInfo",
    "MessageState",
    "NewMessage",
    "P",
    "uuid7",
]

_T = TypeVar("_T")

_METADATA = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
LOWEST_COST, HIGHEST_COST = 0.001, 1000


def _refuse_assignment(self: object, name: str, *_value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to {name!r} of a {type(self).__name__}")


def _subscriptable(cls: type[_T]) -> type[_T]:
    """Let ``Message[dict](...)`` work: before Python 3.13 it raises TypeError for a frozen dataclass with slots.

    ``typing`` tries to note the parameter on the new object and takes AttributeError for "it will not have it"; the
    ``__setattr__`` that dataclass generates fails otherwise, because adding slots replaces the class it refers to.
    """
    cls.__setattr__ = cls.__delattr__ = _refuse_assignment  # type: ignore[method-assign]
    return cls


class MessageState(StrEnum):
    """Where a message is; it is in exactly one of these."""

    DELAYED = "delayed"
    READY = "ready"
    IN_FLIGHT = "in_flight"
    DEAD = "dead"


@_subscriptable
@dataclass(frozen=True, slots=True, init=False)
class NewMessage(Generic[P_co]):
    """A message to enqueue, checked when it is made.

    Args:
        payload: what the handler gets; encoded when it is enqueued.
        tenant: who it belongs to, the unit of fairness.
        queue: the tenant's queue it goes to; order is kept inside one queue.
        id: unique within the tenant. None: a UUIDv7 is drawn now, so that enqueueing this object twice adds one.
        delay: not before this long after the server accepts it; a ``timedelta`` or seconds. Not with ``at``.
        at: not before this instant by the server's clock; an aware ``datetime``. One that has passed means now.
        metadata: JSON values under text keys, for limits and handlers. A copy is kept, as the handler will see
            it: JSON has lists only, so a tuple becomes one.
        max_attempts: instead of the retry policy's.
        pool: which workers may claim it.
        priority: -100 to 100, higher first inside one queue.
        cost: 0.001 to 1,000, what one delivery is charged to the tenant's share.

    Names are 1 to 512 bytes of UTF-8 without control characters. Anything else raises ``InvalidMessageError``.

    >>> NewMessage({"invoice": 7}, tenant="acme", delay=60)
    """

    payload: P_co = field(hash=False)
    tenant: str
    queue: str
    id: str
    delay: timedelta | float | None
    at: datetime | None
    metadata: dict[str, Any] = field(hash=False)
    max_attempts: int | None
    pool: str
    priority: int
    cost: float
    due_in_ms: int = field(init=False, repr=False)
    """``delay`` in milliseconds, counted from the moment the server accepts the message; 0 without ``delay``."""
    due_at_ms: int | None = field(init=False, repr=False)
    """``at`` in milliseconds since 1970, rounded up so that it is never early; None without ``at``."""

    def __init__(
        self,
        payload: P_co,
        *,
        tenant: str,
        queue: str = "default",
        id: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        max_attempts: int | None = None,
        pool: str = "default",
        priority: int = 0,
        cost: float = 1,
    ) -> None:
        if delay is not None and at is not None:
            raise InvalidMessageError(f"expected delay or at, not both, got delay={delay!r} and at={at!r}")
        put = object.__setattr__  # the way into a frozen object while it is made
        put(self, "payload", payload)
        put(self, "tenant", _name("tenant", tenant))
        put(self, "queue", _name("queue", queue))
        put(self, "id", uuid7() if id is None else _name("id", id))
        put(self, "delay", delay)
        put(self, "at", at)
        put(self, "metadata", _copied_metadata(metadata) if metadata is not None else {})
        put(self, "max_attempts", _max_attempts(max_attempts))
        put(self, "pool", _name("pool", pool))
        put(self, "priority", _priority(priority))
        put(self, "cost", _cost(cost))
        put(self, "due_in_ms", 0 if delay is None else duration_ms("delay", delay, error=InvalidMessageError))
        put(self, "due_at_ms", None if at is None else instant_ms("at", at, error=InvalidMessageError))


@_subscriptable
@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Generic[P_co]):
    """A message as its handler gets it, and as the queue shows it.

    ``attempt`` is 1 at the first delivery: deliveries less releases, this one included. ``crashes`` are the
    deliveries before this one that ended because their lease expired; they are part of ``attempt`` too.
    ``groups`` are the limit groups it needs a slot in, as (limit's name, group id), settled when it was enqueued.
    ``max_attempts`` is the message's own, None where the queue's retry policy decides.
    """

    id: str
    tenant: str
    payload: P_co = field(hash=False)
    queue: str = "default"
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)
    attempt: int = 0
    crashes: int = 0
    priority: int = 0
    cost: float = 1
    pool: str = "default"
    enqueued_at: datetime
    groups: tuple[tuple[str, str], ...] = ()
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """What became of one enqueued message.

    ``created`` is False when the tenant had a message of this id already, a dead one included: that one keeps its
    payload and everything else. ``state`` is where the message is now.
    """

    id: str
    tenant: str
    created: bool
    state: MessageState


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseInfo:
    """Who runs a message at the moment, and until when the queue trusts them to be alive."""

    token: str
    consumer: str
    deadline: datetime
    claimed_at: datetime


@_subscriptable
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(Generic[P_co]):
    """A message that will not be delivered again unless it is redriven.

    ``reason`` says why it is here, ``error`` is the last failure's text. ``raw`` is the payload as it is stored.
    Where that cannot be decoded ``decodable`` is False and ``message.payload`` is None.
    ``redrives`` counts how often it was sent back to its queue before.
    """

    message: Message[P_co | None]
    raw: bytes = field(repr=False)
    reason: str
    error: str | None = None
    attempts: int = 0
    crashes: int = 0
    dead_at: datetime
    redrives: int = 0
    decodable: bool = True


@_subscriptable
@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInfo(Generic[P_co]):
    """One message of a queue, looked at from outside.

    ``lease`` is there while it is in flight, ``due_at`` while it is delayed, ``position`` (0 is next in its lane)
    while it is ready and the position is known, ``error`` after a failure, ``reason`` when it is dead.
    Where the stored payload cannot be decoded ``decodable`` is False and ``message.payload`` is None.
    """

    state: MessageState
    message: Message[P_co | None]
    lease: LeaseInfo | None = None
    due_at: datetime | None = None
    position: int | None = None
    error: str | None = None
    reason: str | None = None
    decodable: bool = True


def _name(option: str, value: object) -> str:
    return identifier(option, value, error=InvalidMessageError)


def _max_attempts(value: object) -> int | None:
    if value is None:
        return None
    return integer("max_attempts", value, 1, LARGEST_INTEGER, error=InvalidMessageError)


def _priority(value: object) -> int:
    return integer("priority", value, LOWEST_PRIORITY, HIGHEST_PRIORITY, error=InvalidMessageError)


def _cost(value: object) -> float:
    return number("cost", value, LOWEST_COST, HIGHEST_COST, error=InvalidMessageError)


def _copied_metadata(value: object) -> dict[str, Any]:
    """The metadata as its reader will see it. A copy: the caller's dict may change before it is enqueued."""
    if not isinstance(value, Mapping):
        raise expected("metadata", "a dict with text keys", value, error=InvalidMessageError)
    try:
        _refuse_other_keys(value)
        text = _METADATA.encode(dict(value))
        text.encode()  # a lone surrogate has no UTF-8
        copied: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(
            f"expected metadata to be a dict of JSON values, got {shown(value)}: {error}"
        ) from error
    return copied


def _refuse_other_keys(value: object) -> None:
    """JSON would turn the keys 1, None and True into text without a word, and let two become one."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {shown(key)} is not text")
            _refuse_other_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_other_keys(inner)


class _Uuid7Source:
    """Draws version 7 UUIDs (RFC 9562) that grow within the process, also inside one millisecond.

    After the 48 bits of time come a 42-bit counter, which starts anywhere in its lower half at every new
    millisecond and then counts up, and 32 bits drawn anew each time (RFC 9562, section 6.2, method 1).
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._milliseconds = -1
        self._counter = 0

    after_fork_in_child = (
        _forget  # the parent's lock may be held for ever, and its counter is going on elsewhere
    )

    def draw(self) -> int:
        now = time.time_ns() // 1_000_000
        random = int.from_bytes(os.urandom(10))
        with self._lock:
            if now > self._milliseconds:
                self._milliseconds, self._counter = now, random >> 39  # 41 bits
            else:  # the same millisecond, or a clock that was set back: stay in order
                self._counter += 1
                if self._counter >> 42:
                    self._milliseconds, self._counter = self._milliseconds + 1, random >> 39
            milliseconds, counter = self._milliseconds, self._counter
        high, low = counter >> 30, counter & 0x3FFF_FFFF
        return milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low << 32 | random & 0xFFFF_FFFF


_uuid7_source = _Uuid7Source()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_uuid7_source.after_fork_in_child)


def uuid7() -> str:
    """A new UUID of version 7 as text, greater than every one drawn in this process before.

    >>> uuid7()
    '0199fb1e-6b5c-7d1a-8f0e-3c1f0a9d5b42'
    """
    if sys.version_info >= (3, 14):
        return str(uuid.uuid7())
    digits = f"{_uuid7_source.draw():032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
