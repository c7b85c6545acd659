"""Slots that come free at a full group are promised to who waits there; who takes its turns in the pool competes with them.

A claim that fills a group parks only the lane it met last. The others were not seen, and would get nothing of what comes free
until a claim has come to them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, Limit, NewMessage
from tests.conftest import MakeQueue

ORG = {"org": "o"}


async def crowded(make_queue: MakeQueue, limit: int, tenants: str = "bc", **options: Any) -> FairQueue[Any]:
    queue = await make_queue(limits=[Limit("tenant"), Limit("org", default=limit, key="org")], **options)
    for tenant in tenants:
        await arrive(queue, tenant)
    return queue


async def arrive(queue: FairQueue[Any], tenant: str, count: int = 200) -> None:
    await queue.enqueue_many(NewMessage(n, tenant=tenant, metadata=ORG) for n in range(count))


def by_tenant(leases: list[Lease[Any]]) -> Counter[str]:
    return Counter(lease.message.tenant for lease in leases)


async def pulse(queue: FairQueue[Any], n: int) -> Counter[str]:
    """All at once: claimed, and all of it done."""
    leases = await queue.claim(n)
    assert len(leases) == n
    await queue.complete_many(leases)
    return by_tenant(leases)


async def test_each_claim_of_a_whole_group_is_shared_equally(make_queue: MakeQueue) -> None:
    queue = await crowded(make_queue, 100, "bc")
    for _ in range(3):
        assert await pulse(queue, 100) == {"b": 50, "c": 50}


async def test_who_arrives_when_all_slots_are_promised_gets_its_share_of_them(make_queue: MakeQueue) -> None:
    queue = await crowded(make_queue, 60, "bc")
    await pulse(queue, 60)
    await pulse(queue, 60)
    await arrive(queue, "d")
    got = await pulse(queue, 60)
    assert all(abs(got[tenant] - 20) <= 1 for tenant in "bcd"), got


@pytest.mark.parametrize("freed", [1, 5, 10])
async def test_slots_taken_one_by_one_and_freed_together(make_queue: MakeQueue, freed: int) -> None:
    """At any moment neither is ahead by more than both their costs."""
    queue = await crowded(make_queue, 20, "bc")
    held: list[Lease[Any]] = []
    ahead = 0
    for _ in range(150):
        if len(held) == 20:
            await queue.complete_many(held[:freed])
            held = held[freed:]
        (lease,) = await queue.claim(1)
        held.append(lease)
        ahead += 1 if lease.message.tenant == "b" else -1
        assert abs(ahead) <= 2


async def test_costs_are_counted_when_a_promise_is_taken_over(make_queue: MakeQueue) -> None:
    """Messages of b cost three times as much: a third of the slots, or of what is served a half."""
    queue = await crowded(make_queue, 40, "c")
    await queue.enqueue_many(NewMessage(n, tenant="b", cost=3, metadata=ORG) for n in range(200))
    got: Counter[str] = Counter()
    for _ in range(4):
        got += await pulse(queue, 40)
    assert abs(got["b"] * 3 - got["c"]) <= 4, got


async def test_whose_promise_was_taken_over_waits_for_the_next_slot(make_queue: MakeQueue) -> None:
    """No slot stays promised to a lane that will not come for it, and all messages run."""
    queue = await crowded(make_queue, 4, "c")
    await pulse(queue, 4)
    await arrive(queue, "b", 5)
    (woken,) = await queue._engine.command("KEYS", queue._engine.calls.root + "woken:*")
    assert await queue._engine.command("HLEN", woken) == 4
    first = await queue.claim(2)
    assert by_tenant(first)["b"] >= 1
    assert await queue._engine.command("HLEN", woken) == 2
    assert not (await queue.audit()).findings
    await queue.complete_many(first)
    while leases := await queue.claim(4):
        await queue.complete_many(leases)
    assert (await queue.stats()).ready == 0


async def test_a_lane_that_needs_two_groups_takes_over_a_promise_of_each(make_queue: MakeQueue) -> None:
    limits = [Limit("org", default=6, key="org"), Limit("model", default=6, key="model")]
    queue = await make_queue(limits=limits)
    both = ORG | {"model": "m"}
    for tenant in "bc":
        await queue.enqueue_many(NewMessage(n, tenant=tenant, metadata=both) for n in range(40))
    for _ in range(6):
        assert await pulse(queue, 6) == {"b": 3, "c": 3}


async def test_who_has_a_slot_promised_keeps_it_from_who_is_further_ahead(make_queue: MakeQueue) -> None:
    """The slot that comes free is promised to who waits; the one just served does not take it over."""
    queue = await crowded(make_queue, 1, "bc")
    order = []
    for _ in range(10):
        (lease,) = await queue.claim(1)
        assert not await queue.claim(1)
        await lease.complete()
        order.append(lease.message.tenant)
    assert "".join(order[1:]) in ("bcbcbcbcb", "cbcbcbcbc")


async def test_a_slot_of_its_own_that_one_lane_cannot_take_is_for_the_next_lane_at_once(
    make_queue: MakeQueue,
) -> None:
    """Both slots that a's limit lets it have are promised to work that needs the org, which has one slot."""
    queue = await make_queue(limits=[Limit("tenant"), Limit("org", default=1, key="org")])
    await queue.limits.set("tenant", "a", 2)
    await queue.enqueue_many(NewMessage(n, tenant="a", queue="free", cost=3) for n in range(6))
    running = await queue.claim(2)
    await queue.enqueue_many(NewMessage(n, tenant="a", queue="shared", metadata=ORG) for n in range(4))
    await queue.enqueue_many(NewMessage(n, tenant="b") for n in range(20))
    assert by_tenant(await queue.claim(6)) == {"b": 6}
    await queue.complete_many(running)
    leases = await queue.claim(10)
    assert by_tenant(leases) == {"a": 2, "b": 8}
    assert {lease.message.queue for lease in leases if lease.message.tenant == "a"} == {"free", "shared"}
