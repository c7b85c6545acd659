"""Weights: who weighs twice as much is served twice as much, in its pool and at a full group; a change acts at once."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from fairqueue import ConfigurationError, FairQueue, Lease, Limit, NewMessage
from fairqueue._engine.keys import join
from fairqueue.fairness import FairScheduler
from tests.conftest import MakeQueue
from tests.engine.shares import serve
from tests.engine.tools import commands, commands_of_a_claim, found, held, raw

WEIGHTS = {"light": 1.0, "middle": 2.0, "heavy": 4.0}
ORG = [Limit("org", default=1, key="org")]


def backlog(
    tenant: str, count: int, cost: float = 1, queues: int = 1, **metadata: str
) -> list[NewMessage[int]]:
    return [
        NewMessage(n, tenant=tenant, queue=f"q{n % queues}", cost=cost, metadata=metadata)
        for n in range(count)
    ]


async def weigh(queue: FairQueue[Any], **weights: float) -> None:
    for tenant, weight in weights.items():
        await queue.tenants.set_weight(tenant, weight)


async def shares_of(queue: FairQueue[Any], claims: int, batch: int = 100) -> dict[str, float]:
    """Parts of the next so many claims."""
    got = Counter(tenant for tenant, _ in await serve(queue, claims, batch))
    assert got.total() == claims
    return {tenant: got[tenant] / claims for tenant in got}


async def test_shares_are_as_the_weights(make_queue: MakeQueue) -> None:
    """1:2:4 within 2 % of 1/7, 2/7 and 4/7 over 7,000 claims."""
    queue = await make_queue()
    await weigh(queue, **WEIGHTS)
    for tenant in WEIGHTS:
        await queue.enqueue_many(backlog(tenant, 4100))
    shares = await shares_of(queue, 7000)
    for tenant, weight in WEIGHTS.items():
        assert shares[tenant] == pytest.approx(weight / 7, rel=0.02)


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4), (0.01, 1), (100, 0.5)])
async def test_a_change_holds_within_100_claims(make_queue: MakeQueue, before: float, after: float) -> None:
    """Whatever was served before: of the 100 claims after it each has the part that the new weights give, but for one."""
    queue = await make_queue()
    await weigh(queue, a=before, b=1)
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 400))
    await serve(queue, 120, 3)
    await weigh(queue, a=after)
    shares = await shares_of(queue, 100, batch=1)
    assert abs(shares["a"] - after / (after + 1)) <= 0.01 + 1e-9


@pytest.mark.parametrize("queues", [1, 40])
async def test_those_who_wait_at_a_full_group_share_by_weight(make_queue: MakeQueue, queues: int) -> None:
    """Of a limit of 1 as well, where the turns of the pool alone would give each the same."""
    queue = await make_queue(limits=ORG)
    await weigh(queue, **WEIGHTS)
    for tenant in WEIGHTS:
        await queue.enqueue_many(backlog(tenant, 180, queues=queues, org="o"))
    await serve(queue, 7)  # everybody has come to wait
    shares = await shares_of(queue, 210, batch=1)
    for tenant, weight in WEIGHTS.items():
        assert abs(shares[tenant] * 210 - 30 * weight) <= 1 + weight
    await weigh(queue, light=4, heavy=1)
    shares = await shares_of(queue, 70, batch=1)
    for tenant, weight in {"light": 4, "middle": 2, "heavy": 1}.items():
        assert abs(shares[tenant] * 70 - 10 * weight) <= 1 + weight


async def test_promised_slots_are_rescaled_with_the_tags(make_queue: MakeQueue) -> None:
    """Many slots come free at once, are promised, and then the weights change: the promises count by the new ones too."""
    queue = await make_queue(limits=[Limit("org", default=20, key="org")])
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 300, org="o"))
    held_by_both = await queue.claim(20)
    assert await queue.claim(1) == []
    await queue.complete_many(held_by_both)
    await weigh(queue, a=4)
    got: Counter[str] = Counter()
    for _ in range(10):
        leases = await queue.claim(20)
        got.update(lease.message.tenant for lease in leases)
        await queue.complete_many(leases)
    assert abs(got["a"] - 0.8 * 200) <= 4 + 1


@pytest.mark.parametrize("limits", [[], ORG])
async def test_who_left_with_a_tag_ahead_comes_back_by_the_new_weight(
    make_queue: MakeQueue, limits: list[Limit]
) -> None:
    """Light, it was charged 1,000 for its last message; made heavy, that is worth no more than ten of the others'."""
    queue = await make_queue(limits=limits)
    await weigh(queue, a=0.01)
    await queue.enqueue_many(backlog("b", 300, org="o"))
    await queue.enqueue_many(backlog("a", 2, cost=10, org="o"))
    while "a" not in [tenant for tenant, _ in await serve(queue, 1)]:
        pass
    await serve(queue, 3)
    await weigh(queue, a=1)
    await queue.enqueue_many(backlog("a", 50, org="o"))
    served = [tenant for tenant, _ in await serve(queue, 60)]
    assert "a" in served[:25]
    assert abs(served[25:].count("a") - served[25:].count("b")) <= 10 + 2


