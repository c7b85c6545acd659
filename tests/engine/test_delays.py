"""Delays: never early by the server's clock, and never in the way of what is due."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from fairqueue import Limit, NewMessage
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, commands_of_a_claim, one, put, state


@pytest.mark.parametrize("delay", [10, 10.0, timedelta(seconds=10)])
async def test_never_before_its_delay_has_passed(
    make_queue: MakeQueue, clock: ManualClock, delay: timedelta | float
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", delay=delay)
    clock.advance(9.999)
    assert await claimed(queue) == []
    assert await promote(queue._engine) == 0
    clock.advance(0.001)
    assert await claimed(queue) == ["m"]


async def test_never_before_its_instant(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    at = clock.now + timedelta(seconds=1, microseconds=1)
    await put(queue, "a", "m", at=at)
    info = await queue.get("a", "m")
    assert info is not None
    assert info.due_at is not None
    assert info.due_at >= at
    clock.advance(1)
    assert await claimed(queue) == []
    clock.advance(0.001)
    assert await claimed(queue) == ["m"]


async def test_a_delay_counts_from_the_moment_the_server_accepts_it(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    message = NewMessage(1, tenant="a", id="m", delay=10)
    clock.advance(100)
    await queue.enqueue_many([message])
    clock.advance(9.999)
    assert await claimed(queue) == []
    clock.advance(0.001)
    assert await claimed(queue) == ["m"]


async def test_by_the_server_s_own_clock_never_early(make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None)
    started = time.monotonic()
    await put(queue, "a", "m", delay=0.15)
    lease = await one(queue, wait=10)
    assert time.monotonic() - started >= 0.15
    assert lease.message.id == "m"


async def test_a_client_whose_clock_is_an_hour_wrong_changes_nothing(make_queue: MakeQueue) -> None:
    """Deadlines and due times are the server's: what a client's host believes is never asked."""
    queue = await make_queue(clock=None)
    await put(queue, "a", "m")
    lease = await one(queue)
    assert abs(lease.deadline - datetime.now(UTC) - timedelta(seconds=30)) < timedelta(seconds=5)


async def test_those_due_go_in_their_old_order_whatever_their_due_times(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    for id_, delay in [("m0", 30), ("m1", 10), ("m2", 20)]:
        await put(queue, "a", id_, delay=delay)
    clock.advance(30)
    assert await claimed(queue) == ["m0", "m1", "m2"]


async def test_a_delay_longer_than_the_visibility_timeout_delivers_once(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(visibility_timeout=1)
    await put(queue, "a", "m", delay=5)
    for _ in range(4):
        clock.advance(1)
        await queue.reclaim()
        assert await claimed(queue) == []
    clock.advance(1)
    assert (await one(queue)).message.attempt == 1


async def test_more_due_than_one_script_promotes_are_all_claimed(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    ids = [
        f"m{n:03}" for n in range(450)
    ]  # of one due time: those of one script go by id, as time-ordered ids do
    await put(queue, "a", *ids, delay=5)
    clock.advance(5)
    got: list[str] = []
    while some := await claimed(queue):
        got += some
    assert got == ids


async def test_promotion_without_a_claim_moves_all_that_is_due(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", *(f"m{n}" for n in range(450)), delay=5)
    await put(queue, "a", "late", delay=6)
    clock.advance(5)
    assert await promote(queue._engine) == 450
    stats = await queue.stats()
    assert (stats.ready, stats.delayed) == (450, 1)


async def test_a_due_message_of_a_full_group_waits_ready(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1")
    await put(queue, "a", "m2", delay=5)
    lease = await one(queue)
    clock.advance(5)
    assert await claimed(queue) == []
    assert await state(queue, "a", "m2") == "ready"
    await lease.complete()
    assert await claimed(queue) == ["m2"]


async def test_waiting_for_what_is_delayed_costs_little(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", *(f"m{n}" for n in range(300)), delay=3600)
    await queue.claim()
    cost, leases = await commands_of_a_claim(queue)
    assert leases == []
    assert cost < 15


async def test_a_waiting_claim_is_woken_by_a_message_that_is_due_before_all_others(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(clock=None)
    await put(queue, "a", "much later", delay=3600)
    claim = asyncio.ensure_future(queue.claim(wait=20))
    await asyncio.sleep(0)
    await put(queue, "a", "soon", delay=0.2)
    (lease,) = await claim
    assert lease.message.id == "soon"
