"""A slot that cannot be freed never holds up its message; its group is mended by the claims that need it.

Every queue here has its reconcile interval at 0: nothing heals by itself with time.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import FairQueue, Limit, RetryPolicy
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.test_slots import ENDINGS
from tests.engine.tools import claimed, found, held, lane, one, put, raw, state

endings = pytest.mark.parametrize("ending", ENDINGS)
LEFT_IN = {
    "complete": None,
    "fail and retry": "delayed",
    "fail for good": "dead",
    "release": "ready",
    "release for later": "delayed",
    "dead_letter": "dead",
    "reclaim": "ready",
}


async def broken(make_queue: MakeQueue, limit: int = 1, **options: Any) -> FairQueue[Any]:
    queue = await make_queue(limits=[Limit("tenant", default=limit)], retry=RetryPolicy.fixed(60), **options)
    await put(queue, "a", "m1", max_attempts=2)
    return queue


@endings
async def test_every_way_out_goes_through_while_the_slot_cannot_be_freed(
    make_queue: MakeQueue, clock: ManualClock, ending: str
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)], retry=RetryPolicy.fixed(60))
    await put(queue, "a", "m1", max_attempts=1 if ending == "fail for good" else None)
    lease = await one(queue)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await ENDINGS[ending](queue, lease, clock)
    assert await state(queue, "a", "m1") == LEFT_IN[ending]
    assert (await queue.stats()).totals["freed_late"] == 1
    await queue.reconcile()


@endings
async def test_afterwards_the_next_claim_mends_the_group_without_any_interval(
    make_queue: MakeQueue, clock: ManualClock, ending: str
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)], retry=RetryPolicy.fixed(60))
    await put(queue, "a", "m1", max_attempts=1 if ending == "fail for good" else None)
    lease = await one(queue)
    await put(queue, "a", "m2")
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await ENDINGS[ending](queue, lease, clock)
    expected = "m1" if LEFT_IN[ending] == "ready" else "m2"
    assert await claimed(queue) == [expected]
    assert (await queue.limits.get("tenant", "a")).holders == [("a", expected)]
    assert await claimed(queue) == []


async def test_a_retry_keeps_the_attempt_that_was_used(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await broken(make_queue)
    lease = await one(queue)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    assert await lease.fail("no") == "retried"
    clock.advance(60)
    again = await one(queue)
    assert (again.message.id, again.message.attempt) == ("m1", 2)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    assert await again.fail("no") == "dead"
    await queue.reconcile()


async def test_a_completed_message_never_runs_again(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await broken(make_queue)
    lease = await one(queue)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    assert await lease.complete() == "done"
    clock.advance(3600)
    await queue.reclaim()
    await queue.reconcile()
    assert await drain(queue) == []


async def test_lanes_that_were_parked_before_the_key_broke_go_on(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await put(queue, "a", "m1", metadata={"org": "x"})
    lease = await one(queue)
    for tenant in ("b", "c"):
        await put(queue, tenant, f"{tenant}1", metadata={"org": "x"})
    assert await claimed(queue) == []
    await faults.wrong_type(queue, "slots", "org", "x")
    await lease.complete()
    for _ in range(2):
        lease = await one(queue)
        assert await held(queue, "org", "x") == 1
        await lease.complete()
    assert await claimed(queue) == []


async def test_a_broken_key_with_free_room_is_mended_by_the_first_claim(make_queue: MakeQueue) -> None:
    queue = await broken(make_queue, limit=2)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    assert await claimed(queue) == ["m1"]
    assert await held(queue, "tenant", "a") == 1


async def test_the_rebuilt_group_counts_those_still_running(make_queue: MakeQueue) -> None:
    queue = await broken(make_queue, limit=3)
    await put(queue, "a", "m2", "m3", "m4", "m5")
    first, second, _ = await queue.claim(3)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await first.complete()
    assert await claimed(queue) == ["m4"]
    assert (await queue.limits.get("tenant", "a")).holders == [("a", "m2"), ("a", "m3"), ("a", "m4")]
    await second.complete()
    assert await claimed(queue) == ["m5"]


async def test_all_groups_of_a_message_broken_at_once(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=1, key="org")])
    await put(queue, "a", "m1", "m2", metadata={"org": "x"})
    lease = await one(queue)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await faults.wrong_type(queue, "slots", "org", "x")
    await lease.complete()
    assert (await queue.stats()).totals["freed_late"] == 2
    assert await claimed(queue) == ["m2"]
    assert (await held(queue, "tenant", "a"), await held(queue, "org", "x")) == (1, 1)


async def test_a_slot_in_a_broken_group_does_not_keep_the_one_in_a_whole_group(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=1, key="org")])
    await put(queue, "a", "m1", metadata={"org": "x"})
    lease = await one(queue)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await lease.complete()
    await put(queue, "b", "b1", metadata={"org": "x"})
    assert await claimed(queue) == ["b1"]
    await queue.reconcile()


async def test_the_tenant_of_a_dirty_group_is_served_though_others_always_have_work(
    make_queue: MakeQueue,
) -> None:
    """The group is repaired beside the claims, which may be faster: but not for as long as the others have work."""
    queue = await broken(make_queue)
    lease = await one(queue)
    await put(queue, "a", "m2")
    await put(queue, "busy", *(f"b{n}" for n in range(100)))
    await queue.limits.set("tenant", "busy", None)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await lease.complete()
    served: list[str] = []
    while "m2" not in served and len(served) < 100:
        served += await claimed(queue, 1)
    assert "m2" in served


@pytest.mark.parametrize("kind", ["slots", "lane"])
async def test_others_are_claimed_past_a_broken_key(make_queue: MakeQueue, kind: str) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    for tenant in ("a", "b", "c"):
        await put(queue, tenant, f"{tenant}1")
    await faults.wrong_type(
        queue, kind, "tenant" if kind == "slots" else "b", "b" if kind == "slots" else "default"
    )
    leases = await queue.claim(10)
    got = {lease.message.id for lease in leases} | set(await claimed(queue))
    assert got == ({"a1", "b1", "c1"} if kind == "slots" else {"a1", "c1"})
    await queue.audit(fix=True)


async def test_the_doctor_names_the_broken_key_and_reconcile_closes_refills_and_opens_it(
    make_queue: MakeQueue,
) -> None:
    queue = await broken(make_queue, limit=2)
    lease = await one(queue)
    await put(queue, "a", "m2", "m3")
    await faults.wrong_type(queue, "slots", "tenant", "a")
    state = await queue.limits.get("tenant", "a")
    assert (state.limit, state.held, state.free, state.holders) == (2, None, None, [])
    assert ("SLOTS", "tenant/a") in found(await queue.audit())
    report = await queue.reconcile()
    assert report.rebuilt == [("tenant", "a")]
    assert [(healed.tenant, healed.id, healed.group) for healed in report.restored] == [
        ("a", "m1", ("tenant", "a"))
    ]
    assert await claimed(queue) == ["m2"]
    await lease.complete()
    assert await claimed(queue) == ["m3"]


async def test_a_group_is_mended_however_often_it_breaks(make_queue: MakeQueue) -> None:
    queue = await broken(make_queue)
    await put(queue, "a", *(f"n{n}" for n in range(5)))
    for _ in range(6):
        lease = await one(queue)
        await faults.wrong_type(queue, "slots", "tenant", "a")
        assert await lease.complete() == "done"
    await queue.reconcile()
    assert await held(queue, "tenant", "a") == 0


async def test_a_repair_that_died_half_way_is_finished_by_the_next_claim(make_queue: MakeQueue) -> None:
    """The first step closed the group, and its process died before it refilled and opened it."""
    queue = await broken(make_queue, limit=2)
    await put(queue, "a", "m2", "m3")
    await one(queue)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await queue._engine.run(queue._engine.calls.reconcile_group("tenant\x1fa", "0"))
    assert await raw(queue, "HGET", "dirty", args=["tenant\x1fa"]) == b"closed"
    other = await make_queue()
    assert await claimed(other) == ["m2"]
    assert (await other.limits.get("tenant", "a")).holders == [("a", "m1"), ("a", "m2")]


async def test_a_message_whose_lane_is_broken_leaves_flight_and_frees_its_slot(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await broken(make_queue)
    lease = await one(queue)
    await faults.wrong_type(queue, "lane", "a", "default")
    assert await lease.release() == "released"
    assert await state(queue, "a", "m1") == "delayed"
    assert await held(queue, "tenant", "a") == 0
    await raw(queue, "DEL", "lane", lane("a", ("tenant", "a")))
    clock.advance(9.999)
    assert await claimed(queue) == []
    clock.advance(0.001)
    assert await claimed(queue) == ["m1"]


async def test_a_reclaimed_message_whose_lane_is_broken_is_tried_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await broken(make_queue)
    await one(queue)
    await faults.wrong_type(queue, "lane", "a", "default")
    clock.advance(30)
    assert (await queue.reclaim()).reclaimed == [("a", "m1")]
    assert (await state(queue, "a", "m1"), await held(queue, "tenant", "a")) == ("delayed", 0)
    clock.advance(10)
    assert await claimed(queue) == []
    await raw(queue, "DEL", "lane", lane("a", ("tenant", "a")))
    clock.advance(10)
    lease = await one(queue)
    assert (lease.message.attempt, lease.message.crashes) == (2, 1)


async def test_a_message_whose_dead_letters_are_broken_is_tried_again_not_lost(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await broken(make_queue)
    await raw(queue, "SET", "dead", "a", args=["broken"])
    assert await (await one(queue)).dead_letter("enough") == "retried"
    assert (await state(queue, "a", "m1"), await held(queue, "tenant", "a")) == ("delayed", 0)
    await raw(queue, "DEL", "dead", "a")
    clock.advance(10)
    assert await (await one(queue)).dead_letter("enough") == "dead"


async def test_somebody_finds_a_dirty_group_although_the_first_who_waits_there_needs_another_too(
    make_queue: MakeQueue,
) -> None:
    """The one that is woken to find it must not move on to the other full group, and leave the rest standing."""
    limits = [Limit("org", default=1, key="org"), Limit("model", default=1, key="model")]
    queue = await make_queue(limits=limits, reconcile_interval=0)
    await put(queue, "h", "holder", metadata={"org": "o"})
    await put(queue, "k", "other", metadata={"model": "m"})
    holder, other = await queue.claim(2)
    await put(queue, "a", "both", metadata={"org": "o", "model": "m"})
    await put(queue, "b", "org", metadata={"org": "o"})
    assert await claimed(queue) == []
    await faults.wrong_type(queue, "slots", "org", "o")
    assert {await holder.complete(), await other.extend()}
    assert await claimed(queue) == ["org"]


async def test_a_dirty_group_at_which_nobody_was_woken_is_named_and_repaired(make_queue: MakeQueue) -> None:
    """However full it is: its slots cannot be trusted, and who waits there would never ask for its repair."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    lease = await one(queue)
    assert await claimed(queue) == []
    await raw(queue, "HSET", "dirty", args=("tenant\x1fa", "dirty"))
    assert found(await queue.audit()) == [("MOVES", "tenant/a")]
    await queue.audit(fix=True)
    assert not (await queue.audit()).findings
    assert await raw(queue, "EXISTS", "dirty") == 0
    assert await lease.complete() == "done"
    assert await claimed(queue) == ["m2"]
