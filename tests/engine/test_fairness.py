"""Fair: between any two tenants with claimable work, over any interval, service differs by at most one message each.

With equal weights the start-time-fair-queueing bound is c_max + c_max cost units, whatever the number of queues,
messages and claimers.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from fairqueue import Limit, NewMessage
from tests.conftest import MakeQueue
from tests.engine.shares import (
    Served,
    in_order,
    serve,
    serve_beside_own_limits,
    while_all_have_work,
    widest_gap,
)
from tests.engine.tools import claimed, commands, finish, names, one, put


def messages(
    tenant: str, count: int, queues: int = 1, cost: float = 1, **options: object
) -> list[NewMessage[int]]:
    return [
        NewMessage(n, tenant=tenant, queue=f"q{n % queues}", cost=cost, **options)  # type: ignore[arg-type]
        for n in range(count)
    ]


@pytest.mark.parametrize("batch", [1, 7, 100])
async def test_equal_shares_whatever_the_number_of_queues_and_messages(
    make_queue: MakeQueue, batch: int
) -> None:
    queue = await make_queue()
    amounts = {"one-queue": 150, "many-queues": 150, "huge": 2000, "tiny-queues": 400}
    queues = {"one-queue": 1, "many-queues": 30, "huge": 3, "tiny-queues": 400}
    for tenant, count in amounts.items():
        await queue.enqueue_many(messages(tenant, count, queues[tenant]))
    served = while_all_have_work(await serve(queue, 590, batch), amounts)
    assert len(served) > 550
    assert widest_gap(served, amounts) <= 2


@pytest.mark.parametrize("batch", [1, 10])
async def test_one_tenant_with_5000_queues_against_ten_with_one(make_queue: MakeQueue, batch: int) -> None:
    """Reported fault C2: in the first 500 each of the eleven has its equal share."""
    queue = await make_queue()
    await queue.enqueue_many(messages("A", 5000, queues=5000))
    others = [chr(ord("B") + n) for n in range(10)]
    for tenant in others:
        await queue.enqueue_many(messages(tenant, 50))
    served = await serve(queue, 500, batch)
    assert widest_gap(served, ["A", *others]) <= 2
    shares = Counter(tenant for tenant, _ in served)
    assert all(abs(shares[tenant] - 500 / 11) <= 2 for tenant in ["A", *others])


@pytest.mark.parametrize("seed", range(2))
async def test_shares_are_of_cost_not_of_messages(make_queue: MakeQueue, seed: int) -> None:
    rng = random.Random(seed)
    queue = await make_queue()
    costs = {"cheap": (0.001, 1), "dear": (5, 9), "mixed": (0.5, 9), "same": (3, 3)}
    amounts = {"cheap": 1200, "dear": 100, "mixed": 130, "same": 180}
    for tenant, (low, high) in costs.items():
        await queue.enqueue_many(
            [NewMessage(n, tenant=tenant, cost=rng.uniform(low, high)) for n in range(amounts[tenant])]
        )
    served = while_all_have_work(await serve(queue, 2500, rng.choice([5, 20, 100])), amounts)
    assert sum(cost for _, cost in served) > 400
    assert widest_gap(served, costs) <= 2 * 9


async def test_a_tenant_s_lanes_share_by_cost_too(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(
        [
            NewMessage(n, tenant="a", queue=q, cost=cost)
            for q, cost in (("x", 1), ("y", 2), ("z", 5))
            for n in range(150)
        ]
    )
    served = await serve(queue, 240, 10, by=lambda message: message.queue)
    assert widest_gap(served, "xyz") <= 2 * 5
    assert abs(Counter(name for name, _ in served)["x"] - 5 * Counter(name for name, _ in served)["z"]) <= 10


async def test_many_clients_at_once_share_one_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    amounts = {f"t{n}": 200 for n in range(5)}
    for tenant, count in amounts.items():
        await queue.enqueue_many(messages(tenant, count, queues=int(tenant[1:]) + 1))
    clients = [await make_queue() for _ in range(4)]

    async def work(client: object) -> list[object]:
        got: list[object] = []
        for _ in range(20):
            got += await client.claim(10)  # type: ignore[attr-defined]
        return got

    leases = [lease for got in await asyncio.gather(*map(work, clients)) for lease in got]
    served: Served = [(lease.message.tenant, lease.message.cost) for lease in in_order(leases)]  # type: ignore[arg-type]
    assert len(served) == 800
    assert widest_gap(served, amounts) <= 2


async def test_a_noisy_neighbour_delays_the_small_ones_by_their_own_share_only(make_queue: MakeQueue) -> None:
    """10,000 of one tenant, then nine times 100: the last small message is among the first 1,000, but for the bound."""
    queue = await make_queue()
    await queue.enqueue_many(messages("noisy", 10_000, queues=20))
    for n in range(9):
        await queue.enqueue_many(messages(f"small{n}", 100))
    served = await serve(queue, 1100, 100)
    last_small = max(number for number, (tenant, _) in enumerate(served, start=1) if tenant != "noisy")
    assert Counter(tenant for tenant, _ in served[:last_small])["small8"] == 100
    assert last_small <= 1000 + 2


@pytest.mark.parametrize("batch", [1, 10])
async def test_being_older_is_no_advantage(make_queue: MakeQueue, batch: int) -> None:
    """Reported fault C2b."""
    queue = await make_queue()
    await queue.enqueue_many(messages("old", 3000))
    for tenant in ("b", "c", "d"):
        await queue.enqueue_many(messages(tenant, 100))
    served = await serve(queue, 400, batch)
    assert widest_gap(served[:395], ["old", "b", "c", "d"]) <= 2


# ---------------------------------------------------------------- neither credit nor debt


async def test_an_idle_tenant_brings_no_credit(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(messages("busy", 400))
    await put(queue, "idle", "x")
    await serve(queue, 200)
    await queue.enqueue_many(messages("idle", 100))
    served = await serve(queue, 100)
    assert widest_gap(served, ["busy", "idle"]) <= 2


async def test_a_tenant_that_worked_alone_brings_no_debt(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(messages("early", 300))
    await serve(queue, 200)
    await queue.enqueue_many(messages("late", 300))
    served = await serve(queue, 150)
    assert widest_gap(served, ["early", "late"]) <= 2


async def test_a_blocked_tenant_brings_no_credit(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant")])
    await queue.limits.set("tenant", "blocked", 0)
    await queue.enqueue_many(messages("blocked", 200) + messages("busy", 400))
    await serve(queue, 200)
    await queue.limits.set("tenant", "blocked", None)
    served = await serve(queue, 150)
    assert widest_gap(served, ["blocked", "busy"]) <= 2


async def test_a_tenant_that_drains_and_comes_back_does_not_starve_a_backlogged_one(
    make_queue: MakeQueue,
) -> None:
    """Its finish tag stays while it is ahead of virtual time: entering anew does not shake off what it was served."""
    queue = await make_queue()
    await queue.enqueue_many(messages("backlog", 500))
    served: Served = []
    for n in range(60):
        await queue.enqueue_many(messages("drains", 1, cost=10) if n % 2 else messages("drains", 2, cost=5))
        while True:
            (lease,) = await queue.claim()
            served.append((lease.message.tenant, lease.message.cost))
            await lease.complete()
            if lease.message.tenant == "drains" and (await queue.stats("drains")).ready == 0:
                break
        if sum(cost for _, cost in served) > 700:
            break
    assert widest_gap(served, ["backlog", "drains"]) <= 2 * 10


async def test_retries_and_releases_are_charged_like_any_delivery(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(messages("steady", 300) + messages("bounces", 5))
    served: Served = []
    for _ in range(200):
        (lease,) = await queue.claim()
        served.append((lease.message.tenant, 1))
        await (lease.release if lease.message.tenant == "bounces" else lease.complete)()
    assert widest_gap(served, ["steady", "bounces"]) <= 2


# ---------------------------------------------------------------- at one full group

IN_X = {"metadata": {"org": "x"}}


async def serve_group(queue: object, rounds: int) -> Served:
    """One slot at a time: claim what the group admits, complete it."""
    served: Served = []
    for _ in range(rounds):
        leases = await queue.claim(10)  # type: ignore[attr-defined]
        served += [(lease.message.tenant, lease.message.cost) for lease in leases if lease.message.groups]
        await queue.complete_many(leases)  # type: ignore[attr-defined]
    return served


async def test_those_who_wait_at_a_shared_group_share_its_slots(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    for tenant, queues in (("a", 1), ("b", 40), ("c", 3)):
        await queue.enqueue_many(messages(tenant, 120, queues, **IN_X))
    served = await serve_group(queue, 240)
    assert len(served) == 240
    assert widest_gap(served, "abc") <= 2


async def test_those_who_wait_share_by_cost(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    for tenant, cost in (("a", 1), ("b", 4), ("c", 2)):
        await queue.enqueue_many(messages(tenant, 300, cost=cost, **IN_X))
    served = await serve_group(queue, 250)
    assert widest_gap(served, "abc") <= 2 * 4


async def test_the_group_s_own_virtual_time_decides_not_the_pool_s(make_queue: MakeQueue) -> None:
    """a gets far more than b in the pool, by work that needs no slot: at the group they still take turns."""
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await queue.enqueue_many(messages("a", 100, **IN_X) + messages("b", 100, **IN_X))
    await queue.enqueue_many(messages("a", 1000, queues=2))
    served = await serve_group(queue, 80)
    assert len(served) >= 75
    assert widest_gap(served, "ab") <= 2


async def test_a_newcomer_at_the_group_has_no_credit(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await queue.enqueue_many(messages("a", 200, **IN_X) + messages("b", 200, **IN_X))
    await serve_group(queue, 100)
    await queue.enqueue_many(messages("new", 100, **IN_X))
    served = await serve_group(queue, 90)
    assert widest_gap(served, ["a", "b", "new"]) <= 2


async def test_several_slots_of_a_group_are_shared_as_one(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=4, key="org")])
    for tenant, queues in (("a", 1), ("b", 25), ("c", 2)):
        await queue.enqueue_many(messages(tenant, 150, queues, **IN_X))
    served = await serve_group(queue, 80)
    assert len(served) == 320
    assert widest_gap(served, "abc") <= 2 + 4  # and what is in flight


@pytest.mark.parametrize("order", [("tenant", "org"), ("org", "tenant")])
@pytest.mark.parametrize("seed", [0, 1, 6])
async def test_those_who_wait_share_although_each_has_a_full_limit_of_its_own(
    make_queue: MakeQueue, seed: int, order: tuple[str, str]
) -> None:
    """A completion frees the tenant's own slot and the shared one: the tenant is on the list when that one is given."""
    limits = {"tenant": Limit("tenant", 1), "org": Limit("org", 1, key="org")}
    queue = await make_queue(limits=[limits[name] for name in order])
    served, tenants = await serve_beside_own_limits(queue, random.Random(seed))
    assert widest_gap(served, tenants) <= 2000


