"""Guaranteed slots, as plain Python: who has how many, which shared groups they use, and what is more than one of these has."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Self

Group = tuple[str, str]


def shared(groups: Iterable[Group]) -> set[Group]:
    return {group for group in groups if group[0] != "tenant"}


@dataclass
class Guarantees:
    """By tenant; no message here is a month old, so that nothing is forgotten while the guarantee stands."""

    slots: dict[str, int] = field(default_factory=dict)
    uses: dict[str, set[Group]] = field(default_factory=dict)

    def fork(self) -> Self:
        return deepcopy(self)

    def note(self, tenant: str, groups: Iterable[Group]) -> None:
        """A message came."""
        if tenant in self.slots:
            self.uses[tenant] |= shared(groups)

    def set(self, tenant: str, slots: int, used: set[Group]) -> None:
        """``used``: by the messages that are there, which counts for the first guarantee only."""
        self.uses.setdefault(tenant, used)
        self.slots[tenant] = slots

    def remove(self, tenant: str) -> None:
        self.slots.pop(tenant, None)
        self.uses.pop(tenant, None)

    def total(self, group: Group) -> int:
        return sum(slots for tenant, slots in self.slots.items() if group in self.uses[tenant])

    def beyond(self, group: Group, limit: int | None) -> bool:
        """A group that is stopped, by 0, keeps none anyway."""
        return bool(limit) and self.total(group) > (limit or 0)
