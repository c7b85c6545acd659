"""Waiting at a full group, and the baton: a freed slot always reaches somebody who can take it."""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import FairQueue, Lease, Limit
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, held, ids, names, one, put, waiting

ORG = Limit("org", default=1, key="org")
IN_X = {"metadata": {"org": "x"}}


async def full_org(make_queue: MakeQueue, *limits: Limit) -> tuple[FairQueue[Any], Lease[Any]]:
    """org x is full, held by tenant ``holder``."""
    queue = await make_queue(limits=[ORG, *limits])
    await put(queue, "holder", "h1", **IN_X)
    return queue, await one(queue)


async def test_a_freed_slot_wakes_exactly_one_of_those_who_wait(make_queue: MakeQueue) -> None:
    queue, lease = await full_org(make_queue)
    for tenant in ("a", "b", "c"):
        await put(queue, tenant, "m", **IN_X)
    assert await claimed(queue) == []
    assert await waiting(queue, "org", "x") == 3
    await lease.complete()
    assert len(await claimed(queue)) == 1
    assert await waiting(queue, "org", "x") == 2


async def test_many_freed_slots_wake_as_many(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=5, key="org")])
    await put(queue, "holder", *(f"h{n}" for n in range(5)), **IN_X)
    leases = await queue.claim(5)
    for n in range(8):
        await put(queue, f"t{n}", "m", **IN_X)
    assert await claimed(queue) == []
    await finish(queue, leases[:3])
    assert len(await claimed(queue)) == 3
    assert await held(queue, "org", "x") == 5


async def test_a_woken_lane_with_more_work_waits_again_for_the_next_slot(make_queue: MakeQueue) -> None:
    queue, lease = await full_org(make_queue)
    await put(queue, "a", "a1", "a2", "a3", **IN_X)
    assert await claimed(queue) == []
    for expected in ("a1", "a2", "a3"):
        await lease.complete()
        lease = await one(queue)
        assert lease.message.id == expected
        assert await claimed(queue) == []


async def test_a_newcomer_does_not_take_the_slot_of_one_that_was_woken(make_queue: MakeQueue) -> None:
    queue, lease = await full_org(make_queue)
    await put(queue, "z", "waited", **IN_X)
    assert await claimed(queue) == []
    await lease.complete()
    await put(queue, "a", "new", **IN_X)
    assert await claimed(queue) == ["waited"]


async def test_a_woken_lane_whose_other_group_is_full_hands_the_slot_on(make_queue: MakeQueue) -> None:
    queue, lease = await full_org(make_queue, Limit("tenant", default=1))
    await put(queue, "a", "blocked", **IN_X)
    await put(queue, "b", "next", **IN_X)
    assert await claimed(queue) == []
    await put(queue, "a", "elsewhere", metadata={"org": "y"})
    elsewhere = await one(queue)
    assert elsewhere.message.id == "elsewhere"
    await lease.complete()  # wakes a, whose tenant limit is full
    assert await claimed(queue) == ["next"]
    await elsewhere.complete()  # a is let go by its own limit, and waits at org x again
    assert await claimed(queue) == []
    assert await waiting(queue, "org", "x") == 1


async def test_a_lane_that_wakes_at_one_group_and_waits_at_another_leaves_no_promise_behind(
    make_queue: MakeQueue,
) -> None:
    queue, lease = await full_org(make_queue, Limit("tenant", default=1))
    await put(queue, "a", "blocked", **IN_X)
    assert await claimed(queue) == []
    await put(queue, "a", "elsewhere", metadata={"org": "y"})
    await one(queue)
    await lease.complete()
    assert await claimed(queue) == []
    await put(queue, "late", "m", **IN_X)
    assert await claimed(queue) == ["m"]


async def test_a_woken_lane_that_a_late_complete_empties_hands_the_slot_on(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[ORG])
    await put(queue, "a", "a1", **IN_X)
    late = await one(queue)
    clock.advance(30)
    await queue.reclaim()
    await queue.limits.set("org", "x", 0)
    await put(queue, "b", "b1", **IN_X)
    assert await claimed(queue) == []
    await queue.limits.set("org", "x", 1)  # wakes a, the first to wait
    assert await late.complete() == "done"
    assert await claimed(queue) == ["b1"]


