"""Re-admission: a message is never kept out by its own leftover slot, wherever it stands in its lane."""

from __future__ import annotations

import pytest

from fairqueue import Limit
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, held, one, put


async def test_at_the_head_with_limit_1(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    await faults.leak_slot(queue, "tenant", "a", "m1")
    lease = await one(queue)
    assert lease.message.id == "m1"
    assert (await queue.limits.get("tenant", "a")).holders == [("a", "m1")]
    assert await claimed(queue) == []
    await lease.complete()
    assert await claimed(queue) == ["m2"]


async def test_at_the_head_with_limit_2_and_another_running(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await put(queue, "a", "m0", "m1", "m2")
    running = await one(queue)
    await faults.leak_slot(queue, "tenant", "a", "m1")
    assert await claimed(queue) == ["m1"]
    assert await held(queue, "tenant", "a") == 2
    await running.complete()
    assert await claimed(queue) == ["m2"]


@pytest.mark.parametrize("before", [1, 5, 40])
async def test_not_at_the_head_with_limit_1(make_queue: MakeQueue, before: int) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", *(f"m{n}" for n in range(before)), "mine", "behind")
    await faults.leak_slot(queue, "tenant", "a", "mine")
    lease = await one(queue)
    assert lease.message.id == "mine"
    await lease.complete()
    assert await claimed(queue) == ["m0"]


async def test_not_at_the_head_with_limit_2_and_another_running(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await put(queue, "a", "running", "m1", "mine", "m3")
    await one(queue)
    await faults.leak_slot(queue, "tenant", "a", "mine")
    assert await claimed(queue) == ["mine"]
    assert await held(queue, "tenant", "a") == 2


async def test_with_room_for_others_the_order_stays(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await put(queue, "a", "m0", "m1", "mine", "m3")
    await faults.leak_slot(queue, "tenant", "a", "mine")
    assert await claimed(queue) == ["m0", "m1", "mine"]
    assert await held(queue, "tenant", "a") == 3


@pytest.mark.leaves_findings
@pytest.mark.parametrize("message", ["m0", "m1"])
async def test_limit_0_still_stops_it(make_queue: MakeQueue, message: str) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=0)])
    await put(queue, "a", "m0", "m1")
    await faults.leak_slot(queue, "tenant", "a", message)
    assert await claimed(queue) == []


@pytest.mark.leaves_findings
async def test_others_that_hold_the_whole_limit_still_keep_it_out(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "running", "mine")
    await one(queue)
    await faults.leak_slot(queue, "tenant", "a", "mine")
    assert await claimed(queue) == []


@pytest.mark.leaves_findings
async def test_a_leftover_in_one_group_does_not_open_another(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=1, key="org")])
    await put(queue, "b", "other", metadata={"org": "x"})
    await one(queue)
    await put(queue, "a", "mine", metadata={"org": "x"})
    await faults.leak_slot(queue, "tenant", "a", "mine")
    assert await claimed(queue) == []


async def test_leftovers_in_every_group_of_the_message(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=1, key="org")])
    await put(queue, "a", "m0", "mine", metadata={"org": "x"})
    await faults.leak_slot(queue, "tenant", "a", "mine")
    await faults.leak_slot(queue, "org", "x", "mine", tenant="a")
    lease = await one(queue)
    assert lease.message.id == "mine"
    await lease.complete()
    assert await claimed(queue) == ["m0"]


async def test_a_leftover_of_another_tenant_with_the_same_id_is_not_its_own(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await put(queue, "a", "m", metadata={"org": "x"})
    await faults.leak_slot(queue, "org", "x", "m", tenant="b")
    assert await claimed(queue) == []
    await queue.reconcile()
    assert await claimed(queue) == ["m"]


async def test_when_parked_before_the_leftover_appears_a_new_arrival_lets_it_in(
    make_queue: MakeQueue,
) -> None:
    """The lane waits because of a ghost; then its own message is found to hold a slot, and nothing was freed."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    await faults.leak_slot(queue, "tenant", "a", "ghost")
    assert await claimed(queue) == []
    await queue.reconcile()
    assert await claimed(queue) == ["m1"]


async def test_a_message_that_comes_back_over_its_leftover_keeps_its_place(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    lease = await one(queue)
    clock.advance(30)
    await queue.reclaim()
    await faults.leak_slot(queue, "tenant", "a", "m1")
    again = await one(queue)
    assert (again.message.id, again.message.attempt) == ("m1", 2)
    assert again.token > lease.token
    await again.complete()
    assert await claimed(queue) == ["m2"]


async def test_more_leftovers_than_a_claim_looks_through_still_let_the_head_in(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=300)])
    mine = [f"m{n}" for n in range(300)]
    await put(queue, "a", *mine, "last")
    for id_ in mine:
        await faults.leak_slot(queue, "tenant", "a", id_)
    leases = await queue.claim(1000)
    assert [lease.message.id for lease in leases] == mine
    assert await held(queue, "tenant", "a") == 300
    await finish(queue, leases)
    assert await claimed(queue) == ["last"]


@pytest.mark.leaves_findings
async def test_two_leftovers_at_limit_1_wait_for_reconcile(make_queue: MakeQueue) -> None:
    """Held less its own is 1 for both: neither may come in until the other's leak is healed."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    for id_ in ("m1", "m2"):
        await faults.leak_slot(queue, "tenant", "a", id_)
    assert await claimed(queue) == []
    assert len((await queue.reconcile()).freed) == 2
    assert await claimed(queue) == ["m1"]