@pytest.mark.parametrize(("limit", "batch"), [(4, 2), (8, 4), (10, 3)])
async def test_who_needs_two_full_groups_has_a_share_of_what_comes_free_together(
    make_queue: MakeQueue, limit: int, batch: int
) -> None:
    """Others wait at each of the two that need no second one. Slots of both often come free in one settlement."""
    rng, running = random.Random(1), []
    limits = [Limit("org", default=limit, key="org"), Limit("model", default=limit, key="model")]
    queue = await make_queue(limits=limits)
    needs = {"org": {"org": "a"}, "model": {"model": "x"}, "both": {"org": "a", "model": "x"}}
    for tenant, metadata in needs.items():
        await queue.enqueue_many(messages(tenant, 800, metadata=metadata))
    served: Counter[str] = Counter()
    for _ in range(200):
        got = await queue.claim(2 * limit)
        served.update(lease.message.tenant for lease in got)
        running += got
        await queue.complete_many(running.pop(rng.randrange(len(running))) for _ in range(batch))
    assert served["both"] >= max(served.values()) / 2.5, served
    await queue.complete_many(running)


@pytest.mark.parametrize(("org", "model"), [(2, 1), (3, 2), (5, 2)])
async def test_tenants_that_are_alike_get_alike_of_two_full_groups(
    make_queue: MakeQueue, org: int, model: int
) -> None:
    """Three need slots of both groups, beside one that needs the org alone. They are sent from one group to the other,
    and come to each at one virtual time: the same one must not be first each time."""
    rng, alike = random.Random(1), ["t1", "t2", "t3"]
    limits = [Limit("org", default=org, key="org"), Limit("model", default=model, key="model")]
    queue = await make_queue(limits=limits)
    await queue.enqueue_many(messages("t0", 600, metadata={"org": "a"}))
    for tenant in alike:
        await queue.enqueue_many(messages(tenant, 300, metadata={"org": "a", "model": "x"}))
    served: Counter[str] = Counter()
    running = []
    for _ in range(500):
        got = await queue.claim(org)
        served.update(lease.message.tenant for lease in got)
        running += got
        await running.pop(rng.randrange(len(running))).complete()
    shares = sorted(served[tenant] for tenant in alike)
    assert shares[0] > 30
    assert shares[-1] <= 1.6 * shares[0], served
    await queue.complete_many(running)


