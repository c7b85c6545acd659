"""Rule 6 of slots: what a cut script left is cleaned up by whoever meets it, and done only once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fairqueue import Lease, RetryPolicy
from fairqueue._engine.calls import SettleRow
from fairqueue._engine.keys import join, key
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import (
    LIMITS,
    RETRY,
    Queue,
    claimed,
    four,
    held,
    leases_of,
    put_slot,
    state,
    told,
)


@contextlib.asynccontextmanager
async def cut_after_the_move(queue: Queue, clock: ManualClock) -> AsyncIterator[None]:
    """What the body does to message m0 is left as by a script that was cut before it freed the slots."""
    root, mid = queue._engine.calls.root, join("a", "m0")
    record = await queue._engine.command("HGET", key(root, "leases"), mid)
    yield
    await queue._engine.command("HSET", key(root, "leases"), mid, record)
    await queue._engine.command("ZADD", key(root, "deadlines"), clock.now_ms(), mid)
    await put_slot(queue, "org", "o", ("a", "m0"), record.decode().split("\x1f")[0])


@guard(
    "slots 6",
    "a record whose message has left flight is only cleaned up, with the slot it still describes",
    without(
        "asking whether the message is in flight",
        "reclaim.lua",
        "local in_flight = h and h.state == 'f'",
        "local in_flight = h",
    ),
    without(
        "freeing the slot",
        "reclaim.lua",
        "  if lease then\n    free_slots",
        "  if lease and in_flight then\n    free_slots",
    ),
)
async def test_a_stale_record_is_only_cleaned_up(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS, retry=RetryPolicy(max_crashes=1))
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    async with cut_after_the_move(queue, clock):
        await lease.release()
    assert (await queue.reclaim()).dead == []
    assert await held(queue, "org", "o") == 0
    assert await claimed(queue) == ["m0"]


async def settled_again(queue: Queue, lease: Lease[Any], action: str) -> str:
    """What a client is told that repeats a settle which was cut."""
    engine = queue._engine
    row = SettleRow("a", "m0", lease.token, action)
    (outcome,) = await engine.run(engine.calls.settle(engine.settle_streams.take(), [row], 60_000))
    return outcome


@guard(
    "slots 6",
    "a settle repeated after it was cut is not done twice: only what the cut left is cleaned up",
    without(
        "asking whether the message is in flight",
        "settle.lua",
        "if not h or h.state == 'f' then return leave_flight",
        "if true then return leave_flight",
    ),
    without("freeing the slot", "settle.lua", "  free_slots(row.mid, lease.lane)\n", ""),
    without(
        "dropping the record",
        "settle.lua",
        "  free_slots(row.mid, lease.lane)\n  left_flight(row.mid)\n",
        "  free_slots(row.mid, lease.lane)\n",
    ),
)
async def test_a_settle_that_was_cut_is_not_done_twice(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS, retry=RETRY)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    async with cut_after_the_move(queue, clock):
        await lease.fail("oops")
    assert await settled_again(queue, lease, "fail") == "retried"
    assert (await queue.stats()).totals.failed == 1
    assert await held(queue, "org", "o") == 0
    assert await leases_of(queue) == {}


@guard(
    "slots 6",
    "a completion after a reclaim that was cut ends the message",
    without(
        "ending it",
        "settle.lua",
        "if row.action ~= 'complete' then return MOVED",
        "if true then return MOVED",
    ),
)
async def test_a_completion_after_a_reclaim_that_was_cut(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    clock.advance(31)
    async with cut_after_the_move(queue, clock):
        await queue.reclaim()
    assert await told(lease.complete()) == "done"
    assert await state(queue, "a", "m0") == "gone"
    assert await held(queue, "org", "o") == 0


@guard(
    "slots 6",
    "a message that a cut settle had put in a second place is in one place again once its lease has expired",
    without(
        "leaving the other places", "reclaim.lua", "  leave_other_places(mid)\n  if h.marked", "  if h.marked"
    ),
)
async def test_a_second_place_is_left(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:2])
    assert sorted(await claimed(queue, 2)) == ["m0", "m1"]
    root, due = queue._engine.calls.root, clock.now_ms() + 90_000
    await queue._engine.command("SADD", key(root, "dead_tenants"), "a")
    await queue._engine.command("ZADD", key(root, "dead", "a"), 1, "m0")
    await queue._engine.command("ZADD", key(root, "delayed"), due, join("b", "m1"))
    await queue._engine.command("ZADD", key(root, "delayed_names"), 0, join("b", "m1"))
    clock.advance(31)
    await queue.reclaim()
    assert await queue.dead_letters.count("a") == 0
    assert await queue._engine.command("ZCARD", key(root, "delayed")) == 0
    assert await queue._engine.command("ZCARD", key(root, "delayed_names")) == 0
