"""C: some tenants starve, or get less than their share."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, names, put
from tests.faults.scale import sized
from tests.support.processes import ROOT
from tests.support.stopwatch import Stopwatch

SCAN = 200
"""Lanes that one script parks at most: what a scan limit is elsewhere."""


# --- C1 ----------------------------------------------------------------------------------------------------------


async def claimed_within_a_second(queue: FairQueue[Any]) -> list[str]:
    watch = Stopwatch()
    leases = await queue.claim()
    watch.check(1, "a claim to be answered")
    return names(leases)


@pytest.mark.case("C1")
async def test_full_tenants_do_not_hide_one_with_room(make_queue: MakeQueue) -> None:
    """Each has a message in flight that never ends, and another that is older than Z's."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    full = [f"t{n}" for n in range(SCAN + 200)]
    await queue.enqueue_many([NewMessage(0, tenant=tenant, id=id) for tenant in full for id in ("a", "b")])
    assert len(await queue.claim(1000)) == len(full)
    await put(queue, "Z", "z")
    assert await claimed_within_a_second(queue) == ["Z/z"]


@pytest.mark.case("C1")
async def test_tenants_that_all_became_full_at_once_do_not_hide_one_with_room(make_queue: MakeQueue) -> None:
    """Nobody has looked at any of them since: all that stand before Z are blocked in the claim that finds Z."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    full = [f"t{n}" for n in range(SCAN + 200)]
    await queue.enqueue_many([NewMessage(0, tenant=tenant, id="a") for tenant in full])
    await queue.limits.set("tenant", "Z", 1)
    await put(queue, "Z", "z")
    stopped = await make_queue(limits=[Limit("tenant", default=0)])
    assert await claimed_within_a_second(stopped) == ["Z/z"]
    assert await claimed(stopped) == []
    await make_queue(limits=[Limit("tenant", default=1)])
    assert len(await claimed(queue)) == len(full)


@pytest.mark.case("C1")
async def test_full_queues_of_a_tenant_do_not_hide_a_free_one(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("queue", key=lambda message: message.queue, default=1)])
    full = [f"q{n}" for n in range(SCAN + 200)]
    await queue.enqueue_many(
        [NewMessage(0, tenant="T", queue=q, id=q + id) for q in full for id in ("a", "b")]
    )
    assert len(await queue.claim(1000)) == len(full)
    await put(queue, "T", "z", queue="free")
    assert await claimed_within_a_second(queue) == ["T/z"]


# --- C2 ----------------------------------------------------------------------------------------------------------

OTHERS = "BCDEFGHIJK"


async def dispatched(queue: FairQueue[Any], most: int, batch: int, capacity: int = 10) -> list[str]:
    """Tenants in the order of dispatch, with that many in flight at once, the oldest of which ends first."""
    order: list[str] = []
    running: list[Lease[Any]] = []
    while len(order) < most:
        leases = await queue.claim(min(batch, capacity - len(running), most - len(order)))
        order += [lease.message.tenant for lease in leases]
        running += leases
        if len(running) == capacity or not leases:
            await queue.complete_many(running[:batch])
            del running[:batch]
    await queue.complete_many(running)
    return order


@pytest.mark.case("C2")
async def test_a_tenant_of_5000_queues_gets_one_tenants_share(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(
        [NewMessage(0, tenant="A", queue=f"q{n}", id=str(n)) for n in range(sized(5000))]
    )
    await queue.enqueue_many([NewMessage(0, tenant=t, id=str(n)) for n in range(50) for t in OTHERS])
    share = Counter(await dispatched(queue, 500, batch=1))
    assert set(share) == {"A", *OTHERS}
    assert all(0.8 * 500 / 11 <= count <= 1.2 * 500 / 11 for count in share.values()), share
    assert share["A"] <= 0.12 * 500


@pytest.mark.case("C2")
@pytest.mark.parametrize("batch", [1, 10])
async def test_an_older_backlog_is_no_larger_share_whatever_the_batch(
    make_queue: MakeQueue, batch: int
) -> None:
    """There is neither a quantum nor a deficit to set: the claim's batch is all that can vary."""
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(0, tenant="A", id=str(n)) for n in range(sized(10_000))])
    await queue.enqueue_many([NewMessage(0, tenant=t, id=str(n)) for t in OTHERS for n in range(50)])
    share = Counter(await dispatched(queue, 500, batch))
    assert set(share) == {"A", *OTHERS}
    assert max(share.values()) - min(share.values()) <= 1, share


