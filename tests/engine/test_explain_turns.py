"""Whom explain counts as before a message is served before it: by guarantees, by each scheduler, without those who cannot."""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import FairQueue, Limit, NewMessage
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, commands, names, one, put

TENANT = [Limit("tenant")]


async def before(queue: FairQueue[Any], tenant: str, id_: str = "m") -> tuple[int | None, tuple[str, ...]]:
    found = await queue.explain(tenant, id_)
    return found.tenants_ahead, found.ahead


@pytest.mark.parametrize("scheduler", ["fair", "fifo", "drr"])
async def test_who_holds_less_than_it_is_guaranteed_is_before_the_others(
    make_queue: MakeQueue, scheduler: str
) -> None:
    queue = await make_queue(limits=TENANT, scheduler=scheduler)
    for tenant in ("a", "b", "c"):
        await put(queue, tenant, "m")
    await put(queue, "vip", "v1", "v2", "v3")
    await queue.limits.set("tenant", "vip", None, guaranteed=2)
    assert await before(queue, "vip", "v1") == (0, ())
    assert await before(queue, "a") == (1, ("vip",))
    assert await before(queue, "c") == (3, ("vip", "a", "b"))
    assert names(await queue.claim(2)) == ["vip/v1", "vip/v2"], "until it holds as many"
    assert await before(queue, "vip", "v3") == (3, ("a", "b", "c"))
    assert await before(queue, "a") == (0, ())
    assert await claimed(queue) == ["m", "m", "m", "v3"]


async def test_who_waits_at_a_full_group_and_is_guaranteed_is_before_the_others(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(limits=[*TENANT, Limit("org", default=1, key="org")])
    for tenant in ("a", "b", "vip"):
        await put(queue, tenant, "m", "n", metadata={"org": "o"})
    holder = await one(queue)
    assert await claimed(queue) == []
    assert await before(queue, "vip") == (2, ("a", "b"))
    await queue.limits.set("tenant", "vip", None, guaranteed=1)
    assert await before(queue, "vip") == (0, ())
    assert await before(queue, "a", "n") == (1, ("vip",))
    assert await before(queue, "b") == (2, ("vip", "a"))
    await holder.complete()
    assert names(await queue.claim(1)) == ["vip/m"]


async def test_by_rounds_who_had_its_quantum_is_behind(make_queue: MakeQueue) -> None:
    """It stands first until the next claim comes by."""
    queue = await make_queue(scheduler="drr")
    for tenant in ("a", "b", "c"):
        await put(queue, tenant, "m", "n", cost=2 if tenant == "b" else 1)
    assert await before(queue, "b") == (2, ("a", "c")), "it has to wait for a second round"
    assert names(await queue.claim(1)) == ["a/m"]
    assert await before(queue, "c") == (0, ())
    assert await before(queue, "a", "n") == (1, ("c",))
    assert await before(queue, "b") == (2, ("c", "a"))
    assert names(await queue.claim(3)) == ["c/m", "a/n", "b/m"]


async def test_by_order_of_acceptance_a_message_that_is_gone_is_not_before(make_queue: MakeQueue) -> None:
    queue = await make_queue(scheduler="fifo")
    await put(queue, "a", "m")
    await put(queue, "b", "m")
    await put(queue, "a", "n")
    assert await before(queue, "b") == (1, ("a",))
    assert await queue.cancel("a", "m") == "cancelled"
    assert await before(queue, "b") == (0, ())
    assert await before(queue, "a", "n") == (1, ("b",))
    assert names(await queue.claim(9)) == ["b/m", "a/n"]


async def test_who_cannot_use_its_turn_is_not_before(make_queue: MakeQueue, clock: ManualClock) -> None:
    """No claim has come by since it was paused, stopped by a limit, or since all that it has expired."""
    queue = await make_queue(limits=TENANT)
    for tenant in ("paused", "limited", "expired", "half"):
        await put(queue, tenant, "m", expires=5 if tenant == "expired" else None)
    await put(queue, "half", "n", queue="other")
    await put(queue, "z", "m")
    assert (await before(queue, "z"))[0] == 4
    await queue.pause(tenant="paused")
    await queue.limits.set("tenant", "limited", 0)
    await queue.pause(tenant="half", queue="default")
    clock.advance(5)
    assert await before(queue, "z") == (1, ("half",))
    found = await queue.explain("half", "n")
    assert (found.lanes_ahead, found.tenants_ahead) == (0, 0), "its other queue is paused"
    assert names(await queue.claim(9)) == ["half/n", "z/m"]


async def test_what_expired_is_not_before_in_its_queue(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "x", "y", expires=5)
    await put(queue, "a", "m", "n")
    assert (await queue.explain("a", "n")).position == 3
    clock.advance(5)
    assert (await queue.explain("a", "n")).position == 1
    assert await claimed(queue) == ["m", "n"]


@pytest.mark.parametrize("scheduler", ["fair", "drr"])
async def test_of_many_all_are_counted_and_few_are_looked_at(make_queue: MakeQueue, scheduler: str) -> None:
    queue = await make_queue(limits=TENANT, scheduler=scheduler)
    crowd = [f"t{number:03}" for number in range(300)]
    await queue.enqueue_many([NewMessage(1, tenant=tenant, id="m") for tenant in crowd])
    for tenant in crowd[100::5]:
        await queue.limits.set("tenant", tenant, None, guaranteed=1)
    told = {}
    for tenant in crowd[5::37]:
        start = await commands(queue)
        told[tenant] = (await before(queue, tenant))[0]
        assert await commands(queue) - start < 700
    served = [lease.message.tenant for lease in await queue.claim(300)]
    assert told == {tenant: served.index(tenant) for tenant in told}


@pytest.mark.leaves_findings  # the key is mended by whoever claims
async def test_a_group_that_cannot_be_counted_is_that_tenants_alone(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    await put(queue, "a", "m")
    await put(queue, "b", "m")
    await queue.limits.set("tenant", "a", None, guaranteed=1)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    assert await before(queue, "b") == (0, ())
    assert [stop.kind for stop in (await queue.explain("a", "m")).stops] == ["repair"]
