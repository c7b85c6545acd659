"""The calls that look, and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairqueue._engine import replies
from fairqueue._engine.explained import Explained, explained
from fairqueue._engine.keys import join

from .call import ANY_REVISION, Builder, Call


class ReadCalls(Builder):
    """What is there, and why."""

    __slots__ = ()

    def get(self, identities: Sequence[tuple[str, str]]) -> Call[list[replies.Stored | None]]:
        """All that is stored of messages named by (tenant, id)."""

        def decode(raw: list[Any]) -> list[replies.Stored | None]:
            return [replies.stored(item) for item in raw]

        return self._call("get", decode, *((join(*identity),) for identity in identities))

    def explain(self, tenant: str, id_: str) -> Call[Explained | None]:
        """Why a message is where it is."""
        return self._call("explain", explained, mid=join(tenant, id_))

    def waiting_now(self, tenants: Sequence[str]) -> Call[list[replies.WaitingNow]]:
        """What is ready of each of these tenants, and since when."""
        return self._call("waiting_now", replies.waiting_now, *((tenant,) for tenant in tenants))

    def group_state(self, group: str, revision: str = ANY_REVISION) -> Call[replies.GroupCounts]:
        """``revision`` is that of the settings that declare the group's limit."""
        return self._call("group_state", replies.group_counts, group=group, revision=revision)

    def tenant_state(self, tenant: str) -> Call[replies.Counts]:
        def decode(raw: list[Any]) -> replies.Counts:
            return replies.Counts(
                replies.counters(raw[0]), raw[1], raw[2], int(raw[3]), raw[4], float(raw[5]), raw[6]
            )

        return self._call("tenant_state", decode, tenant=tenant)

    def totals(self) -> Call[replies.NamespaceCounts]:
        def decode(raw: list[Any]) -> replies.NamespaceCounts:
            return replies.NamespaceCounts(
                replies.counters(raw[0]), raw[1], replies.texts(raw[2]), int(raw[3])
            )

        return self._call("totals", decode)

    def lanes(self, tenant: str) -> Call[list[replies.LaneCounts]]:
        """The lanes of a tenant with ready messages."""

        def decode(raw: list[Any]) -> list[replies.LaneCounts]:
            return [
                replies.LaneCounts(replies.text(name), ready, int(oldest), replies.text(parked_at))
                for name, ready, oldest, parked_at in raw
            ]

        return self._call("lanes", decode, tenant=tenant)

    def pool_page(self, pool: str, cursor: str) -> Call[replies.PoolPage]:
        """One page of a pool's tenants with ready work; ``r0`` begins."""

        def decode(raw: list[Any]) -> replies.PoolPage:
            return replies.PoolPage(replies.text(raw[0]), raw[1], int(raw[2]))

        return self._call("pool_page", decode, pool=pool, cursor=cursor)
