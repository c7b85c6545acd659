"""``NewMessage``: what a producer hands over, checked when it is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

from fairqueue.errors import InvalidMessageError
from fairqueue.generics import P_co, subscriptable
from fairqueue.ids import uuid7
from fairqueue.validation import (
    LARGEST_INTEGER,
    choice,
    duration_ms,
    expected,
    identifier,
    instant_ms,
    integer,
    number,
    shown,
)

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["NewMessage"]

_METADATA = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
LOWEST_COST, HIGHEST_COST = 0.001, 1000


@subscriptable
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
        expires: its time to live: not started so long after the server accepts it (a ``timedelta`` or seconds), or by this
            instant (an aware ``datetime``), it is never started. A delivery that was released, uncounted, is no start.
        on_expiry: ``"dead"`` makes it a dead letter then, with the reason ``expired``; ``"drop"`` drops it, counted.

        dedupe_for: for so long (a ``timedelta`` or seconds) after it is accepted the id is not accepted again by an enqueue
            that says so too, though the message be done and gone.

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
    expires: timedelta | float | datetime | None
    on_expiry: str
    dedupe_for: timedelta | float | None
    due_in_ms: int = field(init=False, repr=False)
    """``delay`` in milliseconds, counted from the moment the server accepts the message; 0 without ``delay``."""
    due_at_ms: int | None = field(init=False, repr=False)
    """``at`` in milliseconds since 1970, rounded up so that it is never early; None without ``at``."""
    expiry: str = field(init=False, repr=False)
    """``expires`` and ``on_expiry`` as they are sent; '' without."""
    dedupe_ms: int = field(init=False, repr=False)
    """``dedupe_for`` in milliseconds; 0 without."""

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
        expires: timedelta | float | datetime | None = None,
        on_expiry: str = "dead",
        dedupe_for: timedelta | float | None = None,
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
        put(self, "expires", expires)
        put(self, "on_expiry", choice("on_expiry", on_expiry, ("dead", "drop"), error=InvalidMessageError))
        put(self, "due_in_ms", 0 if delay is None else duration_ms("delay", delay, error=InvalidMessageError))
        put(self, "due_at_ms", None if at is None else instant_ms("at", at, error=InvalidMessageError))
        put(self, "expiry", self._expiry())
        put(self, "dedupe_for", dedupe_for)
        put(self, "dedupe_ms", 0 if dedupe_for is None else _positive("dedupe_for", dedupe_for))

    def _expiry(self) -> str:
        """Refused: a message that could never be started, because it is due when its time is over."""
        if self.expires is None:
            return ""
        ends_at, due = _end(self.expires), self.due_at_ms
        if due is None and self.delay is not None:
            due = self.due_in_ms
        same_scale = isinstance(self.expires, datetime) == (self.due_at_ms is not None)
        if due is not None and same_scale and ends_at <= due:
            raise expected("expires", "later than the delay, or at", self.expires, error=InvalidMessageError)
        sign = "" if isinstance(self.expires, datetime) else "+"
        return f"{sign}{ends_at}{'!' if self.on_expiry == 'drop' else ''}"


def _end(expires: object) -> int:
    """Milliseconds, from now on or since 1970; an instant before that is 1970."""
    if isinstance(expires, datetime):
        return max(0, instant_ms("expires", expires, latest=True, error=InvalidMessageError))
    return _positive("expires", expires)


def _positive(option: str, duration: object) -> int:
    return duration_ms(option, duration, minimum_ms=1, error=InvalidMessageError)


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