async def test_a_parked_lane_that_a_late_complete_empties_waits_no_more(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[ORG])
    await put(queue, "a", "a1", **IN_X)
    late = await one(queue)
    clock.advance(30)
    await queue.reclaim()
    await queue.limits.set("org", "x", 0)
    await put(queue, "b", "b1", **IN_X)
    assert await claimed(queue) == []
    assert await late.complete() == "done"
    assert await waiting(queue, "org", "x") == 1
    await queue.limits.reset("org", "x")
    assert await claimed(queue) == ["b1"]


async def test_a_woken_lane_whose_key_is_broken_hands_the_slot_on(make_queue: MakeQueue) -> None:
    queue, lease = await full_org(make_queue)
    await put(queue, "a", "a1", **IN_X)
    await put(queue, "b", "b1", **IN_X)
    assert await claimed(queue) == []
    await lease.complete()  # wakes a
    await faults.wrong_type(queue, "lane", "a", "default")
    assert await claimed(queue) == ["b1"]
    await queue.audit(fix=True)


async def test_a_parked_lane_whose_key_is_broken_is_passed_by_the_baton(make_queue: MakeQueue) -> None:
    queue, lease = await full_org(make_queue)
    await put(queue, "a", "a1", **IN_X)
    await put(queue, "b", "b1", **IN_X)
    assert await claimed(queue) == []
    await faults.wrong_type(queue, "lane", "a", "default")
    await lease.complete()
    assert await claimed(queue) == ["b1"]
    await queue.audit(fix=True)


async def test_a_woken_lane_whose_messages_vanished_hands_the_slot_on(make_queue: MakeQueue) -> None:
    queue, lease = await full_org(make_queue)
    await put(queue, "a", "a1", **IN_X)
    await put(queue, "b", "b1", **IN_X)
    assert await claimed(queue) == []
    await lease.complete()  # wakes a
    await faults.delete(queue, "header", "a", "a1")
    assert await claimed(queue) == ["b1"]
    await queue.audit(fix=True)


async def test_several_woken_lanes_that_cannot_go_hand_on_all_their_slots(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=3, key="org"), Limit("tenant", default=1)])
    await put(queue, "holder", "h0", **IN_X)
    await queue.limits.set("tenant", "holder", 3)
    await put(queue, "holder", "h1", "h2", **IN_X)
    leases = await queue.claim(3)
    for tenant in ("a", "b", "c", "d", "e", "f"):
        await put(queue, tenant, f"{tenant}1", **IN_X)
    assert await claimed(queue) == []
    for tenant in ("a", "b", "c"):
        await put(queue, tenant, f"{tenant}2", metadata={"org": "y"})
    assert len(await claimed(queue)) == 3  # a, b and c are at their own limits now
    await finish(queue, leases)
    assert sorted(await claimed(queue)) == ["d1", "e1", "f1"]


async def test_two_pools_share_a_group_and_each_gets_its_turn(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "d1", "d2")
    await put(queue, "a", "f1", "f2", pool="fast")
    lease = await one(queue)
    for expected in ("f1", "d2", "f2"):
        assert await claimed(queue) == await claimed(queue, pools=("fast",)) == []
        await lease.complete()
        (lease,) = await queue.claim(9, pools=("fast",)) or await queue.claim(9)
        assert lease.message.id == expected or {lease.message.id, expected} <= {"f1", "f2", "d2"}


async def test_a_pool_nobody_claims_from_does_not_hold_a_shared_slot_hostage(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "forgotten", pool="nobody")
    await put(queue, "a", "d1", "d2", "d3")
    lease = await one(queue)
    assert await claimed(queue, pools=("nobody",)) == []  # once somebody claimed there, and parked it
    for expected in ("d2", "d3"):
        await lease.complete()
        lease = await one(queue)
        assert lease.message.id == expected
    await lease.complete()
    assert await claimed(queue, pools=("nobody",)) == ["forgotten"]