async def others_wait(queue: FairQueue[Any], count: int) -> None:
    """So many other places where somebody takes turns, by their virtual times."""
    fields = [part for n in range(count) for part in (join("g", "default", "org", f"other{n}"), "1")]
    await raw(queue, "HSET", "vtime", args=fields)


async def test_where_a_tenant_was_charged_is_looked_for_in_steps(make_queue: MakeQueue) -> None:
    """However many take turns elsewhere, one script looks at a page of them; what it left behind is found on any."""
    queue = await make_queue(limits=ORG)
    calls, engine = queue._engine.calls, queue._engine
    await others_wait(queue, 5000)
    await queue.enqueue_many(backlog("a", 3, org="o") + backlog("b", 3, org="o"))
    await serve(queue, 4)
    cursor, pages, scopes = "", [], set[str]()
    while cursor != "0":
        before = await commands(queue)
        cursor, found_there = await engine.run(calls.charged_at("a", cursor or "0"))
        pages.append(await commands(queue) - before)
        scopes.update(found_there)
    assert len(pages) > 5
    assert max(pages) < 3 * 600
    assert scopes >= {join("p", "default"), join("g", "default", "org", "o")}
    await raw(queue, "DEL", "vtime")


async def test_lanes_of_a_tenant_share_by_cost_whatever_its_weight(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await weigh(queue, a=7)
    for name, cost in (("x", 1), ("y", 3)):
        await queue.enqueue_many(NewMessage(n, tenant="a", queue=name, cost=cost) for n in range(90))
    served = await serve(queue, 80, by=lambda message: message.queue)
    assert abs(Counter(name for name, _ in served)["x"] - 60) <= 3


async def test_the_server_s_turns_are_those_of_the_reference(make_queue: MakeQueue) -> None:
    """Weights that change on the way included."""
    queue = await make_queue()
    reference: FairScheduler[str] = FairScheduler()
    for number, (tenant, count) in enumerate({"a": 30, "b": 60, "c": 90}.items()):
        await queue.enqueue_many(backlog(tenant, count, cost=number + 1))
        for _ in range(count):
            reference.enqueue(tenant, "q0", number + 1, tenant)
    for tenant, weight in [("a", 0.5), ("b", 2.0), ("c", 8.0), ("a", 4.0), ("b", 1.0)]:
        await weigh(queue, **{tenant: weight})
        reference.set_weight(tenant, weight)
        assert [name for name, _ in await serve(queue, 25)] == [reference.next() for _ in range(25)]


# ---------------------------------------------------------------- 200 queues against one


@pytest.mark.parametrize("weight", [1.0, 3.0])
async def test_200_queues_against_one_in_one_shared_group(make_queue: MakeQueue, weight: float) -> None:
    """Whoever has most queues waiting gets no more of it: by weight alone, over any interval within the bound."""
    queue = await make_queue(limits=[Limit("org", default=5, key="org")])
    await weigh(queue, one=weight)
    await queue.enqueue_many(backlog("many", 400, queues=200, org="o"))
    await queue.enqueue_many(backlog("one", 400, org="o"))
    running: list[Lease[Any]] = await queue.claim(5)
    ahead = low = high = 0.0
    for _ in range(200):
        await running.pop(0).complete()
        leases = await queue.claim(5)
        assert await held(queue, "org", "o") == 5  # no slot idles
        for lease in leases:
            ahead += 1 / weight if lease.message.tenant == "one" else -1
            low, high = min(low, ahead), max(high, ahead)
        running += leases
    assert high - low <= 1 / weight + 1 + 1e-9
    await queue.complete_many(running)


# ---------------------------------------------------------------- what can be set, and what cannot


async def test_the_weight_is_told_and_forgotten(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    assert (await queue.tenants.get("a")).weight == 1
    await queue.tenants.set_weight("a", 0.01)
    await queue.tenants.set_weight("b", 100)
    assert [(await queue.tenants.get(tenant)).weight for tenant in "ab"] == [0.01, 100]
    await queue.enqueue(1, tenant="a")
    assert [(state.tenant, state.weight) async for state in queue.tenants.list()] == [("a", 0.01)]
    await weigh(queue, a=1, b=1)
    assert await raw(queue, "EXISTS", "weights") == 0


@pytest.mark.parametrize("wrong", [0, -1, 0.009, 100.5, math.nan, math.inf, True, "2", None])
async def test_what_is_no_weight_is_refused(make_queue: MakeQueue, wrong: Any) -> None:
    queue = await make_queue()
    with pytest.raises(ConfigurationError, match=r"expected weight to be a number from 0\.01 to 100"):
        await queue.tenants.set_weight("a", wrong)
    assert (await queue.tenants.get("a")).weight == 1


async def test_fifo_refuses_weights_and_says_what_to_do(make_queue: MakeQueue) -> None:
    fair = await make_queue()
    await weigh(fair, a=3)
    queue = await make_queue(scheduler="fifo")
    with pytest.raises(
        ConfigurationError, match=r'ignores tenants: declare FairQueue\(scheduler="fair"\) first'
    ):
        await weigh(queue, b=2)
    assert (await queue.tenants.get("b")).weight == 1
    await queue.enqueue_many(message for n in range(5) for tenant in "ab" for message in backlog(tenant, 1))
    assert [tenant for tenant, _ in await serve(queue, 10)] == [
        "a",
        "b",
    ] * 5  # those from before count for nothing
    await weigh(queue, a=1)
    assert (await queue.tenants.get("a")).weight == 1


async def test_weights_cost_a_claim_one_command_where_none_is_set(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(message for tenant in "abcdefgh" for message in backlog(tenant, 5))
    await queue.claim(8)
    without, _ = await commands_of_a_claim(queue, 8)
    await weigh(queue, a=2)
    with_weights, _ = await commands_of_a_claim(queue, 8)
    assert with_weights - without <= 8  # one for each tenant that is met


@pytest.mark.parametrize("value", ["x", "0", "-3", "nan", "1e9", ""])
async def test_a_damaged_weight_counts_as_1_and_stops_nobody(make_queue: MakeQueue, value: str) -> None:
    queue = await make_queue(limits=ORG)
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 20, org="o"))
    await raw(queue, "HSET", "weights", args=("a", value))
    assert abs(Counter(tenant for tenant, _ in await serve(queue, 20))["a"] - 10) <= 1
    assert (await queue.tenants.get("a")).weight == 1
    assert found(await queue.audit()) == [("MOVES", "weights/a")]
    await queue.audit(fix=True)
    assert await raw(queue, "EXISTS", "weights") == 0


async def test_weights_of_another_type_stop_nobody(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ORG)
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 20, org="o"))
    await raw(queue, "SET", "weights", args=("rubbish",))
    assert len(await serve(queue, 40)) == 40
    assert (await queue.tenants.get("a")).weight == 1
    await raw(queue, "DEL", "weights")
