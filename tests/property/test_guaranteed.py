"""Arrivals, claims and settles in any order, with guaranteed slots: classes are judged apart.

Who lacks slots that it is guaranteed, and has work that nothing keeps out, is served before all who lack none. Between
tenants without a guarantee the bound holds whatever the others are guaranteed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairqueue import Lease, Limit
from tests.property.conftest import Stage
from tests.property.meter import scaled
from tests.property.test_shares import TENANTS, Plan, Play, need_of, plans

GUARANTEES = st.dictionaries(st.sampled_from(TENANTS), st.integers(1, 3), min_size=1, max_size=2)


@dataclass
class Guaranteed(Play):
    """The same play, with a first class."""

    guaranteed: dict[str, int] = field(default_factory=dict)

    def lacks(self, tenant: str) -> bool:
        held = sum(lease.message.tenant == tenant for lease in self.running)
        return held < self.guaranteed.get(tenant, 0)

    def served(self, lease: Lease[Any]) -> None:
        tenant, need = lease.message.tenant, need_of(lease.message)
        assert (tenant, need) in self.claimable(), f"{tenant} was let in over a full group"
        free = self.free()
        lacking = {one for one in free if self.lacks(one)}
        assert not lacking or self.lacks(tenant), f"{tenant} was served before {lacking}"
        self.waiting[tenant, need] -= 1
        self.running.append(lease)
        charged = scaled({tenant: lease.message.cost}, self.weights)
        others = free - self.guaranteed.keys()
        self.pool.served(charged, others)
        if tenant not in self.guaranteed:
            self.hunger.served(tenant, charged[tenant], others)

    async def judged(self) -> None:
        """At groups a promise stands between who is served and whose turn it is: test_shares.py."""


def fitting(plan: Plan, guaranteed: dict[str, int]) -> dict[str, int]:
    """As much of it as the narrowest group has: more than a group has could not be kept."""
    left, slots = min(plan.shared.values(), default=3), {}
    for tenant, number in guaranteed.items():
        if most := min(number, plan.own.get(tenant, number), left):
            slots[tenant] = most
            left -= most
    return slots


@given(plans(), GUARANTEES)
@settings(max_examples=40)
def test_who_lacks_slots_goes_first_and_the_others_keep_their_bound(
    stage: Stage, plan: Plan, guaranteed: dict[str, int]
) -> None:
    async def act() -> None:
        async with stage.opened(limits=[Limit("tenant"), Limit("group", key="group")]) as queue:
            for group, limit in plan.shared.items():
                await queue.limits.set("group", group, limit)
            for tenant, limit in plan.own.items():
                await queue.limits.set("tenant", tenant, limit)
            slots = fitting(plan, guaranteed)
            for tenant, number in slots.items():
                await queue.limits.set("tenant", tenant, plan.own.get(tenant), guaranteed=number)
            await Guaranteed(plan, queue, guaranteed=slots).played()
            assert (await queue.audit()).findings == []

    stage.run(act)
