"""The life of a message, one transition at a time."""

from __future__ import annotations

from fairqueue import Limit
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue


async def test_claimed_and_completed_is_gone(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue({"n": 1}, tenant="a", id="m")
    (lease,) = await queue.claim()
    assert lease.message.payload == {"n": 1}
    assert await lease.complete() == "done"
    assert await queue.get("a", "m") is None


async def test_an_expired_lease_comes_back_in_its_place_with_its_slot_freed(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    for n in range(6):
        await queue.enqueue(n, tenant="a", id=f"m{n}")
    await queue.claim(2)
    clock.advance(31)
    fresh = await make_queue()
    report = await fresh.reclaim()
    assert sorted(report.reclaimed) == [("a", "m0"), ("a", "m1")]
    assert (await fresh.limits.get("tenant", "a")).held == 0
    assert [message.payload for message in await drain(fresh)] == [0, 1, 2, 3, 4, 5]
