"""Reads: stats, messages, queues and get tell what is, and change nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fairqueue import ConfigurationError, FairQueue, Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, commands, one, put


async def one_of_each(make_queue: MakeQueue) -> FairQueue[Any]:
    """a: dead, in flight, two blocked, delayed. b: one ready."""
    queue = await make_queue(limits=[Limit("tenant", default=1)], retry=RetryPolicy.fixed(60))
    await put(queue, "a", "dead")
    await (await one(queue)).dead_letter("enough")
    await put(queue, "a", "flying", "ready1", "ready2")
    await put(queue, "a", "late", delay=60)
    await claimed(queue)
    await put(queue, "b", "free")
    return queue


async def test_stats_of_the_namespace_and_of_a_tenant(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await one_of_each(make_queue)
    clock.advance(7)
    stats = await queue.stats()
    assert (stats.ready, stats.delayed, stats.in_flight, stats.dead, stats.blocked) == (3, 1, 1, 1, 2)
    assert stats.oldest_ready_age == timedelta(seconds=7)
    of_a = await queue.stats("a")
    assert (of_a.ready, of_a.delayed, of_a.in_flight, of_a.dead, of_a.blocked) == (2, 1, 1, 1, 2)
    of_b = await queue.stats("b")
    assert (of_b.ready, of_b.delayed, of_b.in_flight, of_b.dead, of_b.blocked) == (1, 0, 0, 0, 0)
    nobody = await queue.stats("nobody")
    assert (nobody.ready, nobody.in_flight, nobody.oldest_ready_age) == (0, 0, None)


async def test_totals_count_every_transition(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy(2, max_crashes=2, initial=0, maximum=0))
    await put(queue, "a", "completed", "failed", "released", "reclaimed")
    leases = {lease.message.id: lease for lease in await queue.claim(4)}
    await leases["completed"].complete()
    await leases["failed"].fail("no")
    await leases["released"].release()
    clock.advance(30)
    await queue.reclaim()
    again = {lease.message.id: lease for lease in await queue.claim(4)}
    await again["failed"].fail("no")
    await again["released"].dead_letter("enough")
    clock.advance(30)
    await queue.reclaim()
    await queue.dead_letters.redrive("a", "failed")
    await queue.dead_letters.purge("a", "released")
    totals = (await queue.stats()).totals
    assert {name: totals[name] for name in ("enqueued", "completed", "failed", "retried", "released")} == {
        "enqueued": 4,
        "completed": 1,
        "failed": 2,
        "retried": 1,
        "released": 1,
    }
    assert {name: totals[name] for name in ("dead_lettered", "redriven", "purged", "reclaimed")} == {
        "dead_lettered": 3,
        "redriven": 1,
        "purged": 1,
        "reclaimed": 2,
    }
    assert totals["claimed"] == 7
    of_the_tenant = (await queue.stats("a")).totals
    assert of_the_tenant["completed"] == 1
    assert of_the_tenant.claimed is None, "it is not counted, which is not the same as none"
    assert (await queue.tenants.get("nobody")).totals.claimed is None


async def test_get_in_every_state(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await one_of_each(make_queue)
    infos = {id_: await queue.get("a", id_) for id_ in ("dead", "flying", "ready1", "ready2", "late")}
    assert {id_: str(info and info.state) for id_, info in infos.items()} == {
        "dead": "dead",
        "flying": "in_flight",
        "ready1": "ready",
        "ready2": "ready",
        "late": "delayed",
    }
    assert (infos["ready1"] and infos["ready1"].position, infos["ready2"] and infos["ready2"].position) == (
        0,
        1,
    )
    flying, late, dead = infos["flying"], infos["late"], infos["dead"]
    assert flying is not None
    assert flying.lease is not None
    assert flying.lease.claimed_at == clock.now
    assert flying.lease.deadline == clock.now + timedelta(seconds=30)
    assert late is not None
    assert late.due_at == clock.now + timedelta(seconds=60)
    assert dead is not None
    assert (dead.reason, dead.error) == ("enough", "enough")
    assert await queue.get("b", "flying") is None


async def test_the_lease_names_its_consumer(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await queue.claim(consumer="worker 7")
    info = await queue.get("a", "m")
    assert info is not None
    assert info.lease is not None
    assert info.lease.consumer == "worker 7"


async def all_of(queue: FairQueue[Any], limit: int, /, **selection: Any) -> list[str]:
    ids, cursor, rounds = [], None, 0
    while rounds == 0 or cursor is not None:
        items, cursor = await queue.messages("a", limit=limit, cursor=cursor, **selection)
        ids += [item.message.id for item in items]
        rounds += 1
        assert rounds < 1000
    return ids


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
async def test_messages_lists_everything_of_one_tenant_page_by_page(
    make_queue: MakeQueue, limit: int
) -> None:
    queue = await one_of_each(make_queue)
    listed = await all_of(queue, limit)
    assert listed[:2] == ["ready1", "ready2"]
    assert sorted(listed) == ["dead", "flying", "late", "ready1", "ready2"]


@pytest.mark.parametrize("state", ["ready", "in_flight", "delayed", "dead"])
@pytest.mark.parametrize("limit", [3, 1000])
async def test_messages_of_one_state(make_queue: MakeQueue, state: str, limit: int) -> None:
    queue = await one_of_each(make_queue)
    expected = {"ready": ["ready1", "ready2"], "in_flight": ["flying"], "delayed": ["late"], "dead": ["dead"]}
    assert await all_of(queue, limit, state=state) == expected[state]


async def test_messages_of_one_queue_and_several_lanes(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=5, key="org")])
    for n in range(4):
        await put(queue, "a", f"p{n}", queue="p", metadata={"org": f"o{n % 2}"})
        await put(queue, "a", f"q{n}", queue="q")
    await put(queue, "b", "other", queue="p")
    assert sorted(await all_of(queue, 3, queue="p")) == ["p0", "p1", "p2", "p3"]
    assert await all_of(queue, 3, queue="q") == ["q0", "q1", "q2", "q3"]
    assert len(await all_of(queue, 3)) == 8


async def test_a_page_of_many_stays_in_the_lane_s_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    ids = [f"m{n}" for n in range(95)]
    await put(queue, "a", *ids)
    assert await all_of(queue, 10) == ids


async def test_a_cursor_that_messages_did_not_return_is_refused(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    forged = (
        '["ready", "x"]',
        '["ready", "a|-1"]',
        '["dead", "nan"]',
        '["in_flight", "x"]',
        '["delayed", "a\\u001fb"]',
        '["delayed", "\\ud800"]',
    )
    for cursor in ("", "nonsense", "[1, 2]", "{}", '["ready"]', '["none", "0"]', "null", "5", *forged):
        with pytest.raises(ConfigurationError, match="cursor"):
            await queue.messages("a", cursor=cursor)


async def test_a_cursor_that_the_dead_letters_did_not_return_is_refused(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for cursor in ("", "nonsense", "-1", "²", "1e", "1.", "e5"):
        with pytest.raises(ConfigurationError, match="cursor"):
            await queue.dead_letters.list("a", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 10_001, "5"])
async def test_a_page_size_that_is_none_is_refused(make_queue: MakeQueue, limit: Any) -> None:
    queue = await make_queue()
    for call in (queue.messages("a", limit=limit), queue.dead_letters.list("a", limit=limit)):
        with pytest.raises(ConfigurationError, match="expected limit"):
            await call


async def test_queues_with_ready_messages(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await put(queue, "a", "p1", "p2", queue="p", metadata={"org": "x"})
    await put(queue, "a", "p3", queue="p")
    await put(queue, "a", "q1", queue="q", pool="fast")
    await put(queue, "a", "none", queue="r", delay=60)
    clock.advance(3)
    assert sorted(await claimed(queue)) == ["p1", "p3"]
    found = {state.queue: state async for state in queue.queues("a")}
    assert set(found) == {"p", "q"}
    assert (found["p"].ready, found["p"].blocked, found["p"].pool) == (1, 1, "default")
    assert (found["q"].ready, found["q"].blocked, found["q"].pool) == (1, 0, "fast")
    assert found["q"].oldest_ready_age == timedelta(seconds=3)


async def test_tenants_are_those_with_messages(make_queue: MakeQueue) -> None:
    queue = await one_of_each(make_queue)
    found = {state.tenant: state async for state in queue.tenants.list()}
    assert set(found) == {"a", "b"}
    assert found["a"] == await queue.tenants.get("a")
    assert (found["a"].dead, found["b"].ready) == (1, 1)


async def test_more_tenants_than_one_page(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for n in range(450):
        await put(queue, f"t{n}", "m")
    names = [state.tenant async for state in queue.tenants.list()]
    assert sorted(names) == sorted(f"t{n}" for n in range(450))
    assert (await queue.stats()).ready == 450


async def test_the_stats_of_a_tenant_cost_the_same_whatever_the_number_of_others(
    make_queue: MakeQueue,
) -> None:
    queue = await one_of_each(make_queue)

    async def cost() -> int:
        before = await commands(queue)
        await queue.stats("a")
        return await commands(queue) - before

    await queue.stats("a")
    few = await cost()
    for n in range(200):
        await put(queue, f"t{n}", "m")
    assert await cost() == few


async def test_looking_changes_nothing(make_queue: MakeQueue) -> None:
    queue = await one_of_each(make_queue)
    before = await queue._engine.command("INFO", "persistence")
    await queue.stats()
    await queue.stats("a")
    await all_of(queue, 2)
    await queue.get("a", "flying")
    await queue.limits.get("tenant", "a")
    _ = [state async for state in queue.limits.list("tenant")]
    _ = [state async for state in queue.tenants.list()]
    _ = [state async for state in queue.queues("a")]
    _ = [state async for state in queue.workers()]
    await queue.dead_letters.list("a")
    await queue.dead_letters.count("a")
    await queue.audit()
    after = await queue._engine.command("INFO", "persistence")
    assert after["rdb_changes_since_last_save"] == before["rdb_changes_since_last_save"]


async def test_those_who_wait_at_a_group_are_counted_in_a_bounded_number_of_steps(
    make_queue: MakeQueue,
) -> None:
    """Message by message in 500 lanes; of those beyond one for each lane of a tenant looked at, and one a tenant."""
    queue = await make_queue(limits=[Limit("org", default=0, key="org")])
    costs = {}
    for number, (tenants, waiting) in enumerate(((100, 200), (600, 1100), (1200, 1700))):
        org = {"org": f"o{number}"}
        await queue.enqueue_many(NewMessage(n, tenant=f"t{n // 2}", metadata=org) for n in range(2 * tenants))
        while await queue.claim(1000):
            pass
        before = await commands(queue)
        assert (await queue.limits.get("org", org["org"])).waiting == waiting
        costs[tenants] = await commands(queue) - before
    assert costs[1200] == costs[600]
