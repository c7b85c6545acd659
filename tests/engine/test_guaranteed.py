"""Guaranteed slots: a tenant with work that holds fewer is served before all who lack none, and charged as always."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from fairqueue import ConfigurationError, FairQueue, Lease, Limit, NewMessage
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.shares import widest_gap
from tests.engine.tools import commands_of_a_claim, found, raw

ORG = {"org": "o"}
OWN = [Limit("tenant")]


def shared(limit: int | None) -> list[Limit]:
    return [Limit("tenant"), Limit("org", default=limit, key="org")]


async def guaranteed(queue: FairQueue[Any], **slots: int) -> None:
    for tenant, number in slots.items():
        await queue.limits.set("tenant", tenant, None, guaranteed=number)


async def arrive(there: FairQueue[Any], tenants: str, count: int = 50, **options: Any) -> None:
    """By turns, so that no tenant's messages are older than another's."""
    await there.enqueue_many(
        NewMessage(n, tenant=tenant, **options) for n in range(count) for tenant in tenants
    )


def tenants_of(leases: list[Lease[Any]]) -> str:
    return "".join(lease.message.tenant for lease in leases)


class Workers:
    """So many messages at work at a time; which of them ends next is drawn."""

    def __init__(self, queue: FairQueue[Any], capacity: int, seed: int = 1) -> None:
        self.queue, self.capacity, self.rng = queue, capacity, random.Random(seed)
        self.running: list[Lease[Any]] = []
        self.served: list[tuple[str, float]] = []

    async def fill(self) -> str:
        """Who is served with what is free."""
        free = self.capacity - len(self.running)
        leases = await self.queue.claim(free) if free else []
        self.running += leases
        self.served += [(lease.message.tenant, lease.message.cost) for lease in leases]
        return tenants_of(leases)

    async def end(self, tenant: str | None = None) -> None:
        running = [lease for lease in self.running if tenant in (None, lease.message.tenant)]
        lease = self.rng.choice(running)
        self.running.remove(lease)
        await lease.complete()

    async def work(self, most: int) -> Counter[str]:
        """Until so many more were served; how many of each."""
        begin = len(self.served)
        await self.fill()
        while len(self.served) - begin < most:
            await self.end()
            await self.fill()
        return Counter(tenant for tenant, _ in self.served[begin:])

    async def stop(self) -> None:
        await self.queue.complete_many(self.running)
        await drain(self.queue)


# --- the promise -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["fair", "fifo", "drr"])
async def test_it_is_served_within_one_handler_s_time(make_queue: MakeQueue, scheduler: str) -> None:
    """Nobody is stopped: each slot that comes free is its, until it holds what it was guaranteed."""
    queue = await make_queue(limits=OWN, scheduler=scheduler)
    await guaranteed(queue, z=2)
    await arrive(queue, "abc")
    workers = Workers(queue, 4)
    assert "z" not in await workers.fill()
    await arrive(queue, "z", 3)
    got = ""
    for _ in range(4):
        await workers.end(tenants_of(workers.running).strip("z")[0])
        got += await workers.fill()
    assert got[:2] == "zz"
    assert "z" not in got[2:]
    await workers.stop()


async def test_what_it_does_not_use_is_lent(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=OWN)
    await guaranteed(queue, z=3)
    await arrive(queue, "ab", 5)
    await arrive(queue, "z", 1)
    leases = await queue.claim(10)
    assert len(leases) == 10
    assert Counter(tenants_of(leases)) == {"z": 1, "a": 5, "b": 4}
    await queue.complete_many(leases)
    await drain(queue)


async def test_two_guaranteed_tenants_take_turns_by_their_tags(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=OWN)
    await guaranteed(queue, y=3, z=2)
    await arrive(queue, "abyz")
    first = await queue.claim(6)
    assert tenants_of(first) == "yzyzya"
    await queue.complete_many(first)
    await drain(queue)


async def test_at_its_own_limit_or_at_a_full_group_it_stops_nobody(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=shared(1))
    await queue.limits.set("tenant", "y", 2, guaranteed=2)
    await arrive(queue, "y", 5)
    await arrive(queue, "z", 5, metadata=ORG)
    await queue.limits.set("tenant", "z", 4, guaranteed=1)
    await arrive(queue, "z", 1, queue="free")
    await arrive(queue, "a", 5)
    leases = await queue.claim(6)
    assert Counter(tenants_of(leases)) == {"y": 2, "z": 2, "a": 2}
    await queue.complete_many(leases)
    await drain(queue)


async def test_a_slot_that_comes_free_in_another_pool_counts(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=OWN)
    await guaranteed(queue, z=1)
    await arrive(queue, "z", 1, pool="gpu")
    (running,) = await queue.claim(pools=["gpu"])
    await arrive(queue, "abz")
    first = await queue.claim(6)
    assert tenants_of(first) == "abzabz"  # its turns are like theirs while it holds what it is guaranteed
    await queue.complete_many([lease for lease in first if lease.message.tenant == "z"])
    await running.complete()
    assert tenants_of(await queue.claim(2)) == "za"
    await queue.complete_many(first)
    await drain(queue)


# --- the charge --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["fair", "fifo", "drr"])
@pytest.mark.parametrize("limits", [shared(None), shared(8)], ids=["pool", "shared group"])
async def test_a_guarantee_of_the_fair_share_gives_the_fair_share(
    make_queue: MakeQueue, scheduler: str, limits: list[Limit]
) -> None:
    """Of what is served under a guarantee each unit is charged, so that nothing is given twice: 100 of 400."""
    queue = await make_queue(limits=limits, scheduler=scheduler)
    await guaranteed(queue, a=2)
    await arrive(queue, "abcd", 150, metadata=ORG)
    workers = Workers(queue, 8 if limits[1].default is None else 100)
    got = await workers.work(400)
    assert got["a"] == pytest.approx(100, abs=4), got
    assert widest_gap(workers.served[:400], "bcd") <= (9 if scheduler == "fifo" else 2)
    await workers.stop()


async def test_others_keep_their_bound_beside_a_guarantee_above_the_share(make_queue: MakeQueue) -> None:
    """A newcomer is not put behind all that was served under a guarantee."""
    queue = await make_queue(limits=OWN)
    await guaranteed(queue, a=6)
    await arrive(queue, "abc", 300)
    workers = Workers(queue, 8)
    got = await workers.work(200)
    assert got["a"] == pytest.approx(150, abs=10)
    assert widest_gap(workers.served, "bc") <= 2
    await arrive(queue, "n", 300)
    begin = len(workers.served)
    got = await workers.work(80)
    assert widest_gap(workers.served[begin:], "bcn") <= 2
    assert got["n"] > 4
    await workers.stop()


@pytest.mark.parametrize("limits", [OWN, shared(8)], ids=["pool", "shared group"])
async def test_who_loses_its_guarantee_goes_on_level_with_the_others(
    make_queue: MakeQueue, limits: list[Limit]
) -> None:
    queue = await make_queue(limits=limits)
    await guaranteed(queue, a=6)
    await arrive(queue, "abc", 300, metadata=ORG)
    workers = Workers(queue, 8)
    await workers.work(120)
    await queue.limits.set("tenant", "a", None)
    begin = len(workers.served)
    got = await workers.work(90)
    assert got["a"] == pytest.approx(30, abs=8), workers.served[begin:]
    await workers.stop()


# --- at a shared group that is full --------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["fair", "fifo", "drr"])
async def test_slots_of_a_full_group_go_to_who_is_below_first(make_queue: MakeQueue, scheduler: str) -> None:
    queue = await make_queue(limits=shared(4), scheduler=scheduler)
    await guaranteed(queue, z=2)
    await arrive(queue, "abc", metadata=ORG)
    workers = Workers(queue, 100)
    assert len(await workers.fill()) == 4
    await arrive(queue, "z", metadata=ORG)
    await workers.fill()
    for turn in range(4):
        await workers.end(workers.served[turn][0])
        assert (await workers.fill() == "z") == (turn < 2)
    await workers.stop()


async def test_it_takes_over_what_was_promised_to_others(make_queue: MakeQueue) -> None:
    """Who comes when all slots are promised; its tag is far ahead of theirs."""
    queue = await make_queue(limits=shared(3))
    await guaranteed(queue, z=2)
    await arrive(queue, "abc", metadata=ORG)
    await arrive(queue, "z", 10, metadata=ORG, cost=30)
    first = await queue.claim(3)
    assert Counter(tenants_of(first))["z"] == 2
    assert await queue.claim(3) == []  # all wait
    await queue.complete_many(first)
    again = await queue.claim(3)
    assert Counter(tenants_of(again))["z"] == 2
    await queue.complete_many(again)
    await drain(queue)


async def test_a_newcomer_takes_over_what_was_promised(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=shared(3))
    await guaranteed(queue, z=1)
    await arrive(queue, "abc", metadata=ORG)
    first = await queue.claim(3)
    assert await queue.claim(3) == []
    await queue.complete_many(first)  # promised to a, b and c
    await arrive(queue, "z", 5, metadata=ORG)
    again = await queue.claim(3)
    assert tenants_of(again)[0] == "z"
    assert Counter(tenants_of(again))["z"] == 1
    await queue.complete_many(again)
    await drain(queue)


async def test_nobody_takes_over_what_it_lacks(make_queue: MakeQueue) -> None:
    """Its turn is later than theirs, and the promise is kept for it."""
    queue = await make_queue(limits=shared(2))
    await guaranteed(queue, z=1)
    await arrive(queue, "z", 5, metadata=ORG, cost=50)
    await arrive(queue, "ab", metadata=ORG)
    first = await queue.claim(2)
    assert tenants_of(first)[0] == "z"
    assert await queue.claim(2) == []
    await queue.complete_many(first)  # one of the two slots is promised to z
    await arrive(queue, "c", metadata=ORG)
    again = await queue.claim(2)
    assert Counter(tenants_of(again))["z"] == 1
    await queue.complete_many(again)
    await drain(queue)


async def test_it_is_promised_no_more_than_it_lacks(make_queue: MakeQueue) -> None:
    """Slots that come free one by one while nobody claims are not all for it."""
    queue = await make_queue(limits=shared(4))
    await guaranteed(queue, z=1)
    await arrive(queue, "abc", metadata=ORG)
    first = await queue.claim(4)
    await arrive(queue, "z", 10, metadata=ORG, queue="one")
    await arrive(queue, "z", 10, metadata=ORG, queue="two")
    assert await queue.claim(4) == []
    for lease in first:
        await lease.complete()
    again = await queue.claim(4)
    assert tenants_of(again)[0] == "z"
    assert Counter(tenants_of(again))["z"] <= 2  # one by guarantee, and its turn as anybody has one
    await queue.complete_many(again)
    await drain(queue)


# --- set, shown, refused -------------------------------------------------------------------------------------------


async def test_each_set_says_limit_and_guarantee(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=shared(5))
    assert (await queue.limits.get("tenant", "a")).guaranteed is None
    await queue.limits.set("tenant", "a", 10, guaranteed=3)
    state = await queue.limits.get("tenant", "a")
    assert (state.limit, state.guaranteed) == (10, 3)
    assert [(one.id, one.guaranteed) async for one in queue.limits.list("tenant")] == [("a", 3)]
    await queue.limits.set("tenant", "a", 4)
    assert (await queue.limits.get("tenant", "a")).guaranteed is None
    await queue.limits.set("tenant", "a", None, guaranteed=2)
    await queue.limits.reset("tenant", "a")
    state = await queue.limits.get("tenant", "a")
    assert (state.limit, state.guaranteed) == (None, None)
    assert await raw(queue, "EXISTS", "guarantees") == 0


async def test_it_acts_from_the_next_claim_on(make_queue: MakeQueue) -> None:
    """On the backlog that is there, set and raised, lowered and removed."""
    queue = await make_queue(limits=OWN)
    await arrive(queue, "abcz")
    first = await queue.claim(4)
    assert tenants_of(first) == "abcz"
    await guaranteed(queue, z=3)
    second = await queue.claim(3)
    assert tenants_of(second) == "zza"
    await guaranteed(queue, z=4)
    third = await queue.claim(2)
    assert tenants_of(third)[0] == "z"
    await queue.complete_many([*first, *second, *third])
    await guaranteed(queue, z=1)
    fourth = await queue.claim(2)
    assert sorted(tenants_of(fourth)).count("z") == 1
    await queue.limits.reset("tenant", "z")
    await queue.complete_many(fourth)
    fifth = await queue.claim(4)
    assert Counter(tenants_of(fifth))["z"] <= 1
    await queue.complete_many(fifth)
    await drain(queue)


@pytest.mark.parametrize("wrong", [0, -1, 6, 1.5, "2", True, float("nan")])
async def test_what_is_no_guarantee_is_refused(make_queue: MakeQueue, wrong: Any) -> None:
    queue = await make_queue(limits=OWN)
    with pytest.raises(ConfigurationError, match="guaranteed to be an integer from 1 to the limit, 5"):
        await queue.limits.set("tenant", "a", 5, guaranteed=wrong)
    assert (await queue.limits.get("tenant", "a")).limit is None


async def test_only_tenants_have_guarantees(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=shared(5))
    with pytest.raises(ConfigurationError, match="only 'tenant' has guarantees"):
        await queue.limits.set("org", "o", 5, guaranteed=1)


@pytest.mark.parametrize("known_by", ["ready", "parked", "in flight"])
async def test_more_than_a_shared_group_has_is_refused(make_queue: MakeQueue, known_by: str) -> None:
    """By whoever is known to use the group: has work for it, waits at it, or holds a slot of it."""
    queue = await make_queue(limits=shared(5))
    await queue.limits.set("tenant", "a", 10, guaranteed=3)
    await arrive(queue, "a", 1 if known_by == "in flight" else 2, metadata=ORG)
    if known_by == "parked":
        await queue.limits.set("org", "o", 0)
    leases = [] if known_by == "ready" else await queue.claim(2)
    await queue.limits.set("org", "o", 5) if known_by == "parked" else None
    await arrive(queue, "b", 1, metadata=ORG)
    with pytest.raises(
        ConfigurationError, match="use org o to be at most its limit of 5, got 6 with 3 for 'b'"
    ):
        await queue.limits.set("tenant", "b", 10, guaranteed=3)
    state = await queue.limits.get("tenant", "b")
    assert (state.limit, state.guaranteed) == (None, None)
    await queue.limits.set("tenant", "b", 10, guaranteed=2)
    await queue.limits.set("tenant", "c", 10, guaranteed=9)  # nobody knows that it uses the group
    await queue.complete_many(leases)
    await drain(queue)


# --- damage ----------------------------------------------------------------------------------------------------------


async def test_a_guarantee_that_is_no_number_counts_as_none(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=OWN)
    await guaranteed(queue, y=1, z=1)
    await raw(queue, "HSET", "guarantees", args=["z", "many"])
    await arrive(queue, "ayz", 2)
    leases = await queue.claim(3)
    assert tenants_of(leases) == "yaz"
    assert (await queue.limits.get("tenant", "z")).guaranteed is None
    assert found(await queue.audit()) == [("SLOTS", "guarantees/z")]
    await queue.audit(fix=True)
    assert found(await queue.audit()) == []
    await queue.complete_many(leases)
    await drain(queue)


async def test_guarantees_of_another_type_stop_nobody(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=OWN)
    await guaranteed(queue, z=1)
    await faults.wrong_type(queue, "guarantees")
    await arrive(queue, "az", 2)
    leases = await queue.claim(4)
    assert tenants_of(leases) == "azaz"
    await queue.limits.set("tenant", "z", 5)
    await queue.complete_many(leases)
    assert ("SLOTS", "guarantees") in found(await queue.audit())
    await raw(queue, "DEL", "guarantees")


@pytest.mark.parametrize("damage", ["deleted", "wrong type", "wrong tag", "a stranger"])
async def test_who_goes_first_is_written_again(make_queue: MakeQueue, damage: str) -> None:
    queue = await make_queue(limits=OWN)
    await guaranteed(queue, z=1)
    await arrive(queue, "abz")
    scope = ("p", "default")
    assert await raw(queue, "ZRANGE", "below", *scope, args=[0, -1]) == [b"z"]
    if damage in ("deleted", "wrong type"):
        await raw(queue, "DEL", "below", *scope)
    if damage == "wrong type":
        await raw(queue, "SET", "below", *scope, args=["x"])
    if damage == "wrong tag":
        await raw(queue, "ZADD", "below", *scope, args=["inf", "z"])
    if damage == "a stranger":
        await raw(queue, "ZADD", "below", *scope, args=["-1", "nobody"])
    assert bool(found(await queue.audit())) == (damage != "wrong tag")
    await queue.reconcile() if damage == "deleted" else await queue.audit(fix=True)
    assert found(await queue.audit()) == []
    (lease,) = await queue.claim()
    assert lease.message.tenant == "z"
    await lease.complete()
    await drain(queue)


async def test_a_leak_that_heals_lets_it_go_first_again(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=OWN)
    await guaranteed(queue, z=1)
    await faults.leak_slot(queue, "tenant", "z", "ghost", tenant="z")
    await arrive(queue, "az")
    (lease,) = await queue.claim()
    assert lease.message.tenant == "a"
    await queue.reconcile()
    (again,) = await queue.claim()
    assert again.message.tenant == "z"
    await queue.complete_many([lease, again])
    await drain(queue)


async def test_a_reclaimed_message_counts_no_more(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=OWN)
    await guaranteed(queue, z=1)
    await arrive(queue, "abz")
    (lost,) = await queue.claim()
    assert lost.message.tenant == "z"
    kept = await queue.claim(2, visibility_timeout=1000)
    assert tenants_of(kept) == "ab"
    clock.advance(31)
    assert (await queue.reclaim()).reclaimed
    (again,) = await queue.claim()
    assert again.message.tenant == "z"
    await queue.complete_many([*kept, again])
    await drain(queue)


async def test_another_scheduler_keeps_who_goes_first(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=OWN, scheduler="fifo")
    await guaranteed(queue, y=1, z=1)
    await arrive(queue, "aazy")
    other = await make_queue(limits=OWN, scheduler="fair")
    leases = await other.claim(3)
    assert tenants_of(leases) == "yza"
    await other.complete_many(leases)
    await drain(other)


# --- what it costs -----------------------------------------------------------------------------------------------------


async def test_tenants_that_hold_their_guarantee_cost_nothing(make_queue: MakeQueue) -> None:
    """A claim looks at those who lack slots, not at all who have a guarantee."""
    queue = await make_queue(limits=OWN)
    names = [f"g{n:03}" for n in range(100)]
    await guaranteed(queue, **dict.fromkeys(names, 1))
    await queue.enqueue_many(NewMessage(n, tenant=tenant) for n in range(3) for tenant in names)
    first = await queue.claim(100)
    assert {lease.message.tenant for lease in first} == {*names}
    await queue.claim(1)
    of_all, leases = await commands_of_a_claim(queue)
    assert len(leases) == 1
    assert await raw(queue, "ZCARD", "below", "p", "default") == 0
    assert of_all < 45


async def test_a_guarantee_of_others_costs_little(make_queue: MakeQueue) -> None:
    """Whether there is any is asked once by a script; then whose turn is next, and what is guaranteed to whom."""
    queue = await make_queue(limits=OWN)
    await arrive(queue, "ab", 5)
    await queue.claim(1)
    without, _ = await commands_of_a_claim(queue)
    await guaranteed(queue, nobody=1)
    beside, _ = await commands_of_a_claim(queue)
    assert beside - without <= 5


@pytest.mark.parametrize("stopped_by", ["pause", "expiry"])
async def test_a_promise_that_one_queue_cannot_take_is_for_the_tenant_s_next(
    make_queue: MakeQueue, clock: ManualClock, stopped_by: str
) -> None:
    """In the same claim: those without a guarantee would be served first with all that it takes."""
    queue = await make_queue(limits=shared(2))
    await guaranteed(queue, z=1)
    await arrive(queue, "z", 1, metadata=ORG, queue="first", expires=30 if stopped_by == "expiry" else None)
    await arrive(queue, "c", 3, metadata=ORG)
    await queue.limits.set("org", "o", 0)
    assert await queue.claim(10) == []
    await arrive(queue, "z", 1, metadata=ORG, queue="second")
    assert await queue.claim(10) == []  # all wait
    await queue.limits.set("org", "o", 1)  # promised to the first queue of z
    await arrive(queue, "b", 20)
    if stopped_by == "pause":
        await queue.pause("z", "first")
    clock.advance(31)
    leases = await queue.claim(10)
    assert tenants_of(leases) == "z" + 9 * "b"
    await queue.resume("z", "first") if stopped_by == "pause" else None
    await queue.complete_many(leases)
    await drain(queue)
    async for tenant in queue.dead_letters.tenants():
        await queue.dead_letters.purge(tenant)