@pytest.mark.case("C2")
@pytest.mark.parametrize("batch", [1, 10])
async def test_a_tenant_that_comes_back_gets_its_share_at_once_and_no_burst(
    make_queue: MakeQueue, batch: int
) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(0, tenant=t, id=str(n)) for t in "ABC" for n in range(200)])
    await put(queue, "late", "first")
    await dispatched(queue, 300, batch)  # long enough to have earned a hundred turns
    await put(queue, "late", *(f"m{n}" for n in range(50)))
    after = await dispatched(queue, 40, batch)
    assert Counter(after)["late"] in (9, 10, 11)
    for start in range(0, 40, 4):
        assert 1 <= Counter(after[: start + 4])["late"] - start // 4 <= 2, after


# --- C3 ----------------------------------------------------------------------------------------------------------

GLOSSARY = ROOT / "docs" / "glossary.md"
DURATIONS = defaultdict(lambda: 0.01, A=1.0)


async def simulated(
    queue: FairQueue[Any],
    clock: ManualClock,
    seconds: float,
    arrivals: list[tuple[float, str]] = [],  # noqa: B006 - read only
) -> list[tuple[str, float]]:
    """A worker of capacity 10 whose handlers take their time by the clock alone: (tenant, wait) of each dispatch."""
    dispatches: list[tuple[str, float]] = []
    running: list[tuple[float, int, Lease[Any]]] = []
    at, coming = 0.0, sorted(arrivals)
    while at < seconds:
        while coming and coming[0][0] <= at:
            await queue.enqueue(at, tenant=coming.pop(0)[1])
        for lease in await queue.claim(10 - len(running)) if len(running) < 10 else []:
            tenant = lease.message.tenant
            dispatches.append((tenant, at - lease.message.payload))
            heapq.heappush(running, (at + DURATIONS[tenant], len(dispatches), lease))
        upcoming = [running[0][0]] if running else []
        upcoming += [coming[0][0]] if coming else []
        step = max(0.0, min([*upcoming, seconds]) - at)
        at += step
        clock.advance(step)
        while running and running[0][0] <= at:
            await heapq.heappop(running)[2].complete()
    await queue.release_many([lease for _, _, lease in running])
    return dispatches


@pytest.mark.case("C3")
async def test_without_limits_shares_are_of_dispatches(make_queue: MakeQueue, clock: ManualClock) -> None:
    """A's handlers take a hundred times as long: its share is of dispatches, not of time, and the docs say so."""
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(0.0, tenant=t, id=str(n)) for t in "ABCD" for n in range(100)])
    share = Counter(tenant for tenant, _ in await simulated(queue, clock, 6))
    assert share.total() > 100
    assert max(share.values()) - min(share.values()) <= 1
    assert "a share of deliveries, whatever time their handlers take" in " ".join(
        GLOSSARY.read_text().split()
    )


@pytest.mark.case("C3")
async def test_with_a_limit_long_handlers_keep_nobody_waiting(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant")])
    await queue.limits.set("tenant", "A", 3)
    await queue.enqueue_many([NewMessage(0.0, tenant="A", id=str(n)) for n in range(100)])
    rng = random.Random(3)
    arrivals = [(rng.uniform(0, 3), tenant) for tenant in "BCD" for _ in range(200)]
    waits = sorted(wait for tenant, wait in await simulated(queue, clock, 3.5, arrivals) if tenant != "A")
    assert len(waits) == 600
    assert waits[int(0.95 * len(waits))] < 0.2


@pytest.mark.case("C3")
async def test_what_is_delayed_or_waits_for_a_retry_does_not_run(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)], retry=RetryPolicy.fixed(60))
    await put(queue, "T", *(f"d{n}" for n in range(5)), delay=60)
    await put(queue, "T", *(f"f{n}" for n in range(5)))

    def fail(_: Any) -> None:
        raise ConnectionError("not yet")

    assert len(await drain(queue, fail)) == 5
    stats = await queue.stats("T")
    assert (stats.delayed, stats.in_flight, await held(queue, "tenant", "T")) == (10, 0, 0)
    await put(queue, "T", "now", "too")
    assert await claimed(queue) == ["now", "too"]
