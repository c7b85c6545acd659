"""A Lease object remembers its own end; a late complete ends a message that came back, as long as nobody touched it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, LeaseLostError, Limit, RetryPolicy
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.test_settle import METHODS
from tests.engine.tools import claimed, held, one, put, state, twin_of

SETTLES = [name for name in METHODS if name != "extend"]
OUTCOMES = {"complete": "done", "fail": "retried", "release": "released", "dead_letter": "dead"}


@pytest.mark.parametrize("method", SETTLES)
async def test_asked_the_same_again_it_answers_the_first_outcome(make_queue: MakeQueue, method: str) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(60))
    await put(queue, "a", "m")
    lease = await one(queue)
    for _ in range(3):
        assert await getattr(lease, method)(*METHODS[method]) == OUTCOMES[method]
    stats = await queue.stats()
    counted = {
        "complete": "completed",
        "fail": "failed",
        "release": "released",
        "dead_letter": "dead_lettered",
    }
    assert stats.totals[counted[method]] == 1


@pytest.mark.parametrize("first", SETTLES)
@pytest.mark.parametrize("second", METHODS)
async def test_asked_for_something_else_it_is_lost_and_changes_nothing(
    make_queue: MakeQueue, first: str, second: str
) -> None:
    if first == second:
        return
    queue = await make_queue(retry=RetryPolicy.fixed(60))
    await put(queue, "a", "m")
    lease = await one(queue)
    await getattr(lease, first)(*METHODS[first])
    before = await queue.get("a", "m")
    with pytest.raises(LeaseLostError):
        await getattr(lease, second)(*METHODS[second])
    assert await queue.get("a", "m") == before


async def test_asked_twice_at_once_it_is_settled_once(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    lease = await one(queue)
    assert await asyncio.gather(*(lease.complete() for _ in range(5))) == ["done"] * 5
    assert (await queue.stats()).totals["completed"] == 1


async def test_a_lost_lease_stays_lost(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    stale = await one(queue)
    clock.advance(30)
    await queue.reclaim()
    await one(queue)
    for _ in range(2):
        with pytest.raises(LeaseLostError, match="'m' of tenant 'a'"):
            await stale.complete()


async def test_one_lease_twice_in_one_call_is_one_settle(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    lease = await one(queue)
    assert await queue.complete_many([lease, lease]) == ["done", "done"]
    assert (await queue.stats()).totals["completed"] == 1


# ---------------------------------------------------------------- the one exception to fencing


async def reclaimed(
    make_queue: MakeQueue, clock: ManualClock, **options: Any
) -> tuple[FairQueue[Any], Lease[Any]]:
    """m of tenant a was delivered, its lease expired, and it was taken back."""
    queue = await make_queue(
        **{"limits": [Limit("tenant", default=1)], "retry": RetryPolicy.fixed(60)} | options
    )
    await put(queue, "a", "m")
    lease = await one(queue)
    clock.advance(30)
    await queue.reclaim()
    return queue, lease


async def test_a_late_complete_ends_a_message_that_came_back(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, late = await reclaimed(make_queue, clock)
    assert await state(queue, "a", "m") == "ready"
    assert await late.complete() == "done"
    assert await queue.get("a", "m") is None
    assert await claimed(queue) == []
    assert (await queue.stats()).totals["completed"] == 1


async def test_a_late_complete_ends_a_message_that_died_because_its_worker_was_lost(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, late = await reclaimed(make_queue, clock, retry=RetryPolicy(max_crashes=1))
    assert await state(queue, "a", "m") == "dead"
    assert await late.complete() == "done"
    assert await queue.get("a", "m") is None
    assert await queue.dead_letters.count("a") == 0


async def test_a_late_complete_ends_a_message_that_came_back_and_waits_for_its_lane(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    late = await one(queue)
    await faults.wrong_type(queue, "lane", "a", "default")
    clock.advance(30)
    await queue.reclaim()
    assert await state(queue, "a", "m") == "delayed"
    assert await late.complete() == "done"
    assert await queue.get("a", "m") is None
    await faults.delete(queue, "header", "a", "m")
    await queue._engine.command(
        "DEL", f"{queue._engine.calls.root}lane:a\x1fdefault\x1fdefault\x1ftenant\x1fa"
    )


async def test_a_late_complete_of_an_expired_lease_nobody_took_back_is_an_ordinary_one(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    lease = await one(queue)
    clock.advance(3600)
    assert await lease.complete() == "done"
    assert await held(queue, "tenant", "a") == 0
    assert (await queue.reclaim()).reclaimed == []


@pytest.mark.parametrize("method", [name for name in METHODS if name != "complete"])
async def test_after_a_reclaim_nothing_but_complete_is_accepted(
    make_queue: MakeQueue, clock: ManualClock, method: str
) -> None:
    queue, late = await reclaimed(make_queue, clock)
    before = await queue.get("a", "m")
    with pytest.raises(LeaseLostError):
        await getattr(late, method)(*METHODS[method])
    assert await queue.get("a", "m") == before


async def refused(queue: FairQueue[Any], late: Lease[Any]) -> None:
    """A late complete is lost and changes nothing of the message."""
    before = await queue.get("a", "m")
    with pytest.raises(LeaseLostError):
        await late.complete()
    assert await queue.get("a", "m") == before


async def test_another_delivery_ends_the_right_to_complete_late(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, late = await reclaimed(make_queue, clock)
    other = await one(queue)
    await refused(queue, late)
    assert await other.complete() == "done"


@pytest.mark.parametrize("method", ["fail", "release", "dead_letter"])
async def test_another_delivery_that_ended_ends_that_right_too(
    make_queue: MakeQueue, clock: ManualClock, method: str
) -> None:
    queue, late = await reclaimed(make_queue, clock)
    await getattr(await one(queue), method)(*METHODS[method])
    await refused(queue, late)


async def test_another_delivery_that_was_reclaimed_leaves_that_right_to_its_own_lease(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, late = await reclaimed(make_queue, clock)
    later = await one(queue)
    clock.advance(30)
    await queue.reclaim()
    await refused(queue, late)
    assert await later.complete() == "done"


async def test_a_redrive_ends_the_right_to_complete_late(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, late = await reclaimed(make_queue, clock, retry=RetryPolicy(max_crashes=1))
    await queue.dead_letters.redrive("a", "m")
    await refused(queue, late)
    assert await claimed(queue) == ["m"]


async def test_a_purge_ends_the_right_to_complete_late(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, late = await reclaimed(make_queue, clock, retry=RetryPolicy(max_crashes=1))
    await queue.dead_letters.purge("a", "m")
    await refused(queue, late)


async def test_a_new_enqueue_of_the_id_ends_the_right_to_complete_late(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, late = await reclaimed(make_queue, clock, retry=RetryPolicy(max_crashes=1))
    await queue.dead_letters.purge("a", "m")
    await queue.enqueue("new", tenant="a", id="m")
    await refused(queue, late)
    assert (await one(queue)).message.payload == "new"


@pytest.mark.parametrize("method", ["fail", "release", "dead_letter"])
async def test_its_own_settle_ends_the_right_to_complete_late(
    make_queue: MakeQueue, clock: ManualClock, method: str
) -> None:
    """Another object with the same token, as after a restart from notes."""
    queue = await make_queue(limits=[Limit("tenant", default=1)], retry=RetryPolicy.fixed(60))
    await put(queue, "a", "m")
    lease = await one(queue)
    twin = twin_of(lease)
    await getattr(lease, method)(*METHODS[method])
    await refused(queue, twin)


async def test_a_late_complete_frees_no_slot_of_another(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, late = await reclaimed(make_queue, clock)
    await put(queue, "a", "n", priority=1)
    running = await one(queue)
    assert running.message.id == "n"
    assert await late.complete() == "done"
    assert (await queue.limits.get("tenant", "a")).holders == [("a", "n")]
    await running.complete()


async def test_a_late_complete_twice_answers_the_same(make_queue: MakeQueue, clock: ManualClock) -> None:
    _, late = await reclaimed(make_queue, clock)
    assert [await late.complete(), await late.complete()] == ["done", "done"]
