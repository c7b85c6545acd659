"""Messages: what a handler gets, and what the queue tells about them.

A message is identified by its tenant and its id together. All instants are aware ``datetime``s in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic

from fairqueue.generics import P_co, subscriptable

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["DeadLetter", "Enqueued", "LeaseInfo", "Message", "MessageInfo", "MessageState"]


class MessageState(StrEnum):
    """Where a message is; it is in exactly one of the first four.

    ``gone`` is only said by an enqueue whose ``dedupe_for`` refused an id that was accepted before and has ended since.
    """

    DELAYED = "delayed"
    READY = "ready"
    IN_FLIGHT = "in_flight"
    DEAD = "dead"
    GONE = "gone"


@subscriptable
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
    payload and everything else; or when ``dedupe_for`` knew the id of one that is gone. ``state`` is where the message is now: delayed also without a delay, for 10 s, where the
    key of its lane on the server is broken (it is accepted all the same, and tried again until the key is mended).
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


@subscriptable
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


@subscriptable
@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInfo(Generic[P_co]):
    """One message of a queue, looked at from outside.

    ``lease`` is there while it is in flight, ``due_at`` while it is delayed, ``expires_at`` while it waits for its first
    start and has a time to live, ``position`` (0 is next in its lane)
    while it is ready and the position is known, ``error`` after a failure, ``reason`` when it is dead.
    ``cancelling`` says that it is in flight and cancelled: whatever ends its delivery ends it.
    Where the stored payload cannot be decoded ``decodable`` is False and ``message.payload`` is None.
    """

    state: MessageState
    message: Message[P_co | None]
    lease: LeaseInfo | None = None
    due_at: datetime | None = None
    expires_at: datetime | None = None
    position: int | None = None
    error: str | None = None
    reason: str | None = None
    decodable: bool = True
    cancelling: bool = False


def named(message: Message[Any]) -> dict[str, Any]:
    """What tells a message in a log line, as fields of the record (the ``extra`` of ``logging``)."""
    return {"tenant": message.tenant, "message_id": message.id, "attempt": message.attempt}
