"""Arrivals, claims, settles and new weights in any order, with limits of the tenants' own and shared groups over some.

Each message needs one shared group at most: what is promised to those that need several is less (docs/known-limits.md,
and test_several_groups.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairqueue import FairQueue, Lease, Limit, NewMessage
from fairqueue._engine.keys import US, join, key
from tests.property.conftest import Stage
from tests.property.meter import Hunger, Meter, largest_costs, scaled

TENANTS, GROUPS = "ABCD", ["g", "h", "i"]
Step = tuple[str, Any]


@dataclass(frozen=True)
class Plan:
    """Limits of tenants and groups, and what happens."""

    own: dict[str, int]
    shared: dict[str, int]
    steps: list[Step]

    @property
    def alone(self) -> bool:
        """One group that all work needs, and nothing else that could keep anybody out."""
        return len(self.shared) == 1 and not self.own and all(map(need_of, self.messages()))

    def messages(self) -> list[NewMessage[float]]:
        return [message for what, batch in self.steps if what == "arrive" for message in batch]


@st.composite
def plans(draw: st.DrawFn, crowded: bool = False, most_groups: int = len(GROUPS)) -> Plan:
    """Two to four tenants over a few queues each; each uses a subset of the groups, and work that needs none.

    ``crowded``: all work needs a shared group, and nobody has a limit of its own.
    """
    tenants = TENANTS[: draw(st.integers(2, len(TENANTS)))]
    groups = GROUPS[: draw(st.integers(int(crowded), most_groups))]
    shared = {group: draw(st.integers(1, 8 if most_groups == 1 else 4)) for group in groups}
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
    claims = st.integers(1, 8).map(lambda n: ("claim", n))
    settles = st.lists(st.integers(0, 99), min_size=1, max_size=5).map(lambda which: ("settle", which))
    what = [arrivals, claims, claims, settles, settles]
    if draw(st.booleans()):
        weights = st.sampled_from([0.1, 0.5, 1, 3, 20])
        what.append(st.tuples(st.sampled_from(tenants), weights).map(lambda weighed: ("weigh", weighed)))
    steps = draw(st.lists(st.one_of(what), min_size=5, max_size=60))
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


async def waiting_at(queue: FairQueue[Any], group: str) -> set[str]:
    """Who takes turns at a group that is full, with messages that no slot is promised to; the others do in the pool."""
    ring = key(queue._engine.calls.root, "ring", "g", "default", join("group", group))
    return {tenant.decode() for tenant in await queue._engine.command("ZRANGE", ring, 0, -1)}


async def promised_at(queue: FairQueue[Any], group: str) -> Counter[str]:
    """What the messages charge that slots of a group are promised to, by tenant, as the server counts it."""
    woken = key(queue._engine.calls.root, "woken", "default", join("group", group))
    promised: Counter[str] = Counter()
    for lane, counted in (await queue._engine.command("HGETALL", woken)).items():
        if b"\x1e" not in lane:  # a further one of a lane, which is counted there
            promised[lane.decode().split(US)[0]] += float(counted.decode().split(US)[1])  # type: ignore[assignment]
    return promised


async def batons_at(queue: FairQueue[Any], group: str) -> Counter[str]:
    """How many slots of a group are promised to each tenant: nobody else can take those."""
    woken = key(queue._engine.calls.root, "woken", "default", join("group", group))
    batons: Counter[str] = Counter()
    for lane, counted in (await queue._engine.command("HGETALL", woken)).items():
        if b"\x1e" not in lane:
            batons[lane.decode().split(US)[0]] += int(counted.decode().split(US)[0])
    return batons


NOTHING = dict.fromkeys(TENANTS, 0.0)


@dataclass(frozen=True)
class Look:
    """A group at a moment: what each was served of it so far, and who competes for it."""

    served: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    at_group: set[str] = field(default_factory=set)
    with_work: set[str] = field(default_factory=set)


@dataclass
class Claimable:
    """Every pair of tenants while both have claimable work, whatever groups with room that needs: the actual bound.

    Room that is promised to somebody is none for the others.

    Turns are taken in the pool, and at a group while it is full; who has work of both kinds, or at a group that fills and
    has room again by turns, is under both bounds, which add up (docs/known-limits.md): four times the largest cost.
    """

    meter: Meter
    got: dict[str, float] = field(default_factory=lambda: dict(NOTHING))
    before: tuple[dict[str, float], set[str]] = field(default_factory=lambda: (dict(NOTHING), set()))

    def judged(self, now: set[str], promised: Counter[str]) -> None:
        """After a step: it made room, or took it, so who had claimable work before and after it had some throughout."""
        got, then = self.before
        self.meter.served(
            {tenant: self.got[tenant] - got[tenant] for tenant in TENANTS}, now & then, promised
        )
        self.before = dict(self.got), now


@dataclass
class Play:
    """What waits and runs, and who competes for what: the oracle beside the queue."""

    plan: Plan
    queue: FairQueue[Any]
    waiting: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    running: list[Lease[Any]] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    apart: float = 0.0
    """How far the service of two tenants with claimable work came apart, as a part of what is the bound for it."""

    def __post_init__(self) -> None:
        self.measure_anew()
        self.got = {group: dict.fromkeys(TENANTS, 0.0) for group in self.plan.shared}
        self.looks = {group: Look() for group in self.plan.shared}

    def measure_anew(self) -> None:
        """Intervals begin here, by the weights of now."""
        costs = dict.fromkeys(TENANTS, 0.0) | largest_costs(self.plan.messages())
        largest = scaled(costs, self.weights)
        of_all = scaled(dict.fromkeys(TENANTS, max(costs.values())), self.weights)
        self.pool, self.hunger = Meter(largest), Hunger(largest)
        self.groups = {group: Meter(of_all) for group in self.plan.shared}
        # in the pool by its turns until the group is full, then by the group's: the bound of both
        both = {tenant: 2 * cost for tenant, cost in of_all.items()}
        self.only_group, self.anywhere = Meter(both), Claimable(Meter(both))

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
        """Tenants with claimable work that needs no shared group: nothing that others hold can keep them out."""
        return {tenant for tenant, need in self.claimable() if need is None}

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

    def served(self, lease: Lease[Any]) -> None:
        tenant, need, cost = lease.message.tenant, need_of(lease.message), lease.message.cost
        assert (tenant, need) in self.claimable(), f"{tenant} was let in over a full group"
        free = self.free()
        self.waiting[tenant, need] -= 1
        self.running.append(lease)
        charged = scaled({tenant: cost}, self.weights)
        self.pool.served(charged, free)
        self.hunger.served(tenant, charged[tenant], free)
        self.anywhere.got[tenant] += charged[tenant]
        if need:
            self.got[need][tenant] += cost

    async def settle(self, which: list[int]) -> None:
        ended = [self.running.pop(index % len(self.running)) for index in which if self.running]
        await self.queue.complete_many(ended)

    async def weigh(self, weighed: tuple[str, float]) -> None:
        tenant, weight = weighed
        await self.queue.tenants.set_weight(tenant, weight)
        if self.weights.get(tenant, 1) != weight:
            self.weights[tenant] = weight
            self.measure_anew()

    async def judged(self) -> None:
        """After each step: who waited at a group before and after it, and what they were given of it meanwhile."""
        everywhere: Counter[str] = Counter()
        kept: dict[str | None, Counter[str]] = {None: Counter()}
        for group, look in self.looks.items():
            promised = await promised_at(self.queue, group)
            everywhere.update(promised)
            kept[group] = await batons_at(self.queue, group)
            now = Look(
                served=dict(self.got[group]),
                at_group=await waiting_at(self.queue, group),
                with_work={tenant for tenant in TENANTS if self.waiting[tenant, group]},
            )
            got = {tenant: now.served[tenant] - look.served[tenant] for tenant in TENANTS}
            served = scaled(got, self.weights)
            # who has a limit of its own waits for that, too: what comes free there and here may not come together
            waiting = (now.at_group & look.at_group) - set(self.plan.own)
            self.groups[group].served(served, waiting, promised)
            if self.plan.alone:
                self.only_group.served(served, now.with_work & look.with_work, promised)
            self.looks[group] = now
        # who has a limit of its own waits for that, too, and of what is promised to it another queue may come first
        competing = {
            tenant
            for tenant, need in self.claimable()
            if self.room(need) > kept[need].total() - kept[need][tenant]
        }
        self.anywhere.judged(competing - set(self.plan.own), everywhere)
        self.apart = max(self.apart, self.anywhere.meter.widest)

    async def played(self) -> None:
        steps = {"arrive": self.arrive, "claim": self.claim, "settle": self.settle, "weigh": self.weigh}
        for what, details in self.plan.steps:
            await steps[what](details)
            await self.judged()
        while self.running or sum(self.waiting.values()):
            await self.settle(list(range(0, 99, 7))[: len(self.running)])
            await self.judged()
            await self.claim(5)
            await self.judged()
            assert self.running or not sum(self.waiting.values()), f"nobody is given {self.waiting}"


HANDED_BACK = Plan(
    own={"B": 1},
    shared={"g": 3},
    steps=[
        ("arrive", made([("B", 1, "g", 0.5, 1)])),
        ("arrive", made([("A", 1, "g", 0.5, 1)])),
        ("arrive", made([
            ("A", 1, "g", 0.5, 1), ("B", 1, "g", 0.5, 6), ("B", 1, None, 0.5, 2),
            ("C", 1, "g", 0.01, 2), ("C", 1, "g", 0.01, 7), ("C", 1, "g", 0.5, 1),
        ])),
        ("arrive", made([("A", 1, "g", 0.5, 1)])),
        ("claim", 1),
        ("claim", 1),
        ("arrive", made([*[("A", 1, "g", 0.5, 1)] * 4, ("A", 2, "g", 1, 1), ("C", 1, "g", 1, 3)])),
    ],
)  # fmt: skip
"""B hands back, at its own limit, what it was promised at the group: that was taken by whom the claim met next."""


@example(plan=HANDED_BACK)
@given(plans() | plans(crowded=True) | plans(crowded=True, most_groups=1))
@settings(max_examples=120)
def test_no_arrival_breaks_the_bound_leaves_work_idle_or_lets_anybody_starve(
    stage: Stage, plan: Plan
) -> None:
    stage.run(lambda: acted(stage, plan))


async def acted(stage: Stage, plan: Plan) -> Play:
    """The plan, from its limits to the end."""
    limits = [Limit("tenant"), Limit("group", key="group")]
    async with stage.opened(limits=limits) as queue:
        for group, limit in plan.shared.items():
            await queue.limits.set("group", group, limit)
        for tenant, limit in plan.own.items():
            await queue.limits.set("tenant", tenant, limit)
        play = Play(plan, queue)
        await play.played()
        assert (await queue.audit()).findings == []
    return play
