"""Reclaim: an expired lease goes back at once, its slots freed in the same step, and nothing else is touched."""

from __future__ import annotations

import asyncio

from fairqueue import Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, one, put, raw, state


async def test_nothing_expired_nothing_reclaimed(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    assert (await queue.reclaim()).reclaimed == []
    await put(queue, "a", "m1", "m2")
    await one(queue)
    clock.advance(29.999)
    report = await queue.reclaim()
    assert (report.reclaimed, report.dead) == ([], [])
    assert await state(queue, "a", "m1") == "in_flight"


async def test_a_fresh_process_frees_the_slots_and_drains(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Reported fault A1, with two groups."""
    queue = await make_queue(limits=[Limit("tenant", default=2), Limit("org", default=2, key="org")])
    await put(queue, "a", *(f"m{n}" for n in range(6)), metadata={"org": "x"})
    await queue.claim(2)
    clock.advance(30)
    fresh = await make_queue()
    assert sorted((await fresh.reclaim()).reclaimed) == [("a", "m0"), ("a", "m1")]
    assert (await held(fresh, "tenant", "a"), await held(fresh, "org", "x")) == (0, 0)
    stats = await fresh.stats()
    assert (stats.ready, stats.in_flight) == (6, 0)
    assert len(await drain(fresh, batch=2)) == 6


async def test_it_is_ready_at_once_in_its_old_place(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(3600))
    await put(queue, "a", "m1", "m2")
    await one(queue)
    clock.advance(30)
    await queue.reclaim()
    assert await claimed(queue) == ["m1", "m2"]


async def test_only_the_expired_are_taken_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "old", "kept", "young")
    _, kept = await queue.claim(2)
    clock.advance(20)
    await kept.extend()
    await one(queue)
    clock.advance(10)
    assert (await queue.reclaim()).reclaimed == [("a", "old")]


async def test_more_than_one_script_handles_are_all_taken_back(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant")])
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 5}") for n in range(350)])
    await queue.claim(350)
    clock.advance(30)
    assert len((await queue.reclaim()).reclaimed) == 350
    assert await held(queue, "tenant", "t0") == 0
    assert len(await queue.claim(1000)) == 350


async def test_two_reclaims_at_once_take_each_back_once(make_queue: MakeQueue, clock: ManualClock) -> None:
    first, second = await make_queue(), await make_queue()
    await put(first, "a", *(f"m{n}" for n in range(150)))
    await first.claim(150)
    clock.advance(30)
    reports = await asyncio.gather(first.reclaim(), second.reclaim())
    taken = [mid for report in reports for mid in report.reclaimed]
    assert len(taken) == len(set(taken)) == 150
    assert (await first.stats()).totals["reclaimed"] == 150


async def test_between_listing_and_putting_back_nothing_can_change(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Reported fault D3 cannot happen: each is one script. What was completed, extended or claimed anew is not taken back."""
    queue = await make_queue(limits=[Limit("tenant", default=9)])
    await put(queue, "a", "done", "kept", "again")
    done, kept, _ = await queue.claim(3)
    clock.advance(30)
    await done.complete()
    await kept.extend()
    assert (await queue.reclaim()).reclaimed == [("a", "again")]
    again = await one(queue)
    assert (await queue.reclaim()).reclaimed == []
    assert await queue.complete_many([kept, again]) == ["done", "done"]
    assert await held(queue, "tenant", "a") == 0


async def test_a_deadline_without_a_record_is_requeued_when_the_header_says_in_flight(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    await one(queue)
    await faults.delete(queue, "lease", "a", "m")
    clock.advance(30)
    assert (await queue.reclaim()).reclaimed == [("a", "m")]
    assert await held(queue, "tenant", "a") == 0
    lease = await one(queue)
    assert (lease.message.attempt, lease.message.crashes) == (2, 1)


async def test_a_deadline_without_record_and_header_is_dropped(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await raw(queue, "ZADD", "deadlines", args=[1, "a\x1fgone"])
    report = await queue.reclaim()
    assert (report.reclaimed, report.dead) == ([], [])
    assert await raw(queue, "ZCARD", "deadlines") == 0


async def test_a_record_whose_header_is_gone_is_delivered_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    await one(queue)
    await faults.delete(queue, "header", "a", "m")
    clock.advance(30)
    assert (await queue.reclaim()).reclaimed == [("a", "m")]
    lease = await one(queue)
    assert (lease.message.payload, lease.message.attempt) == ("m", 2)


async def test_a_record_whose_message_left_flight_is_only_cleaned_up(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """As a script that was cut after it had moved the message would leave it."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    await one(queue)
    record = await raw(queue, "HGET", "leases", args=["a\x1fm"])
    slot = await raw(queue, "HGET", "slots", "tenant\x1fa", args=["a\x1fm"])
    clock.advance(30)
    await queue.reclaim()
    await raw(queue, "HSET", "leases", args=["a\x1fm", record])
    await raw(queue, "ZADD", "deadlines", args=[1, "a\x1fm"])
    await raw(queue, "HSET", "slots", "tenant\x1fa", args=["a\x1fm", slot])
    assert (await queue.reclaim()).reclaimed == []
    assert await held(queue, "tenant", "a") == 0
    assert await claimed(queue) == ["m"]


async def test_an_unreadable_header_in_flight_goes_to_the_dead_letters_and_frees_its_slot(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await put(queue, "a", "m1", "m2")
    await queue.claim(2)
    await faults.overwrite(queue, "header", "a", "m1", b"not a header")
    clock.advance(30)
    report = await queue.reclaim()
    assert (report.reclaimed, report.dead) == ([("a", "m2")], [("a", "m1")])
    assert await held(queue, "tenant", "a") == 0
    (letter,), _ = await queue.dead_letters.list("a")
    assert (letter.message.id, letter.reason, letter.raw) == ("m1", "unreadable", b'"m1"')


async def test_a_last_crash_that_cannot_be_listed_is_no_death_yet(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=RetryPolicy(max_crashes=1))
    await put(queue, "a", "m")
    await queue.claim()
    await faults.wrong_type(queue, "dead", "a")
    clock.advance(31)
    report = await queue.reclaim()
    assert (report.reclaimed, report.dead) == ([("a", "m")], [])
    assert await state(queue, "a", "m") == "delayed"
    await raw(queue, "DEL", "dead", "a")
    clock.advance(10)
    assert await claimed(queue) == ["m"]
