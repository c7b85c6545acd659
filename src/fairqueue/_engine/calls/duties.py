"""The calls that maintenance and workers repeat: what is due, what is held, who is alive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fairqueue._engine import replies

from .call import Builder, Call, Stream


class DutyCalls(Builder):
    """One bounded step of a duty each."""

    __slots__ = ()

    def promote(self, limit: int) -> Call[int]:
        return self._call("promote", int, limit=limit)

    def reclaim(
        self, limit: int, hold_ms: int = 0, stream: Stream | None = None
    ) -> Call[tuple[int, list[tuple[str, str]], list[tuple[str, str]]]]:
        """``hold_ms``: how long after an outage of the server leases of before it are not judged."""

        def decode(raw: list[Any]) -> tuple[int, list[tuple[str, str]], list[tuple[str, str]]]:
            return raw[0], _identities(raw[1]), _identities(raw[2])

        return self._replayable("reclaim", decode, stream, limit=limit, hold=hold_ms)

    def reconcile_group(
        self, group: str, cursor: str, stream: Stream | None = None
    ) -> Call[tuple[str, bool, int, list[tuple[str, str]], list[tuple[str, str]]]]:
        """Next cursor, whether the group is closed, slots looked at, whose were freed, whose records are written again."""

        def decode(
            raw: list[Any],
        ) -> tuple[str, bool, int, list[tuple[str, str]], list[tuple[str, str]]]:
            return replies.text(raw[0]), bool(raw[1]), raw[2], _identities(raw[3]), _identities(raw[4])

        return self._replayable("reconcile_group", decode, stream, group=group, cursor=cursor)

    def reconcile_leases(
        self, cursor: str, visibility_ms: int, stream: Stream | None = None
    ) -> Call[tuple[str, int, list[tuple[tuple[str, str], str]]]]:
        def decode(raw: list[Any]) -> tuple[str, int, list[tuple[tuple[str, str], str]]]:
            given = [(replies.identity(mid), replies.text(what)) for mid, what in raw[2]]
            return replies.text(raw[0]), raw[1], given

        return self._replayable("reconcile_leases", decode, stream, cursor=cursor, visibility=visibility_ms)

    def reconcile_open(self, group: str, stream: Stream | None = None) -> Call[bool]:
        return self._replayable("reconcile_open", bool, stream, group=group)

    def tidy(self, cursor: str) -> Call[tuple[str, list[str]]]:
        """Next cursor, and the lanes that take turns again."""

        def decode(raw: list[Any]) -> tuple[str, list[str]]:
            return replies.text(raw[0]), replies.texts(raw[1])

        return self._call("tidy", decode, cursor=cursor)

    def lock(self, duty: str, owner: str, ttl_ms: int) -> Call[bool]:
        """Takes or prolongs the lock of a duty; 0 gives it back."""
        return self._call("lock", bool, duty=duty, owner=owner, ttl=ttl_ms)

    def beat(self, worker: str, info: str, silence_ms: int) -> Call[int]:
        return self._call("beat", int, worker=worker, info=info, silence=silence_ms)

    def ring_bell(self, pools: Sequence[str]) -> Call[int]:
        return self._call("ring_bell", int, *((pool,) for pool in pools))


def _identities(raw: Iterable[bytes]) -> list[tuple[str, str]]:
    return [replies.identity(mid) for mid in raw]
