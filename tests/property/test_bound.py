"""The fairness bound holds between any two that both have claimable work, whatever their limits; so it does at a group."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairqueue import Lease, Limit, NewMessage
from tests.property.conftest import Stage
from tests.property.meter import Meter, largest_costs

TENANTS = "ABCD"


@st.composite
def backlogs(
    draw: st.DrawFn, most_queues: int = 4, cheapest: float = 0.5, fewest: int = 1
) -> list[NewMessage[float]]:
    """Messages of each of two to four tenants over a few queues, at costs of its own."""
    messages = []
    for tenant in TENANTS[: draw(st.integers(2, len(TENANTS)))]:
        queues = st.integers(1, draw(st.integers(1, most_queues))).map("q{}".format)
        costs = draw(st.lists(st.sampled_from([cheapest, 1, 2, 5]), min_size=fewest, max_size=40))
        messages += [NewMessage(cost, tenant=tenant, queue=draw(queues), cost=cost) for cost in costs]
    return messages


@given(
    backlogs(),
    st.dictionaries(st.sampled_from(TENANTS), st.integers(1, 4)),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=10, max_size=60),
    st.randoms(use_true_random=False),
)
@settings(max_examples=25)
def test_between_two_with_claimable_work_whatever_limits_others_and_they_have(
    stage: Stage,
    backlog: list[NewMessage[float]],
    limits: dict[str, int],
    turns: list[tuple[int, int]],
    rng: Any,
) -> None:
    async def play() -> None:
        async with stage.opened(limits=[Limit("tenant")]) as queue:
            for tenant, limit in limits.items():
                await queue.limits.set("tenant", tenant, limit)
            await queue.enqueue_many(backlog)
            left = {tenant: sum(message.tenant == tenant for message in backlog) for tenant in TENANTS}
            running: dict[str, list[Lease[Any]]] = defaultdict(list)
            meter = Meter(largest_costs(backlog))

            def claimable() -> set[str]:
                return {t for t in TENANTS if left[t] and (t not in limits or len(running[t]) < limits[t])}

            for n, ends in turns:
                for lease in await queue.claim(n):
                    tenant = lease.message.tenant
                    assert tenant in claimable()
                    meter.served({tenant: lease.message.cost}, claimable())
                    left[tenant] -= 1
                    running[tenant].append(lease)
                everything = [lease for leases in running.values() for lease in leases]
                for lease in rng.sample(everything, min(ends, len(everything))):
                    await lease.complete()
                    running[lease.message.tenant].remove(lease)

    stage.run(play)


@given(
    backlogs(),
    st.integers(1, 5),
    st.lists(st.integers(1, 6), min_size=10, max_size=50),
    st.randoms(use_true_random=False),
)
@settings(max_examples=25)
def test_between_two_that_wait_at_one_full_group(
    stage: Stage, backlog: list[NewMessage[float]], limit: int, turns: list[int], rng: Any
) -> None:
    """Whatever the number of their queues, and however many slots are freed at a time."""

    async def play() -> None:
        async with stage.opened(limits=[Limit("all", limit, lambda _: "all")]) as queue:
            await queue.enqueue_many(backlog)
            left = {tenant: sum(message.tenant == tenant for message in backlog) for tenant in TENANTS}
            running: list[Lease[Any]] = []
            meter = Meter(largest_costs(backlog))
            for turn, ends in enumerate(turns):
                waited = (
                    {tenant for tenant in TENANTS if left[tenant]} if turn else set()
                )  # the first fills the group
                served: dict[str, float] = defaultdict(float)
                while leases := await queue.claim(limit):
                    running += leases
                    for lease in leases:
                        served[lease.message.tenant] += lease.message.cost
                        left[lease.message.tenant] -= 1
                assert len(running) == min(limit, len(running) + sum(left.values()))
                meter.served(served, {tenant for tenant in waited if left[tenant]})
                rng.shuffle(running)
                ended, running = running[:ends], running[ends:]
                await queue.complete_many(ended)

    stage.run(play)


@given(
    backlogs(most_queues=20, cheapest=0.01, fewest=20),
    st.integers(1, 3),
    st.fixed_dictionaries({tenant: st.integers(1, 2) for tenant in TENANTS}),
    st.lists(st.integers(1, 6), min_size=60, max_size=120),
    st.integers(0, 2**32),
)
@settings(max_examples=25)
def test_between_two_that_wait_at_one_full_group_and_have_limits_of_their_own(
    stage: Stage,
    backlog: list[NewMessage[float]],
    limit: int,
    own: dict[str, int],
    turns: list[int],
    seed: int,
) -> None:
    """A completion frees a tenant's own slot and the shared one at once: the tenant competes for the latter too."""

    rng = random.Random(seed)  # the order of leases is not the same in each run

    async def play() -> None:
        limits = [Limit("tenant"), Limit("all", limit, lambda _: "all")]
        async with stage.opened(limits=limits if rng.random() < 0.5 else limits[::-1]) as queue:
            for tenant, most in own.items():
                await queue.limits.set("tenant", tenant, most)
            await queue.enqueue_many(backlog)
            left = {tenant: sum(message.tenant == tenant for message in backlog) for tenant in TENANTS}
            running: list[Lease[Any]] = []
            meter = Meter(largest_costs(backlog))

            def competing() -> set[str]:
                held = Counter(lease.message.tenant for lease in running)
                return {t for t in TENANTS if left[t] and held[t] < own[t]}

            async def fill(n: int) -> None:
                while leases := await queue.claim(n):
                    for lease in leases:
                        meter.served({lease.message.tenant: lease.message.cost}, waiting)
                        left[lease.message.tenant] -= 1
                    running.extend(leases)

            waiting: set[str] = set()  # nobody waits until the group is full
            await fill(limit)
            for n in turns:
                if running:
                    await running.pop(rng.randrange(len(running))).complete()
                waiting = competing() if len(running) == limit - 1 else set()
                await fill(n)

    stage.run(play)
