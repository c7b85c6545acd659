"""Arrivals, claims and settles in any order, with limits of the tenants' own and shared groups over some of them.

Each message needs one shared group at most: what is promised to those that need several is less (docs/known-limits.md,
and test_several_groups.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairqueue import FairQueue, Lease, Limit, NewMessage
from tests.property.conftest import Stage
from tests.property.meter import Hunger, Meter, largest_costs

TENANTS, GROUPS = "ABCD", ["g", "h", "i"]
Step = tuple[str, Any]


@dataclass(frozen=True)
class Plan:
    """Limits of tenants and groups, and what happens."""

    own: dict[str, int]
    shared: dict[str, int]
    steps: list[Step]

    def messages(self) -> list[NewMessage[float]]:
        return [message for what, batch in self.steps if what == "arrive" for message in batch]


@st.composite
def plans(draw: st.DrawFn, crowded: bool = False) -> Plan:
    """Two to four tenants over a few queues each; each uses a subset of the groups, and work that needs none.

    ``crowded``: all work needs a shared group, and nobody has a limit of its own.
    """
    tenants = TENANTS[: draw(st.integers(2, len(TENANTS)))]
    shared = {
        group: draw(st.integers(1, 4)) for group in GROUPS[: draw(st.integers(int(crowded), len(GROUPS)))]
    }
    own = {} if crowded else draw(st.dictionaries(st.sampled_from(tenants), st.integers(1, 4)))
    costs = st.sampled_from(draw(st.lists(st.sampled_from([0.01, 0.5, 1, 2, 5, 30]), min_size=1, max_size=3)))
    kinds = []
    for tenant in tenants:
        needs = draw(
            st.lists(st.sampled_from([*shared] if crowded else [None, *shared]), min_size=1, max_size=3)
        )
        queues = draw(st.integers(1, 6))
        kinds.append(
            st.tuples(
                st.just(tenant), st.integers(1, queues), st.sampled_from(needs), costs, st.integers(1, 8)
            )
        )
    arrivals = st.lists(st.one_of(kinds), min_size=1, max_size=6).map(lambda drawn: ("arrive", made(drawn)))
    claims = st.integers(1, 6).map(lambda n: ("claim", n))
    settles = st.lists(st.integers(0, 99), min_size=1, max_size=5).map(lambda which: ("settle", which))
    steps = draw(st.lists(st.one_of(arrivals, claims, claims, settles, settles), min_size=5, max_size=60))
    return Plan(own, shared, [draw(arrivals), draw(arrivals), *steps])


def made(drawn: list[tuple[str, int, str | None, float, int]]) -> list[NewMessage[float]]:
    """So many messages of each drawn kind."""
    return [
        NewMessage(
            cost, tenant=tenant, queue=f"q{queue}", cost=cost, metadata={"group": need} if need else {}
        )
        for tenant, queue, need, cost, count in drawn
        for _ in range(count)
    ]


def need_of(message: Any) -> str | None:
    need: str | None = message.metadata.get("group")
    return need


@dataclass
class Play:
    """What waits and runs, and who competes for what: the oracle beside the queue."""

    plan: Plan
    queue: FairQueue[Any]
    waiting: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    running: list[Lease[Any]] = field(default_factory=list)
    at_group: dict[str, set[str]] = field(default_factory=dict)
    """Who waits at each full group, since a claim found it full: from then on the group's order decides."""

    def __post_init__(self) -> None:
        largest = dict.fromkeys(TENANTS, 0.0) | largest_costs(self.plan.messages())
        self.pool, self.hunger = Meter(largest), Hunger(largest)
        self.groups = {group: Meter(largest) for group in self.plan.shared}
        self.at_group = {group: set() for group in self.plan.shared}
        self.largest = max(largest.values())

    # --- the oracle --------------------------------------------------------------------------------------------

    def has_room(self, tenant: str) -> bool:
        held = sum(lease.message.tenant == tenant for lease in self.running)
        return tenant not in self.plan.own or held < self.plan.own[tenant]

    def room(self, group: str | None) -> float:
        if group is None:
            return float("inf")
        return self.plan.shared[group] - sum(need_of(lease.message) == group for lease in self.running)

    def claimable(self) -> set[tuple[str, str | None]]:
        return {
            kind
            for kind, count in self.waiting.items()
            if count and self.has_room(kind[0]) and self.room(kind[1])
        }

    def free(self) -> set[str]:
        """Tenants with claimable work that needs no shared group: nothing that others hold can keep them out.

        Not those at a limit of their own that have work for a shared group too: a slot of theirs may be promised to that
        work. When it finds the group full it hands the slot on, at the end of the script; until then, for the rest of one
        claim, the tenant takes no turns.
        """
        return {
            tenant for tenant, need in self.claimable() if need is None and not self.may_be_promised(tenant)
        }

    def may_be_promised(self, tenant: str) -> bool:
        return tenant in self.plan.own and any(self.waiting[tenant, group] for group in self.plan.shared)

    def competing(self, group: str) -> set[str]:
        """Who surely waits there: with more messages than free slots, for so many may be promised to it already.

        Whose messages all have a slot promised waits for none, until another message comes.
        """
        return {t for t in TENANTS if self.waiting[t, group] > self.room(group) and self.has_room(t)}

    # --- the steps ---------------------------------------------------------------------------------------------

    async def arrive(self, batch: list[NewMessage[float]]) -> None:
        await self.queue.enqueue_many(batch)
        self.waiting.update((message.tenant, need_of(message)) for message in batch)

    async def claim(self, n: int) -> None:
        leases = await self.queue.claim(n)
        for lease in leases:
            self.served(lease)
        if len(leases) < n:
            assert not self.claimable(), f"the claim came short, and {self.claimable()} could run"
            for group in self.plan.shared:
                self.at_group[group] = set() if self.room(group) else self.competing(group)

    def served(self, lease: Lease[Any]) -> None:
        tenant, need, cost = lease.message.tenant, need_of(lease.message), lease.message.cost
        assert (tenant, need) in self.claimable(), f"{tenant} was let in over a full group"
        free = self.free()
        competing = {group: self.at_group[group] & self.competing(group) for group in self.plan.shared}
        self.waiting[tenant, need] -= 1
        self.running.append(lease)
        self.pool.served({tenant: cost}, free)
        self.hunger.served(tenant, cost, free)
        for group, meter in self.groups.items():
            served = {tenant: cost} if need == group else {}
            meter.served(served, competing[group], slack=self.largest * self.room(group))
        self.no_longer_competing()

    def no_longer_competing(self) -> None:
        for group in self.plan.shared:
            self.at_group[group] &= self.competing(group)

    async def settle(self, which: list[int]) -> None:
        ended = [self.running.pop(index % len(self.running)) for index in which if self.running]
        await self.queue.complete_many(ended)
        self.no_longer_competing()

    async def played(self) -> None:
        for what, details in self.plan.steps:
            await {"arrive": self.arrive, "claim": self.claim, "settle": self.settle}[what](details)
        while self.running or sum(self.waiting.values()):
            await self.settle(list(range(0, 99, 7))[: len(self.running)])
            await self.claim(5)
            assert self.running or not sum(self.waiting.values()), f"nobody is given {self.waiting}"


@given(plans() | plans(crowded=True))
@settings(max_examples=120)
def test_no_arrival_breaks_the_bound_leaves_work_idle_or_lets_anybody_starve(
    stage: Stage, plan: Plan
) -> None:
    async def play() -> None:
        limits = [Limit("tenant"), Limit("group", key="group")]
        async with stage.opened(limits=limits) as queue:
            for group, limit in plan.shared.items():
                await queue.limits.set("group", group, limit)
            for tenant, limit in plan.own.items():
                await queue.limits.set("tenant", tenant, limit)
            await Play(plan, queue).played()
            assert (await queue.audit()).findings == []

    stage.run(play)
