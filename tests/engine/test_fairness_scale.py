"""Blocked tenants are not scanned: the cost of a claim does not depend on how many are full, nor on how many have work.

Costs are counted in commands the server executes, those inside scripts included.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import FairQueue, Limit, NewMessage
from fairqueue._engine.keys import join
from tests.conftest import MakeQueue
from tests.engine.tools import commands, commands_of_a_claim, held, names, one, put, waiting

FEW, MANY = 50, 5000


async def fill(queue: FairQueue[Any], messages: list[NewMessage[Any]]) -> None:
    await queue.enqueue_many(messages)


async def at_their_own_limit(make_queue: MakeQueue, name: str, count: int) -> FairQueue[Any]:
    """So many tenants, each with one message running at limit 1 and one that waits."""
    queue = await make_queue(name=name, limits=[Limit("tenant", default=1)])
    await fill(queue, [NewMessage(n, tenant=f"t{n % count}") for n in range(2 * count)])
    running = 0
    while leases := await queue.claim(1000):
        running += len(leases)
    assert running == count
    return queue


async def at_one_full_group(
    make_queue: MakeQueue, name: str, count: int, lanes_of_one: bool
) -> FairQueue[Any]:
    """So many lanes, of one tenant or of as many, wait at org x, whose one slot is taken."""
    queue = await make_queue(name=name, limits=[Limit("org", default=1, key="org")])
    await put(queue, "holder", "h", metadata={"org": "x"})
    await one(queue)
    lanes = [("T", f"q{n}") if lanes_of_one else (f"t{n}", "q") for n in range(count)]
    await fill(queue, [NewMessage(1, tenant=t, queue=q, metadata={"org": "x"}) for t, q in lanes])
    assert await queue.claim() == []
    return queue


async def next_claim_of_a_free_one(queue: FairQueue[Any]) -> int:
    """A newcomer without any obstacle is claimed by the very next claim; at what cost."""
    await put(queue, "zz", "warm-up")
    assert names(await queue.claim()) == ["zz/warm-up"]
    await queue.limits.set(queue._engine.limits[0].name, "zz", None)
    await put(queue, "zz", "free")
    cost, leases = await commands_of_a_claim(queue)
    assert names(leases) == ["zz/free"]
    return cost


async def test_5000_tenants_at_their_own_limit_cost_the_next_claim_nothing(
    make_queue: MakeQueue, namespace: str
) -> None:
    """Reported fault C1."""
    few = await next_claim_of_a_free_one(await at_their_own_limit(make_queue, f"{namespace}.few", FEW))
    many = await next_claim_of_a_free_one(await at_their_own_limit(make_queue, f"{namespace}.many", MANY))
    assert many == few < 60


@pytest.mark.parametrize("lanes_of_one", [True, False], ids=["of one tenant", "of as many tenants"])
async def test_5000_lanes_at_one_full_group_cost_the_next_claim_nothing(
    make_queue: MakeQueue, namespace: str, lanes_of_one: bool
) -> None:
    costs = {}
    for count in (FEW, MANY):
        queue = await at_one_full_group(make_queue, f"{namespace}.{count}", count, lanes_of_one)
        assert await waiting(queue, "org", "x") == count
        costs[count] = await next_claim_of_a_free_one(queue)
    assert costs[MANY] == costs[FEW] < 60


async def test_handing_on_a_slot_costs_the_same_with_5000_waiting(
    make_queue: MakeQueue, namespace: str
) -> None:
    costs = {}
    for count in (FEW, MANY):
        queue = await at_one_full_group(make_queue, f"{namespace}.{count}", count, False)
        (holder,) = (await queue.limits.get("org", "x")).holders
        assert holder == ("holder", "h")
        await queue.limits.set("org", "x", 2)
        lease = await one(queue)
        for _ in range(2):  # the first is the warm-up
            before = await commands(queue)
            await lease.complete()
            lease = await one(queue)
            costs[count] = await commands(queue) - before
        assert await held(queue, "org", "x") == 2
    assert costs[MANY] == costs[FEW] < 130


async def test_slots_promised_to_5000_tenants_cost_whoever_comes_nothing(
    make_queue: MakeQueue, namespace: str
) -> None:
    """All slots of a wide group came free at once: neither a newcomer nor those who come for theirs look at them all."""
    costs = {}
    for count in (FEW, MANY):
        queue = await make_queue(name=f"{namespace}.{count}", limits=[Limit("org", default=count, key="org")])
        await fill(
            queue, [NewMessage(n, tenant=f"t{n % count}", metadata={"org": "x"}) for n in range(2 * count)]
        )
        running = []
        while leases := await queue.claim(1000):
            running += leases
        for start in range(0, count, 500):
            await queue.complete_many(running[start : start + 500])
        await put(queue, "new", "n1", "n2", metadata={"org": "x"})
        await queue.claim()
        costs[count] = max([(await commands_of_a_claim(queue))[0] for _ in range(3)])
    assert costs[MANY] <= costs[FEW] + 10 < 200


async def test_the_cost_of_a_claim_does_not_grow_with_the_tenants_that_have_work(
    make_queue: MakeQueue, namespace: str
) -> None:
    costs = {}
    for count in (FEW, MANY):
        queue = await make_queue(name=f"{namespace}.{count}", limits=[Limit("tenant", default=10)])
        await fill(queue, [NewMessage(n, tenant=f"t{n:05}") for n in range(count)])
        await queue.claim()
        costs[count], leases = await commands_of_a_claim(queue)
        assert len(leases) == 1
    assert costs[MANY] == costs[FEW] < 60


async def test_an_idle_look_at_5000_full_tenants_is_cheap(make_queue: MakeQueue, namespace: str) -> None:
    """Reported fault P3: when everybody is full a claim costs a handful of commands, not a walk."""
    queue = await at_their_own_limit(make_queue, namespace, MANY)
    cost, leases = await commands_of_a_claim(queue)
    assert leases == []
    assert cost < 20


async def test_blocking_is_paid_for_in_bounded_scripts(make_queue: MakeQueue, namespace: str) -> None:
    """5,000 lanes that all turn out to be blocked: no script of the claim that finds out takes long."""
    queue = await make_queue(name=namespace, limits=[Limit("org", default=0, key="org")])
    await fill(queue, [NewMessage(1, tenant=f"t{n}", metadata={"org": "x"}) for n in range(MANY)])
    await queue._engine.command("CONFIG", "RESETSTAT")
    assert await queue.claim() == []
    stats = await queue._engine.command("INFO", "commandstats")
    assert MANY / 200 <= stats["cmdstat_evalsha"]["calls"] <= MANY / 200 + 1  # 200 lanes a script, each once
    assert await waiting(queue, "org", "x") == MANY


async def test_a_step_of_reconcile_costs_the_same_in_one_pool_and_in_many(
    make_queue: MakeQueue, namespace: str
) -> None:
    """60 tenants wait in each: a step must not grow with the pools, or it holds the server up for too long."""
    costs = {}
    for pools in (20, 60):
        queue = await make_queue(name=f"{namespace}.{pools}", limits=[Limit("org", default=0, key="org")])
        pool_names = [f"p{n}" for n in range(pools)]
        await queue.enqueue_many(
            NewMessage(0, tenant=f"{pool}t{n}", pool=pool, metadata={"org": "x"})
            for pool in pool_names
            for n in range(60)
        )
        while await queue.claim(1000, pools=pool_names):
            pass
        calls = queue._engine.calls
        for step in (calls.tidy("s0"), calls.reconcile_group(join("org", "x"), "0")):
            before = await commands(queue)
            await queue._engine.run(step)
            costs[step.script.name, pools] = await commands(queue) - before
    assert costs["tidy", 60] < 600
    assert costs["reconcile_group", 60] < 1000
    assert costs["tidy", 60] <= 1.2 * costs["tidy", 20]
