"""The calls that a message goes by: enqueued, claimed, kept, ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairqueue._engine import replies
from fairqueue._engine.keys import join
from fairqueue._engine.script import Argument

from .call import ANY_REVISION, Builder, Call, Stream, note_text, optional

ENQUEUE_REPLAY_MS = 60_000  # longer than a client repeats a call by itself


@dataclass(frozen=True, slots=True)
class NewRow:
    """One message to enqueue, resolved and encoded."""

    tenant: str
    id: str
    lane: str
    priority: int
    cost: float
    due_in_ms: int
    due_at_ms: int | None
    max_attempts: int | None
    body: bytes
    expires: str = ""
    """Milliseconds since 1970, or, with '+' before them, from now; '!' after them: dropped then. '' without."""
    dedupe_ms: int = 0


@dataclass(frozen=True, slots=True)
class SettleRow:
    """How one delivery ends: action is complete, fail, release or dead."""

    tenant: str
    id: str
    token: str
    action: str
    delay_ms: int = 0
    reason: str = ""
    text: str = ""
    begun: bool = True
    """Whether a handler had begun: if not, a release gives back what was charged."""
    seconds: float | None = None
    """What the handler took, where that is what is charged."""


class Extended(NamedTuple):
    """What an extend found of a lease: its new deadline (None: it is lost), and whether its message is cancelled."""

    deadline: int | None
    cancelled: bool


class DeliveryCalls(Builder):
    """From enqueue to settle."""

    __slots__ = ()

    def enqueue(
        self, stream: Stream, rows: Sequence[NewRow], revision: str = ANY_REVISION
    ) -> Call[replies.Accepted]:
        """``revision`` is that of the settings whose limits gave the rows their lanes."""
        packed = [
            (join(r.tenant, r.id), r.lane, r.priority, repr(r.cost), r.due_in_ms, optional(r.due_at_ms),
             optional(r.max_attempts), r.expires, r.dedupe_ms, r.body)
            for r in rows
        ]  # fmt: skip
        return self._replayable(
            "enqueue", _accepted, stream, *packed, revision=revision, ttl=ENQUEUE_REPLAY_MS
        )

    def claim(
        self,
        stream: Stream,
        n: int,
        visibility_ms: int,
        consumer: str,
        pools: Sequence[str],
        *,
        by_time: bool = False,
    ) -> Call[replies.Claimed]:
        """``by_time``: a delivery charges what the tenant's messages take of late, not its cost."""
        return self._replayable(
            "claim", replies.claimed, stream, *((pool,) for pool in pools),
            n=n, visibility=visibility_ms, consumer=consumer, by_time=int(by_time),
        )  # fmt: skip

    def settle(
        self, stream: Stream, rows: Sequence[SettleRow], ttl_ms: int, revision: str = ANY_REVISION
    ) -> Call[list[str]]:
        """``revision`` is that of the settings whose retry policy gave the rows their delays."""
        packed = [
            (join(r.tenant, r.id), r.token, r.action, r.delay_ms, int(r.begun), _seconds(r.seconds),
             note_text(r.reason), note_text(r.text))
            for r in rows
        ]  # fmt: skip
        return self._replayable("settle", replies.texts, stream, *packed, revision=revision, ttl=ttl_ms)

    def extend(
        self, leases: Sequence[tuple[str, str, str]], visibility_ms: int, consumer: str
    ) -> Call[list[Extended]]:
        """``leases`` are (tenant, id, token)."""
        rows = [(join(tenant, id_), token) for tenant, id_, token in leases]
        return self._call("extend", _extended, *rows, visibility=visibility_ms, consumer=consumer)


def _seconds(value: float | None) -> Argument:
    return "" if value is None else repr(float(value))


def _accepted(raw: list[Any]) -> replies.Accepted:
    rows, refusals = raw
    return replies.Accepted(
        [(bool(created), replies.ANSWERS[state.decode()]) for created, state in rows],
        {replies.text(tenant): (int(waits), int(most)) for tenant, waits, most in refusals},
    )


def _extended(raw: list[Any]) -> list[Extended]:
    deadlines, cancelled = raw
    return [Extended(int(at) or None, row in cancelled) for row, at in enumerate(deadlines)]