@pytest.mark.parametrize("raised", [None, 100])
async def test_a_limit_that_was_raised_and_lowered_leaves_no_credit(
    make_queue: MakeQueue, raised: int | None
) -> None:
    """Many slots were promised and hardly any taken: who gives them back would have every turn for a long time."""
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    amounts = {"a": 300, "b": 100, "c": 100}
    for tenant, count in amounts.items():
        await queue.enqueue_many(messages(tenant, count, **IN_X))
    await serve_group(queue, 12)
    await queue.limits.set("org", "x", raised)
    await queue.complete_many(await queue.claim(6))
    await queue.limits.set("org", "x", 1)
    served = await serve_group(queue, 150)
    assert len(served) >= 149
    assert widest_gap(served, amounts) <= 2


async def test_a_group_without_a_limit_wakes_lanes_not_messages(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await queue.enqueue_many(messages("a", 2000, **IN_X))
    assert len(await queue.claim(5)) == 1
    before = await commands(queue)
    await queue.limits.set("org", "x", None)
    assert await commands(queue) - before < 100
    assert len(await queue.claim(100)) == 100


async def test_limits_of_some_leave_the_shares_of_the_others_alone(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    for tenant in ("a", "b", "c"):
        await queue.limits.set("tenant", tenant, None)
    for tenant in ("a", "b", "c", "limited1", "limited2"):
        await queue.enqueue_many(messages(tenant, 300))
    held = await queue.claim(10)
    stuck = [lease for lease in held if lease.message.tenant.startswith("limited")]
    assert len(stuck) == 4
    await finish(queue, [lease for lease in held if lease not in stuck])
    served = await serve(queue, 300, 10)
    assert widest_gap(served, "abc") <= 2
    assert {tenant for tenant, _ in served} == {"a", "b", "c"}


async def test_work_conserving_while_anything_is_claimable_a_claim_gets_something(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=3, key="org")])
    await queue.enqueue_many(
        [NewMessage(n, tenant=f"t{n % 40}", metadata={"org": f"o{n % 5}"}) for n in range(400)]
    )
    running = []
    while leases := await queue.claim(1):
        running += leases
    assert len(running) == 15
    for lease in running:
        await lease.complete()
        assert len(await queue.claim(1)) == 1


