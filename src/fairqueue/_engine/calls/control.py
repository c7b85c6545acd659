"""The calls by which an operator stops, ends and brings back messages."""

from __future__ import annotations

from collections.abc import Sequence

from fairqueue._engine import replies

from .call import Builder, Call, Stream, note_text

Selectors = tuple[str, str, str]
"""Tenant, queue and pool that a pause names; '' is one that is not given."""
SELECTORS = ("tenant", "queue", "pool")


class ControlCalls(Builder):
    """What an operator does to messages."""

    __slots__ = ()

    def pause(self, selectors: Selectors, by: str, reason: str, *, stream: Stream) -> Call[bool]:
        """Whether the pause is new."""
        named = dict(zip(SELECTORS, selectors, strict=True))
        return self._replayable("pause", bool, stream, **named, by=note_text(by), reason=note_text(reason))

    def resume(self, selectors: Selectors, *, stream: Stream) -> Call[tuple[bool, bool]]:
        """Whether the pause stood, and whether lanes are left that wait at it."""
        named = dict(zip(SELECTORS, selectors, strict=True))
        return self._replayable("resume", lambda raw: (bool(raw[0]), bool(raw[1])), stream, **named)

    def cancel(self, tenant: str, id_: str, *, stream: Stream) -> Call[str]:
        """``cancelled``, ``cancelling`` or ``not_found``."""
        return self._replayable("cancel", replies.text, stream, tenant=tenant, id=id_)

    def purge(
        self, tenant: str, queue: str, lane: str, cursor: str, newest: int, *, stream: Stream
    ) -> Call[tuple[str, bool, int]]:
        """One step over a lane, or ('') over what is delayed: next cursor, whether there is more, how many."""
        return self._replayable(
            "purge", lambda raw: (replies.text(raw[0]), bool(raw[1]), raw[2]), stream,
            tenant=tenant, queue=queue, lane=lane, cursor=cursor, newest=newest,
        )  # fmt: skip

    def redrive(self, tenant: str, ids: Sequence[str], stream: Stream) -> Call[int]:
        return self._replayable("redrive", int, stream, *((id_,) for id_ in ids), tenant=tenant)

    def purge_dead(self, tenant: str, ids: Sequence[str], stream: Stream) -> Call[int]:
        return self._replayable("purge_dead", int, stream, *((id_,) for id_ in ids), tenant=tenant)
