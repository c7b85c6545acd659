"""Priority within a queue, and pools: each is fair by itself, and who claims from one gets nothing of another."""

from __future__ import annotations

import asyncio
from collections import Counter

from fairqueue import NewMessage, Worker
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, names, put
from tests.support.waiting import eventually


async def test_the_higher_priority_first_and_equal_ones_in_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for priority in (0, 5, -3, 5, 0):
        await put(queue, "a", f"{priority} first", f"{priority} second", priority=priority)
    for priority in (0, 5):
        await put(queue, "a", f"{priority} third", priority=priority)
    ordered = [f"{priority} {place}" for priority in (5, 0) for place in ("first", "second", "third")]
    assert await claimed(queue) == [*ordered, "-3 first", "-3 second"]


async def test_a_priority_orders_one_queue_and_no_other(make_queue: MakeQueue) -> None:
    """Neither the tenant's other queues nor other tenants wait for it."""
    queue = await make_queue()
    await put(queue, "a", "u1", "u2", "u3", queue="urgent", priority=100)
    await put(queue, "a", "p1", "p2", queue="plain")
    await put(queue, "b", "b1", "b2", "b3")
    order = names(await queue.claim(6))
    assert Counter(name[0] for name in order) == {"a": 3, "b": 3}
    assert {"a/p1", "a/u1"} < set(order)


async def test_a_later_message_of_a_higher_priority_overtakes_a_delayed_one_that_is_due(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "due", delay=5)
    await put(queue, "a", "plain")
    await put(queue, "a", "high", priority=1)
    clock.advance(5)
    assert await claimed(queue) == ["high", "due", "plain"]


async def test_two_pools_are_fair_each_by_itself(make_queue: MakeQueue) -> None:
    """What a tenant was served in one pool does not count in the other."""
    queue = await make_queue()
    for tenant, many in (("a", 90), ("b", 90), ("c", 30)):
        for pool in ("cpu", "gpu"):
            if (tenant, pool) != ("b", "gpu"):
                await put(queue, tenant, *(f"{pool}{n}" for n in range(many)), pool=pool)
    cpu = Counter(lease.message.tenant for lease in await queue.claim(60, pools=("cpu",)))
    gpu = Counter(lease.message.tenant for lease in await queue.claim(40, pools=("gpu",)))
    assert cpu == {"a": 20, "b": 20, "c": 20}
    assert gpu == {"a": 20, "c": 20}


async def test_a_worker_for_one_pool_takes_only_that(make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None)
    await queue.enqueue_many(
        NewMessage(f"{pool}{n}", tenant=tenant, pool=pool)
        for pool in ("gpu", "default")
        for tenant in ("a", "b")
        for n in range(3)
    )
    ran: list[str] = []

    async def handle(message: object) -> None:
        ran.append(message.payload)  # type: ignore[attr-defined]

    worker = Worker(queue, handle, pools=("gpu",), concurrency=2)
    running = asyncio.ensure_future(worker.run())
    try:
        await eventually(lambda: len(ran) == 6, "the pool is worked off")
    finally:
        worker.stop()
        await running
    assert sorted(ran) == sorted(["gpu0", "gpu1", "gpu2"] * 2)
    assert (await queue.stats()).ready == 6
    assert len(await claimed(queue)) == 6
