"""The calls of the self-check, and of what it mends by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairqueue._engine import replies
from fairqueue._engine.keys import IRREPLACEABLE, KEYS

from .call import Builder, Call


class AuditCalls(Builder):
    """One bounded step of an audit each."""

    __slots__ = ()

    def audit(
        self, what: str, cursor: str, fix: bool, of: str = ""
    ) -> Call[tuple[str, int, list[list[str]]]]:
        """One bounded step of the self-check ``audit_<what>``: next cursor, entries looked at, findings.

        ``of``: the group, pool, lane, or the tenant whose dead letters are looked at.
        """

        def decode(raw: list[Any]) -> tuple[str, int, list[list[str]]]:
            return replies.text(raw[0]), raw[1], [replies.texts(finding) for finding in raw[2]]

        return self._call(f"audit_{what}", decode, cursor=cursor, fix=int(fix), of=of)

    def looked_through(self, *, sign: str = "", marks: Sequence[bytes] = ()) -> Call[int]:
        """The walk is done that was begun for the ``sign`` that lists be written again, or for ``marks`` of doubt."""
        return self._call("looked_through", int, *((mark,) for mark in marks), sign=sign)

    def audit_types(self, fix: bool) -> Call[list[list[str]]]:
        """Fixed keys that hold another type than they should, as (kind, evidence)."""
        rows = [
            (kind, spec.type, int(kind not in IRREPLACEABLE)) for kind, spec in KEYS.items() if not spec.of
        ]
        return self._call("audit_types", _text_rows, *rows, fix=int(fix))

    def recount(self, fix: bool, most: int) -> Call[list[list[str]]]:
        """The counters of a namespace of at most ``most`` messages against them: (check, subject, evidence)."""
        return self._call("recount", _text_rows, fix=int(fix), most=most)

    def audit_clean(self, leftovers: Sequence[str], fix: bool) -> Call[list[list[str]]]:
        """With no message left: which of these keys (named without the root) are there, as (key, evidence)."""
        return self._call("audit_clean", _text_rows, *((name,) for name in leftovers), fix=int(fix))

    def pool_lanes(self, pool: str, cursor: str) -> Call[tuple[str, list[str]]]:
        """One page of a pool's lanes, those that take turns and those that wait: next cursor ('' at the end), lanes."""

        def decode(raw: list[Any]) -> tuple[str, list[str]]:
            return replies.text(raw[0]), replies.texts(raw[1])

        return self._call("pool_lanes", decode, pool=pool, cursor=cursor)

    def mend_settings(self, fields: Sequence[tuple[str, str, str]]) -> Call[int]:
        """Fields, what they hold, and what they are to hold instead; how many still held that."""
        return self._call("mend_settings", int, *fields)


def _text_rows(raw: list[list[bytes]]) -> list[list[str]]:
    return [replies.texts(row) for row in raw]
