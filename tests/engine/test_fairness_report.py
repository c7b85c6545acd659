"""The fairness report on a real queue: what claims note, and what it says of fair and unfair service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from fairqueue import ConfigurationError, FairnessReport, FairQueue, Limit, NewMessage, TenantFairness
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.test_charges import Clocked
from tests.engine.tools import finish, put, raw

SMALL = [f"small{n}" for n in range(9)]


async def serve(
    queue: FairQueue[Any],
    clock: ManualClock,
    minutes: int,
    a_second: int,
    pools: Sequence[str] = ("default",),
) -> None:
    """So many are done each six seconds, ten times a minute."""
    for _ in range(minutes * 10):
        await finish(queue, await queue.claim(a_second * 6, pools=pools))
        clock.advance(6)


async def one_big_and_nine_small(queue: FairQueue[Any]) -> None:
    await queue.enqueue_many([NewMessage(n, tenant="big") for n in range(10_000)])
    for tenant in SMALL:
        await put(queue, tenant, *(f"m{n}" for n in range(100)))


def part(report: FairnessReport, tenant: str) -> TenantFairness:
    found = report.of(tenant)
    assert found is not None
    return found


async def test_ten_thousand_of_one_beside_nine_with_a_hundred(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """10 a second to ten tenants: all get the same, until the nine have all they want after 100 s."""
    queue = await make_queue()
    await one_big_and_nine_small(queue)
    await serve(queue, clock, minutes=3, a_second=10)
    report = await queue.fairness(600)
    big = part(report, "big")
    assert report.served == 1800
    assert (big.received, big.waiting, big.deliveries) == (900, 9100, 900)
    for one in (part(report, tenant) for tenant in SMALL):
        assert (one.received, one.waiting) == (100, 0)
        assert abs(one.lag) <= 2
        assert one.wait_p50 <= one.wait_p95 <= one.longest_wait <= timedelta(seconds=102)
    assert abs(big.lag) <= 10
    assert report.jain > 0.999
    assert [one.starved for one in report.tenants] == [timedelta()] * 10
    assert sum(one.share for one in report.tenants) == pytest.approx(1)
    assert big.share == pytest.approx(0.5)


async def test_first_come_first_served_starves_the_nine(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(scheduler="fifo")
    await one_big_and_nine_small(queue)
    await serve(queue, clock, minutes=3, a_second=10)
    report = await queue.fairness(600)
    assert report.tenants[-1].tenant == "big"
    for one in report.tenants[:-1]:
        assert (one.received, one.waiting) == (0, 100)
        assert one.lag == pytest.approx(100)
        assert one.starved == timedelta(
            minutes=2
        )  # the first is not known to have had work from its beginning
        assert one.longest_wait == timedelta(minutes=3)
    assert report.jain == pytest.approx(0.1)


async def test_weights_are_what_is_due(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.tenants.set_weight("a", 3)
    for tenant in "ab":
        await put(queue, tenant, *(f"m{n}" for n in range(900)))
    await serve(queue, clock, minutes=1, a_second=10)
    report = await queue.fairness()
    assert (part(report, "a").received, part(report, "b").received) == (450, 150)
    assert part(report, "a").weight == 3
    assert max(abs(one.lag) for one in report.tenants) <= 1
    assert report.jain > 0.999


async def test_who_stands_at_its_own_limit_is_not_behind(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=None)])
    await queue.limits.set("tenant", "a", 1)
    for tenant in "ab":
        await put(queue, tenant, *(f"m{n}" for n in range(900)))
    await serve(queue, clock, minutes=2, a_second=5)
    report = await queue.fairness()
    assert part(report, "a").received == 20
    assert part(report, "a").starved == timedelta()
    assert abs(part(report, "a").lag) <= 1
    assert report.jain > 0.99


async def test_who_waits_at_a_full_shared_group_had_work(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await put(queue, "a", "a1", metadata={"org": "o"})
    await put(queue, "c", *(f"m{n}" for n in range(600)))
    held = await queue.claim(1)
    await put(queue, "b", "b1", metadata={"org": "o"})
    await serve(queue, clock, minutes=2, a_second=1)
    report = await queue.fairness()
    waits = part(report, "b")
    assert (waits.received, waits.waiting, waits.starved) == (0, 1, timedelta(minutes=1))
    assert waits.entitled > 0
    await finish(queue, held)


async def test_cost_units_are_what_is_counted(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", cost=2.5)
    await put(queue, "a", "m2", cost=0.001)
    clock.advance(10)
    await queue.claim(2)
    found = part(await queue.fairness(), "a")
    assert (found.received, found.deliveries) == (2.501, 2)
    assert found.longest_wait == timedelta(seconds=10)
    assert timedelta(seconds=10) / 1.42 <= found.wait_p50 <= timedelta(seconds=10)


async def test_by_time_it_is_seconds_that_are_counted(make_queue: MakeQueue, clock: ManualClock) -> None:
    """A tenant whose messages take ten times longer gets a tenth of the starts, and that is fair."""
    queue = await make_queue()
    await put(queue, "slow", *(f"m{n}" for n in range(200)))
    await put(queue, "quick", *(f"m{n}" for n in range(1000)))
    clocked = Clocked(queue, {"slow": 2.0, "quick": 0.2}.__getitem__)
    for _ in range(20):
        await clocked.work(6, batch=5)
        clock.advance(6)
    report = await queue.fairness(180)
    slow, quick = part(report, "slow"), part(report, "quick")
    assert slow.received == pytest.approx(clocked.used["slow"], abs=0.001)
    assert quick.received == pytest.approx(clocked.used["quick"], abs=0.001)
    assert slow.deliveries * 8 < quick.deliveries
    assert max(abs(slow.lag), abs(quick.lag)) <= 12  # a batch of the slow one is 10 s
    assert report.jain > 0.98


async def test_what_is_put_right_counts_in_the_minute_it_is(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2")
    clocked = Clocked(queue, lambda tenant: 3.5)
    leases = await clocked.claim(1)
    clock.advance(20)
    assert part(await queue.fairness(60), "a").received == 1  # its cost: nobody knows its time yet
    clock.advance(60)
    clocked.run(leases[0])
    await finish(queue, leases)
    last, both = part(await queue.fairness(60), "a"), part(await queue.fairness(180), "a")
    assert (last.received, last.deliveries) == (2.5, 0)
    assert (both.received, both.deliveries) == (3.5, 1)
    assert both.entitled == pytest.approx(3.5)


async def test_what_never_began_was_not_received(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2", cost=5)
    begun, unbegun = await queue.claim(2)
    await unbegun.release()
    await begun.complete()
    found = part(await queue.fairness(), "a")
    assert (found.received, found.deliveries) == (5, 2)


@pytest.mark.parametrize("paused", [True, False], ids=["paused", "without a worker"])
async def test_nobody_starves_in_a_pool_that_serves_nobody(
    make_queue: MakeQueue, clock: ManualClock, paused: bool
) -> None:
    queue = await make_queue()
    await put(queue, "x", *(f"m{n}" for n in range(50)), pool="gpu")
    await put(queue, "y", *(f"m{n}" for n in range(300)))
    pools = ("gpu", "default") if paused else ("default",)
    if paused:
        await queue.pause(pool="gpu")
    await serve(queue, clock, minutes=3, a_second=1, pools=pools)
    report = await queue.fairness()
    kept = part(report, "x")
    assert (kept.received, kept.entitled, kept.lag, kept.waiting) == (0, 0, 0, 50)
    assert (kept.starved, kept.longest_wait) == (timedelta(), timedelta(minutes=3))
    assert (report.jain, part(report, "y").lag) == (1, 0)


async def test_each_pool_is_divided_by_itself(make_queue: MakeQueue, clock: ManualClock) -> None:
    """default serves a hundred times what gpu does, and nobody of gpu could have had any of it."""
    queue = await make_queue()
    for tenant in ("a", "both"):
        await put(queue, tenant, *(f"m{n}" for n in range(900)))
    for tenant in ("g", "both"):
        await put(queue, tenant, *(f"g{n}" for n in range(90)), pool="gpu")
    for _ in range(12):
        await finish(queue, await queue.claim(100))
        await finish(queue, await queue.claim(1, pools=("gpu",)))
        clock.advance(10)
    report = await queue.fairness()
    received = {one.tenant: one.received for one in report.tenants}
    assert received == {"a": 600, "both": 606, "g": 6}
    assert max(abs(one.lag) for one in report.tenants) <= 1
    assert report.jain > 0.99


async def test_what_a_guarantee_serves_is_due_first(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Three of four slots: the others divide the fourth, and nobody is behind."""
    queue = await make_queue(limits=[Limit("tenant", default=4)])
    await queue.limits.set("tenant", "a", 4, guaranteed=3)
    for tenant in "abc":
        await put(queue, tenant, *(f"m{n}" for n in range(600)))
    for _ in range(20):
        await finish(queue, await queue.claim(4))  # as many as run at once
        clock.advance(6)
    report = await queue.fairness()
    received = {one.tenant: one.received for one in report.tenants}
    assert received == {"a": 60, "b": 10, "c": 10}
    assert max(abs(one.lag) for one in report.tenants) <= 1
    assert report.jain > 0.99


