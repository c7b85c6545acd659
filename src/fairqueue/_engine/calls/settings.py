"""The calls that change what is stored for a namespace, its groups and its tenants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairqueue._engine import replies
from fairqueue._engine.script import Argument

from .call import ANY_REVISION, Builder, Call, Stream, optional

DECLARABLE = ("scheduler", "quantum", "limits", "retry", "max_attempts", "max_crashes", "dead_letters")
"""The settings that clients declare."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the server stores for a namespace, and which of it this client has just changed."""

    stored: dict[str, str]
    changed: tuple[str, ...]


class SettingsCalls(Builder):
    """What clients declare, and what operators set."""

    __slots__ = ()

    def configure(
        self,
        stream: Stream,
        by: str,
        declared: dict[str, str],
        defaults: Sequence[tuple[str, int | None]],
        restoring: bool = False,
    ) -> Call[Settings]:
        """``declared`` holds what this client says (missing or '': nothing), ``defaults`` the limits' defaults.

        ``restoring``: it gives back what the server has lost; who was faster is not overruled.
        """

        def decode(raw: list[Any]) -> Settings:
            return Settings(replies.pairs(raw[0]), tuple(replies.texts(raw[1])))

        rows = [(name, "none" if default is None else default) for name, default in defaults]
        values: dict[str, Argument] = {name: declared.get(name, "") for name in DECLARABLE}
        return self._replayable("configure", decode, stream, *rows, by=by, restore=int(restoring), **values)

    def retag(self, pool: str, cursor: str) -> Call[str]:
        """A page of the turns of a pool starts level; ``ring0`` begins, '' is the end."""
        return self._call("retag", replies.text, pool=pool, cursor=cursor)

    def set_limit(
        self,
        group: str,
        value: int | str,
        guaranteed: int | None = None,
        revision: str = ANY_REVISION,
        *,
        stream: Stream,
    ) -> Call[bool | replies.Overbooked | replies.UsesUnknown]:
        """Whether to call again. ``revision`` is that of the settings that declare the group's limit."""
        named = "" if guaranteed is None else guaranteed
        return self._replayable(
            "set_limit",
            replies.limit_set,
            stream,
            group=group,
            value=value,
            guaranteed=named,
            revision=revision,
        )

    def find_uses(self, tenant: str, cursor: str) -> Call[str]:
        """A page of all messages for the shared groups that a tenant uses: next cursor. '' begins a first guarantee."""
        return self._call("find_uses", replies.text, tenant=tenant, cursor=cursor)

    def set_rate(
        self, group: str, rate: tuple[int, int, int], revision: str = ANY_REVISION, *, stream: Stream
    ) -> Call[bool]:
        """``rate`` is n, per (ms) and burst; an n of 0 removes it. ``revision`` as above."""
        n, per, burst = rate
        return self._replayable(
            "set_rate", bool, stream, group=group, n=n, per=per, burst=burst, revision=revision
        )

    def charged_at(self, tenant: str, cursor: str) -> Call[tuple[str, list[str]]]:
        """The next cursor, and the scopes where the tenant has a tag; ``0`` begins, and is the end."""
        return self._call(
            "charged_at",
            lambda raw: (replies.text(raw[0]), replies.texts(raw[1])),
            tenant=tenant,
            cursor=cursor,
        )

    def set_weight(self, tenant: str, weight: float, scopes: Sequence[str], stream: Stream) -> Call[bool]:
        """False: the scheduler knows no weights, and nothing was changed. ``scopes`` are those of ``charged_at``."""
        rows = [(scope,) for scope in scopes]
        return self._replayable("set_weight", bool, stream, *rows, tenant=tenant, weight=repr(weight))

    def set_backlog(self, tenant: str, value: int | None, stream: Stream) -> Call[int]:
        return self._replayable("set_backlog", int, stream, tenant=tenant, value=optional(value))
