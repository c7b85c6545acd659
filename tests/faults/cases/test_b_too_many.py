"""B: more work is let in than the limit allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairqueue import FairQueue, Limit, NewMessage
from fairqueue._engine.keys import join
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, ids, lane, one, put, raw
from tests.faults.cases.actors import Cast
from tests.faults.scale import sized
from tests.support.processes import ENDED, STARTED, Log
from tests.support.waiting import eventually

ONE = [Limit("tenant", default=1)]


@pytest.mark.case("B1")
async def test_a_thawed_owner_cannot_free_the_slot_of_its_successor(
    make_queue: MakeQueue, clock: ManualClock, cast: Cast
) -> None:
    """P1 really is frozen; that its lease has expired meanwhile the clock says. 20 rounds, one P1."""
    queue = await make_queue(limits=ONE)
    first = await cast.actor(clock=clock)
    for _ in range(20):
        await put(queue, "T", "m1", "m2")
        assert (await first.ask("claim"))["ids"] == ["m1"]
        first.freeze()
        first.tell("complete_one")
        clock.advance(31)
        assert (await queue.reclaim()).reclaimed == [("T", "m1")]
        second = await one(queue)
        assert (second.message.id, second.message.attempt) == ("m1", 2)
        first.thaw()
        assert await first.hear() == "LeaseLostError"
        assert (await queue.limits.get("tenant", "T")).holders == [("T", "m1")]
        assert await queue.claim() == [], "m2 must wait for the one that runs"
        assert await second.complete() == "done"
        third = await one(queue)
        assert (third.message.id, await held(queue, "tenant", "T")) == ("m2", 1)
        await third.complete()


@pytest.mark.case("B2")
@pytest.mark.parametrize("limit", [1, None], ids=["limit 1", "no limit"])
async def test_a_second_index_entry_of_a_running_message_changes_nothing(
    make_queue: MakeQueue, limit: int | None
) -> None:
    """There is no second list of claimed messages to push to: the entry goes where a ready message would stand."""
    queue = await make_queue(limits=[Limit("tenant", default=limit)])
    await put(queue, "T", "m1", "m2")
    running = await one(queue)
    slots = await raw(queue, "HGETALL", "slots", "tenant", "T")
    of_t = lane("T", ("tenant", "T"))
    await raw(queue, "ZADD", "lane", of_t, args=[0, join("T", "m1")])
    second = await make_queue()
    got = await second.claim(5)
    assert ids(got) == ([] if limit else ["m2"])
    info = await queue.get("T", "m1")
    assert info is not None
    assert info.lease is not None
    assert (info.state, info.lease.token, info.message.attempt) == ("in_flight", running.token, 1)
    assert slots.items() <= (await raw(queue, "HGETALL", "slots", "tenant", "T")).items()
    assert await running.extend() == running.deadline
    assert await running.complete() == "done"
    rest = got or await second.claim(5)
    assert ids(rest) == ["m2"]
    await second.complete_many(rest)
    assert await claimed(second) == []
    assert (await queue.stats()).totals.completed == 2


TWO_LIMITS = [["tenant", 5, None], ["org", 8, "org"]]


@pytest.mark.case("B3")
async def test_sixteen_processes_never_exceed_a_tenants_or_an_orgs_limit(
    make_queue: MakeQueue, cast: Cast, log: Log, tmp_path: Path
) -> None:
    """2,000 messages of two tenants of one org; all begin at once, and the first hold their slots until all are held."""
    messages = sized(2000)
    queue = await make_queue(
        clock=None, limits=[Limit("tenant", default=5), Limit("org", default=8, key="org")]
    )
    all_held = tmp_path / "all slots are held"
    await queue.enqueue_many(
        [
            NewMessage(
                {"until": str(all_held)} if n < 5 else {"sleep": 0.002},
                tenant=tenant,
                id=f"m{n}",
                metadata={"org": "o"},
            )
            for n in range(messages // 2)
            for tenant in ("T1", "T2")
        ]
    )
    alone = {"limits": TWO_LIMITS, "worker": {"concurrency": 1}}
    workers = [await cast.actor("substitute", **alone) for _ in range(16)]
    for worker in workers:
        worker.tell("begin")
    await eventually(lambda: log.count(STARTED) == 8, "the org's eight slots to be held")
    all_held.touch()

    async def all_done() -> bool:
        return (await queue.stats()).totals.completed == messages

    await eventually(all_done, "all to be completed", 300)
    assert (log.count(STARTED), log.count(ENDED)) == (messages, messages)
    assert log.most_at_once(tenants=["T1"]) <= 5
    assert log.most_at_once(tenants=["T2"]) <= 5
    assert log.most_at_once() == 8
    assert len({event.pid for event in log.events()}) >= 8


@pytest.mark.case("B3")
async def test_all_of_a_messages_groups_are_taken_or_none(make_queue: MakeQueue) -> None:
    queue: FairQueue[str] = await make_queue(
        limits=[Limit("tenant", default=5), Limit("org", default=8, key="org")]
    )
    for tenant in ("T1", "T2"):
        await put(queue, tenant, *(f"m{n}" for n in range(6)), metadata={"org": "o"})
    leases = await queue.claim(12)
    assert len(leases) == 8
    before = [await held(queue, "tenant", tenant) for tenant in ("T1", "T2")]
    assert (sum(before), await held(queue, "org", "o")) == (8, 8)
    assert await queue.claim(12) == []
    assert [await held(queue, "tenant", tenant) for tenant in ("T1", "T2")] == before
    await queue.complete_many(leases)
    rest = await queue.claim(12)
    assert len(rest) == 4
    await queue.complete_many(rest)