@pytest.mark.parametrize("queues", [1, 5])
async def test_what_waits_counts_by_its_cost(make_queue: MakeQueue, clock: ManualClock, queues: int) -> None:
    """Five messages of cost 100 behind a thousand of another: their 500 units were due, and not a unit more."""
    queue = await make_queue(scheduler="fifo")
    await put(queue, "cheap", *(f"m{n}" for n in range(2000)))
    for n in range(5):
        await put(queue, "dear", f"m{n}", queue=f"q{n % queues}", cost=100)
    await serve(queue, clock, minutes=3, a_second=10)
    dear = part(await queue.fairness(), "dear")
    assert (dear.received, dear.waiting) == (0, 5)
    assert dear.entitled == pytest.approx(500)


async def test_what_waits_counts_by_its_time(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Where workers charge by time: two messages of a tenant whose messages take 100 s wait for 200 s, whatever their cost."""
    queue = await make_queue(scheduler="fifo")
    clocked = Clocked(queue, lambda tenant: 100.0 if tenant == "long" else 1.0)
    await put(queue, "long", "m0")
    await put(queue, "cheap", *(f"m{n}" for n in range(1000)))
    await put(queue, "long", "m1", "m2")
    for _ in range(5):
        await clocked.work(100, batch=100)
        clock.advance(60)
    found = part(await queue.fairness(), "long")
    assert (found.received, found.waiting) == (100, 2)
    assert 295 < found.entitled <= 300  # what waits alone is 200


async def test_the_window_says_how_far_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    for tenant in ("early", "late"):
        await put(queue, tenant, "m")
        await finish(queue, await queue.claim())
        clock.advance(300)
    assert [one.tenant for one in (await queue.fairness(420)).tenants] == ["late"]
    assert [one.tenant for one in (await queue.fairness(660)).tenants] == ["early", "late"]
    clock.advance(3600)
    assert (await queue.fairness(3600)).tenants == []


@pytest.mark.parametrize("window", [59, 3601, "an hour"])
async def test_a_window_of_other_length_is_refused(make_queue: MakeQueue, window: Any) -> None:
    queue = await make_queue()
    with pytest.raises(ConfigurationError):
        await queue.fairness(window)


async def test_memory_is_that_of_an_hour(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    for n in range(130):
        await put(queue, f"t{n}", "m")
        await finish(queue, await queue.claim())
        clock.advance(60)
    kept = [await raw(queue, "HLEN", "service", str(slot)) for slot in range(70)]
    assert [size for size in kept if size] == [2] * 64
    assert 0 < await raw(queue, "PTTL", "service", "0") <= 128 * 60_000


async def test_what_is_damaged_stops_no_claim(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2", "m3", "m4")
    await queue.claim()
    slot = str(clock.now_ms() // 60_000 % 64)
    for rubbish in ("rubbish", "[1,0]", '["a"]'):
        await raw(queue, "HSET", "service", slot, args=("default\x1fa", rubbish))
        assert (await queue.fairness()).tenants[0].deliveries == 0
    await raw(queue, "HSET", "service", slot, args=("a", "[1,0,0,0,0]"))
    assert (await queue.fairness()).tenants[0].deliveries == 0
    await queue.claim()
    assert part(await queue.fairness(), "a").deliveries == 1
    await raw(queue, "DEL", "service", slot)
    await raw(queue, "SET", "service", slot, args=("rubbish",))
    assert part(await queue.fairness(), "a").deliveries == 0
    await queue.claim()
    assert part(await queue.fairness(), "a").deliveries == 1


async def test_it_costs_two_commands_a_claim(make_queue: MakeQueue) -> None:
    """Whatever the number of messages; one that gets nothing, nothing."""
    queue = await make_queue()
    await put(queue, "a", *(f"m{n}" for n in range(30)))
    await queue.claim()
    before = await commands_of_notes(queue)
    assert len(await queue.claim(1)) == 1
    one = await commands_of_notes(queue) - before
    assert len(await queue.claim(20)) == 20
    assert await commands_of_notes(queue) - before - one == one


async def test_it_costs_two_commands_a_settle_that_puts_something_right(make_queue: MakeQueue) -> None:
    """Whatever the number of messages; none where nothing is put right."""
    queue = await make_queue()
    await put(queue, "a", *(f"m{n}" for n in range(60)))
    clocked = Clocked(queue, lambda tenant: 2.0)
    costs = []
    for count, measured in ((1, False), (20, False), (1, True), (20, True)):
        leases = await clocked.claim(count)
        for lease in leases if measured else ():
            clocked.run(lease)
        before = await commands_of_notes(queue)
        await finish(queue, leases)
        costs.append(await commands_of_notes(queue) - before)
    alone, many, measured_alone, measured_many = costs
    assert (alone, measured_alone - many) == (
        many,
        2 + 1,
    )  # what the tenant's messages take on average is written, too
    assert measured_many - measured_alone == 19


async def commands_of_notes(queue: FairQueue[Any]) -> int:
    stats = await queue._engine.command("INFO", "commandstats")
    return sum(int(stats[f"cmdstat_{name}"]["calls"]) for name in ("hmget", "hset"))
