"""Extending: a lease is ours for the full visibility timeout from now, and an expired one lives as long as nobody took it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from fairqueue import LeaseLostError, Limit
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import held, one, put, raw
from tests.support.waiting import eventually


async def test_a_claim_is_ours_for_the_visibility_timeout(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(visibility_timeout=12)
    await put(queue, "a", "m")
    lease = await one(queue)
    assert lease.deadline == clock.now + timedelta(seconds=12)
    clock.advance(11.999)
    assert (await queue.reclaim()).reclaimed == []
    clock.advance(0.001)
    assert (await queue.reclaim()).reclaimed == [("a", "m")]


async def test_a_claim_may_name_its_own_timeout_and_its_extends_keep_it(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(visibility_timeout=12)
    await put(queue, "a", "m")
    lease = await one(queue, visibility_timeout=timedelta(minutes=2))
    assert lease.deadline == clock.now + timedelta(minutes=2)
    clock.advance(60)
    assert await lease.extend() == clock.now + timedelta(minutes=2)


async def test_extend_moves_the_deadline_to_now_and_the_full_timeout(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    lease = await one(queue)
    for _ in range(5):
        clock.advance(29)
        assert await lease.extend() == lease.deadline == clock.now + timedelta(seconds=30)
        assert (await queue.reclaim()).reclaimed == []
    info = await queue.get("a", "m")
    assert info is not None
    assert info.lease is not None
    assert info.lease.deadline == lease.deadline


async def test_an_expired_lease_that_nobody_took_back_is_revived(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    lease = await one(queue)
    clock.advance(3600)
    assert await lease.extend() == clock.now + timedelta(seconds=30)
    assert (await queue.reclaim()).reclaimed == []
    assert await held(queue, "tenant", "a") == 1
    assert await lease.complete() == "done"


async def test_a_lease_that_was_taken_back_is_not_revived(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    lease = await one(queue)
    clock.advance(30)
    await queue.reclaim()
    with pytest.raises(LeaseLostError):
        await lease.extend()
    assert lease.lost.is_set()
    assert await queue.extend_many([lease]) == ["lost"]


async def test_one_lost_lease_of_many_does_not_keep_the_others(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m0", "m1", "m2")
    leases = await queue.claim(3)
    clock.advance(29)
    await queue.extend_many([leases[0], leases[2]])
    clock.advance(1)
    await queue.reclaim()
    assert await queue.extend_many(leases) == ["extended", "lost", "extended"]
    assert [lease.lost.is_set() for lease in leases] == [False, True, False]


async def test_extend_writes_a_destroyed_record_and_deadline_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    lease = await one(queue)
    await faults.delete(queue, "lease", "a", "m")
    await faults.delete(queue, "deadline", "a", "m")
    assert await lease.extend() == clock.now + timedelta(seconds=30)
    info = await queue.get("a", "m")
    assert info is not None
    assert info.lease is not None
    assert info.lease.token == lease.token


async def test_extending_costs_nothing_that_grows_with_the_payload(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue("x" * 500_000, tenant="a", id="m")
    lease = await one(queue)
    await lease.extend()
    before = (await queue._engine.command("INFO", "stats"))["total_net_output_bytes"]
    await lease.extend()
    after = (await queue._engine.command("INFO", "stats"))["total_net_output_bytes"]
    assert after - before < 20_000  # the INFO replies themselves are most of it
    assert len(await raw(queue, "HGET", "leases", args=["a\x1fm"])) < 200


async def test_keep_alive_extends_while_the_body_runs(make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None, visibility_timeout=2)
    await put(queue, "a", "m")
    lease = await one(queue)
    first = lease.deadline
    async with lease.keep_alive():
        await eventually(
            lambda: lease.deadline > first + timedelta(seconds=0.8), "the lease to be extended twice"
        )
        assert (await queue.reclaim()).reclaimed == []
    assert await lease.complete() == "done"


async def test_keep_alive_ends_when_the_lease_is_lost(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(visibility_timeout=0.1)
    await put(queue, "a", "m")
    lease = await one(queue)
    clock.advance(0.1)
    await queue.reclaim()
    async with lease.keep_alive():
        await eventually(lease.lost.is_set, "the keeper to find the lease lost")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancellation_that_comes_as_the_body_ends_is_the_caller_s(make_queue: MakeQueue) -> None:
    """Taken for the end of the keeper, it would be lost: ``asyncio.timeout`` and task groups rely on it."""
    queue = await make_queue()
    await put(queue, "a", "m")
    lease, body = await one(queue), asyncio.Event()

    async def handler() -> None:
        async with lease.keep_alive():
            await body.wait()

    handling = asyncio.ensure_future(handler())
    await asyncio.sleep(0)
    body.set()
    await asyncio.sleep(0)  # the body has ended, its keeper has not
    handling.cancel()
    await asyncio.wait([handling])
    assert handling.cancelled()
