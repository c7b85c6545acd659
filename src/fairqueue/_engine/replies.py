"""What the scripts answer, as Python values. Bytes come in, plain dataclasses go out; nothing here decodes payloads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairqueue.errors import FairQueueError

from .keys import US

STATES = {"r": "ready", "d": "delayed", "f": "in_flight", "x": "dead"}
_FIELDS = 14  # before the lane, which is the tail of a header


class HeaderError(ValueError):
    """A stored header that this version cannot read."""


class WrongTypeError(FairQueueError):
    """A key holds another type than ours: somebody's hand."""


@dataclass(frozen=True, slots=True)
class Header:
    """The packed header of a message; see includes/header.lua."""

    state: str
    token: str
    attempt: int
    crashes: int
    redrives: int
    max_attempts: int | None
    priority: int
    cost: float
    seq: int
    enqueued_at: int
    moved_at: int
    lane: str
    tenant: str
    queue: str
    pool: str
    groups: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, raw: bytes) -> Header:
        """Raises ``HeaderError`` for anything that is not a header."""
        try:
            fields = text(raw).split(US, _FIELDS)  # damaged text is shown as it is, and stops nobody
            lane = fields[_FIELDS]
            tenant, queue, pool, *rest = lane.split(US)
            return cls(
                state=STATES[fields[0]], token=fields[1], attempt=int(fields[3]), crashes=int(fields[4]),
                redrives=int(fields[6]), max_attempts=int(fields[8]) if fields[8] else None,
                priority=int(fields[9]), cost=float(fields[10]), seq=int(fields[11]),
                enqueued_at=int(fields[12]), moved_at=int(fields[13]), lane=lane,
                tenant=tenant, queue=queue, pool=pool,
                groups=tuple(zip(rest[::2], rest[1::2], strict=False)),
            )  # fmt: skip
        except (ValueError, KeyError, IndexError) as error:
            raise HeaderError(f"unreadable header {raw[:80]!r}") from error


class GroupCounts(NamedTuple):
    """A limit group: the limit in force (None: unlimited), held slots (None: unreadable), who waits and who holds."""

    limit: int | None
    held: int | None
    waiting: int
    holders: list[bytes]


class Counts(NamedTuple):
    """A tenant's counters; ``oldest`` is the instant of its oldest ready message, -1 if there is none."""

    counters: dict[str, int]
    present: int
    blocked: int
    oldest: int
    dead: int


class NamespaceCounts(NamedTuple):
    """The namespace's counters, the pools with ready work, and the server's instant."""

    counters: dict[str, int]
    present: int
    pools: list[str]
    now: int


class LaneCounts(NamedTuple):
    """A lane with ready messages; ``oldest`` as above, ``parked_at`` is the group it waits at, or ''."""

    name: str
    ready: int
    oldest: int
    parked_at: str


class PoolPage(NamedTuple):
    """What of a page of a pool's tenants is blocked, and their oldest; ``cursor`` is '' at the end."""

    cursor: str
    blocked: int
    oldest: int


@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """One lease as the claim script answers it; ``body`` is None when the payload is gone."""

    tenant: str
    id: str
    token: str
    deadline: int
    header: Header
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer of a claim."""

    again: bool
    next_due_ms: int | None
    dirty: tuple[str, ...]
    messages: tuple[ClaimedMessage, ...]
    revision: str
    """Of the settings."""


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def texts(raw: list[bytes]) -> list[str]:
    return [text(item) for item in raw]


def identity(mid: bytes) -> tuple[str, str]:
    """(tenant, id) of a mid."""
    tenant, _, id_ = text(mid).partition(US)
    return tenant, id_


def pairs(raw: list[bytes]) -> dict[str, str]:
    """A flat list of fields and values, as HGETALL answers."""
    return dict(zip(texts(raw[::2]), texts(raw[1::2]), strict=True))


def counters(raw: list[bytes]) -> dict[str, int]:
    """The same of counters; one that is no number any more counts from 0 again."""
    return {name: _count(value) for name, value in pairs(raw).items()}


def _count(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        return 0


def claimed(raw: list[Any]) -> Claimed:
    again, next_due, dirty, leases, revision = raw
    return Claimed(
        bool(again),
        None if next_due < 0 else int(next_due),
        tuple(texts(dirty)),
        tuple(_claimed_message(lease) for lease in leases),
        text(revision),
    )


def _claimed_message(raw: list[Any]) -> ClaimedMessage:
    mid, token, deadline, header, *body = raw
    tenant, id_ = identity(mid)
    return ClaimedMessage(
        tenant, id_, text(token), int(deadline), Header.parse(header), body[0] if body else None
    )


@dataclass(frozen=True, slots=True)
class Stored:
    """All that is stored of one message."""

    id: str
    header: Header
    body: bytes | None
    lease: tuple[str, str, int] | None  # token, consumer, claimed at
    deadline: int | None
    note: tuple[str, int, str] | None  # reason, at, text
    position: int | None


def stored(raw: list[Any] | None) -> Stored | None:
    """The answer of the ``get`` script for one message."""
    if not raw:
        return None
    mid, header, body, lease, deadline, note, position = raw
    return Stored(
        identity(mid)[1],
        Header.parse(header),
        body,
        _lease(lease),
        _instant(deadline),
        _note(note),
        position if isinstance(position, int) and position >= 0 else None,
    )


def _instant(raw: bytes | None) -> int | None:
    """None where there is none, or one that never comes."""
    at = float(raw) if raw else math.inf
    return int(at) if math.isfinite(at) else None


def _lease(raw: bytes | None) -> tuple[str, str, int] | None:
    fields = text(raw).split(US) if raw else []
    return (fields[0], fields[1], int(fields[2])) if len(fields) > 6 and fields[2].isdigit() else None


def _note(raw: bytes | None) -> tuple[str, int, str] | None:
    if not raw:
        return None
    fields = text(raw).split(US, 2)
    readable = len(fields) == 3 and fields[1].isdecimal()
    return (fields[0], int(fields[1]), fields[2]) if readable else None