async def test_pools_do_not_share_their_turns(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(messages("a", 50, pool="fast") + messages("a", 50) + messages("b", 50))
    await finish(queue, await queue.claim(50, pools=("fast",)))
    assert names(await queue.claim(4)) != []
    served = await serve(queue, 40)
    assert widest_gap(served, "ab") <= 2


async def test_the_first_message_of_a_new_tenant_is_next(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(messages("busy", 1000, queues=10))
    await serve(queue, 137)
    await put(queue, "new", "first")
    assert "first" in await claimed(queue, 2)
    assert (await one(queue)).message.tenant == "busy"


@pytest.mark.parametrize(("model", "org", "batch"), [(1, 1, 1), (3, 3, 3), (2, 4, 2)])
async def test_lanes_of_a_tenant_share_a_group_although_one_of_them_needs_another_too(
    make_queue: MakeQueue, model: int, org: int, batch: int
) -> None:
    """What comes free at both groups at once is not the wider lane's alone: its sibling waits there."""
    limits = [Limit("model", default=model, key="model"), Limit("org", default=org, key="org")]
    queue = await make_queue(limits=limits)
    await queue.enqueue_many(
        NewMessage(n, tenant="t", queue=name, metadata=metadata)
        for name, metadata in (("both", {"org": "o", "model": "m"}), ("org", {"org": "o"}))
        for n in range(200)
    )
    served, running = Counter[str](), []
    for _ in range(50):
        got = await queue.claim(10)
        served.update(lease.message.queue for lease in got)
        running += got
        await queue.complete_many(running[:batch])
        del running[:batch]
    assert abs(served["both"] - served["org"]) <= 2 + org, served
    await queue.complete_many(running)