async def test_a_pool_that_was_woken_in_vain_waits_again(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "d1", "d2")
    await put(queue, "a", "f1", pool="fast")
    lease = await one(queue)
    assert await claimed(queue, pools=("fast",)) == []
    assert await claimed(queue) == []
    await lease.complete()
    second = await one(queue)
    assert await claimed(queue, pools=("fast",)) == []
    await second.complete()
    assert await claimed(queue, pools=("fast",)) == ["f1"]


async def test_one_claim_over_two_pools_takes_a_shared_slot_once(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "d1")
    await put(queue, "a", "f1", pool="fast")
    assert names(await queue.claim(10, pools=("fast", "default"))) == ["a/f1"]
    assert await held(queue, "tenant", "a") == 1


@pytest.mark.parametrize("lanes", [3, 450])
async def test_more_blocked_lanes_than_one_script_parks_are_all_parked_by_one_claim(
    make_queue: MakeQueue, lanes: int
) -> None:
    queue, lease = await full_org(make_queue)
    for n in range(lanes):
        await put(queue, f"t{n}", "m", **IN_X)
    await put(queue, "zz", "free")
    assert await claimed(queue) == ["free"]
    assert await waiting(queue, "org", "x") == lanes
    await lease.complete()
    assert len(await claimed(queue)) == 1


async def test_a_lane_blocked_by_two_groups_goes_when_both_have_room(make_queue: MakeQueue) -> None:
    queue, lease = await full_org(make_queue, Limit("tenant", default=1))
    await put(queue, "a", "other", metadata={"org": "y"})
    other = await one(queue)
    await put(queue, "a", "both", **IN_X)
    assert await claimed(queue) == []
    await lease.complete()
    assert await claimed(queue) == []
    await other.complete()
    assert await claimed(queue) == ["both"]


async def test_a_slot_that_reconcile_frees_wakes_who_waits(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[ORG])
    await faults.leak_slot(queue, "org", "x", "ghost")
    await put(queue, "a", "m", **IN_X)
    assert await claimed(queue) == []
    await queue.reconcile()
    assert await claimed(queue) == ["m"]


async def test_a_message_that_joins_a_waiting_lane_waits_with_it(make_queue: MakeQueue) -> None:
    queue, lease = await full_org(make_queue)
    await put(queue, "a", "a1", **IN_X)
    assert await claimed(queue) == []
    await put(queue, "a", "a2", **IN_X)
    assert await claimed(queue) == []
    await lease.complete()
    lease = await one(queue)
    assert lease.message.id == "a1"
    await lease.complete()
    assert await claimed(queue) == ["a2"]


async def test_several_slots_freed_at_once_go_to_one_lane_when_it_waits_alone(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=4)])
    await put(queue, "a", *(f"m{n}" for n in range(12)))
    for expected in (["m0", "m1", "m2", "m3"], ["m4", "m5", "m6", "m7"], ["m8", "m9", "m10", "m11"]):
        leases = await queue.claim(10)
        assert ids(leases) == expected
        await finish(queue, leases)


async def test_what_a_woken_lane_cannot_take_of_several_slots_goes_to_others(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=4, key="org"), Limit("tenant")])
    await queue.limits.set("tenant", "a", 1)
    await put(queue, "holder", *(f"h{n}" for n in range(4)), **IN_X)
    leases = await queue.claim(4)
    for tenant in ("a", "b"):
        await put(queue, tenant, *(f"{tenant}{n}" for n in range(5)), **IN_X)
    assert await claimed(queue) == []
    await finish(queue, leases)
    got = await claimed(queue) + await claimed(queue)
    assert sorted(got) == ["a0", "b0", "b1", "b2"]
    assert await held(queue, "org", "x") == 4


async def test_a_late_complete_of_one_of_several_promised_hands_that_slot_on(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("org", default=2, key="org")])
    await put(queue, "a", "a0", "a1", **IN_X)
    late, _ = await queue.claim(2)
    clock.advance(30)
    await queue.reclaim()
    await queue.limits.set("org", "x", 0)
    assert await claimed(queue) == []
    await queue.limits.set("org", "x", 2)  # both of a's are promised a slot
    await put(queue, "b", "b0", **IN_X)
    assert await late.complete() == "done"
    got = await claimed(queue) + await claimed(queue)
    assert sorted(got) == ["a1", "b0"]
