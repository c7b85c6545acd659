"""What the scripts answer, as Python values. Bytes come in, plain dataclasses go out; nothing here decodes payloads."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from .keys import US

STATES = {"r": "ready", "d": "delayed", "f": "in_flight", "x": "dead"}
ANSWERS = {**STATES, "g": "gone", "b": "refused"}
"""What an enqueue says of a message: those, or that it was seen before and is gone, or that there is no room for it."""
_WRITTEN = re.compile(
    "[0-9]{1,15}"
)  # an instant; a damaged one may be in digits, or so many, that Python does not read
_FIELDS = 16  # before the lane, which is the tail of a header


class HeaderError(ValueError):
    """A stored header that this version cannot read."""


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
    expires_at: int | None
    marked: str
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
                enqueued_at=int(fields[12]), moved_at=int(fields[13]),
                expires_at=int(fields[14].rstrip("!")) if fields[14] else None, marked=fields[15], lane=lane,
                tenant=tenant, queue=queue, pool=pool,
                groups=tuple(zip(rest[::2], rest[1::2], strict=False)),
            )  # fmt: skip
        except (ValueError, KeyError, IndexError) as error:
            raise HeaderError(f"unreadable header {raw[:80]!r}") from error


class RateCounts(NamedTuple):
    """The rate of a group, its tokens now, and the instant of the next one (-1: all are there, or none will come).

    All 0 where what is stored is no rate.
    """

    n: int
    per: int
    burst: int
    tokens: int
    next_at: int


class GroupCounts(NamedTuple):
    """A limit group: the limit in force (None: unlimited), held slots (None: unreadable), who waits and who holds."""

    limit: int | None
    held: int | None
    waiting: int
    holders: list[bytes]
    rate: RateCounts | None
    guaranteed: int | None


def group_counts(raw: list[Any]) -> GroupCounts:
    """The answer of the ``group_state`` script."""
    limit, held, waiting, holders, rate, guaranteed = raw
    known = RateCounts(*map(int, rate)) if rate else None
    most = None if limit == b"none" else int(limit)
    return GroupCounts(most, held, waiting, holders, known, guaranteed or None)


class Overbooked(NamedTuple):
    """A shared group that would be guaranteed more than it has."""

    group: str
    guaranteed: int
    limit: int


class UsesUnknown:
    """Nothing was set: which shared groups the tenant uses has to be found out before."""


def limit_set(raw: list[Any]) -> bool | Overbooked | UsesUnknown:
    """Whether the call has to be made again, or why nothing was set."""
    if len(raw) == 1:
        return UsesUnknown() if raw[0] == -1 else bool(raw[0])
    return Overbooked(text(raw[0]), int(raw[1]), int(raw[2]))


class Accepted(NamedTuple):
    """What an enqueue made of each message, and the tenants it refused: how many messages wait there, how many may."""

    rows: list[tuple[bool, str]]
    refused: dict[str, tuple[int, int]]


class ReadyIn(NamedTuple):
    """A tenant's ready messages in a pool, and what claims would charge for them, about.

    ``since`` is when the longest waiting became ready, -1 if nobody knows. ``competes`` is False where the tenant's own
    limit or a pause keeps all of them out.
    """

    ready: int
    charge: float
    since: int
    competes: bool


class WaitingNow(NamedTuple):
    """A tenant's weight, and what is ready of it in each pool."""

    weight: float
    pools: dict[str, ReadyIn]


def waiting_now(raw: list[Any]) -> list[WaitingNow]:
    return [
        WaitingNow(float(weight), {text(pool): _ready_in(*found) for pool, *found in pools})
        for weight, *pools in raw
    ]


def _ready_in(ready: int, charge: bytes, since: bytes, competes: int) -> ReadyIn:
    return ReadyIn(ready, float(charge), int(since), bool(competes))


class Counts(NamedTuple):
    """A tenant's counters; ``oldest`` is the instant of its oldest ready message, -1 if there is none.

    ``backlog``: how many messages may wait, -1 if there is no bound.
    """

    counters: dict[str, int]
    present: int
    blocked: int
    oldest: int
    dead: int
    weight: float
    backlog: int


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
    """The answer of a claim; ``next_due_ms``: until a delayed message or a token of a rate comes."""

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
        lease_of(lease),
        instant_of(deadline),
        note_of(note),
        position if isinstance(position, int) and position >= 0 else None,
    )


def instant_of(raw: bytes | None) -> int | None:
    """None where there is none, or one that never comes."""
    at = float(raw) if raw else math.inf
    return int(at) if math.isfinite(at) else None


def lease_of(raw: bytes | None) -> tuple[str, str, int] | None:
    fields = text(raw).split(US) if raw else []
    return (
        (fields[0], fields[1], int(fields[2])) if len(fields) > 6 and _WRITTEN.fullmatch(fields[2]) else None
    )


def note_of(raw: bytes | None) -> tuple[str, int, str] | None:
    if not raw:
        return None
    fields = text(raw).split(US, 2)
    readable = len(fields) == 3 and _WRITTEN.fullmatch(fields[1])
    return (fields[0], int(fields[1]), fields[2]) if readable else None
