"""Guarantee 6: within a lane and priority, first claims go in enqueue order; who comes back keeps its place."""

from __future__ import annotations

from typing import Any

from fairqueue import Limit, NewMessage, RetryPolicy
from fairqueue._engine.keys import key
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed

PLACES = "includes/places.lua"
OWN_PLACE = without(
    "its own place: it goes to the end of its lane",
    PLACES,
    "try('ZADD', k.lane(h.lane), lane_score(h), mid)",
    "try('ZADD', k.lane(h.lane), 100 * SEQS + call('HINCRBY', k.counters, 'seq', 1), mid)",
)
REVERSED = ["m3", "m2", "m1", "m0"]  # not the order of the ids


async def send(queue: Queue, *ids: str, **options: Any) -> None:
    await queue.enqueue_many([NewMessage(id_, tenant="a", id=id_, **options) for id_ in ids])


@guard(
    "guarantee 6",
    "messages of one batch, in one millisecond, are claimed in its order",
    without("the numbers within the batch", "enqueue.lua", "row.seq = seq + i", "row.seq = seq + 1"),
)
async def test_a_batch_keeps_its_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, *REVERSED)
    assert await claimed(queue, 2) + await claimed(queue, 2) == REVERSED


@guard(
    "guarantee 6",
    "messages of several calls are claimed in the order of the calls",
    without(
        "the numbers of acceptance",
        "enqueue.lua",
        "numbers('seq', #fresh) - #fresh",
        "call('HSET', k.counters, 'seq', #fresh) * 0",
    ),
)
async def test_several_calls_keep_their_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for id_ in REVERSED:
        await send(queue, id_)
    assert await claimed(queue, 4) == REVERSED


@guard(
    "guarantee 6",
    "a counter that was lost gives out no number that is in use: who comes then is behind who waits",
    without(
        "that numbers begin above 1",
        "includes/counters.lua",
        "if last > count and last",
        "if last >= count and last",
    ),
    without(
        "the first numbers",
        "configure.lua",
        "local begin = call('EXISTS', k.head) == 1 and int(now) or '1'",
        "local begin = '1'",
    ),
)
async def test_lost_counters_keep_the_order(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Alone, and together with the settings, which the next client declares anew."""
    queue = await make_queue()
    for lost in (("counters",), ("counters", "settings")):
        waits, new = [f"{len(lost)}w{n}" for n in "cba"], [f"{len(lost)}n{n}" for n in "cba"]
        await send(queue, *waits)
        await queue._engine.command("DEL", *(key(queue._engine.calls.root, kind) for kind in lost))
        await send(queue, *new)
        assert await claimed(queue, 6) == waits + new
        clock.advance(1)
    assert not (await queue.audit()).findings


@guard(
    "guarantee 6",
    "a higher priority goes first, equal ones in order",
    without("the priority", "includes/header.lua", "(100 - h.priority) * SEQS + h.seq", "h.seq"),
)
async def test_priorities(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, "low1", "low2", priority=-5)
    await send(queue, "high1", "high2", priority=5)
    await send(queue, "plain")
    assert await claimed(queue, 5) == ["high1", "high2", "plain", "low1", "low2"]


@guard("guarantee 6", "a released message keeps its place", OWN_PLACE)
async def test_a_released_message_keeps_its_place(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, *REVERSED)
    await queue.release_many(await queue.claim(2))
    assert await claimed(queue, 4) == REVERSED


@guard("guarantee 6", "a reclaimed message keeps its place", OWN_PLACE)
async def test_a_reclaimed_message_keeps_its_place(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await send(queue, *REVERSED)
    await queue.claim(2)
    clock.advance(31)
    await queue.reclaim()
    assert await claimed(queue, 4) == REVERSED


@guard("guarantee 6", "a retried message takes the place of its number when it is due", OWN_PLACE)
async def test_a_retried_message_takes_its_place_when_due(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(5))
    await send(queue, *REVERSED)
    await queue.fail_many(await queue.claim(2), "oops")
    clock.advance(5)
    assert await claimed(queue, 4) == REVERSED


@guard(
    "guarantee 6",
    "redriven messages go to the end, in their old order",
    without("the end of the lane", "redrive.lua", "'v', seq + i", "'v', h.seq"),
    without(
        "their old order",
        "redrive.lua",
        "return a.header.seq < b.header.seq end",
        "return a.header.seq > b.header.seq end",
    ),
)
async def test_redriven_messages_go_to_the_end(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, *REVERSED)
    first, second = await queue.claim(2)
    await second.dead_letter("enough")
    await first.dead_letter("enough")
    await queue.dead_letters.redrive("a", "m2", "m3")
    assert await claimed(queue, 4) == ["m1", "m0", "m3", "m2"]


@guard(
    "guarantee 6",
    "pools are tried in the order given",
    without(
        "the order given",
        "claim.lua",
        "for at = ROWS_AT, #ARGV, ROW do pick_from(ARGV[at], n - #given) end",
        "for at = #ARGV, ROWS_AT, -ROW do pick_from(ARGV[at], n - #given) end",
    ),
)
async def test_pools_are_tried_in_the_order_given(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for pool in ("first", "second"):
        await send(queue, f"{pool}1", f"{pool}2", pool=pool)
    assert await claimed(queue, 3, pools=("second", "first")) == ["second1", "second2", "first1"]
    assert await claimed(queue, 3, pools=("second", "first")) == ["first2"]


@guard(
    "guarantee 6",
    "nothing waits behind a message of another lane",
    without(
        "blocking the lane alone",
        "includes/claim_pick.lua",
        "kept_out(lane, lane_tag, tenant_tag) then return end",
        "kept_out(lane, lane_tag, tenant_tag) then return passing.over(lane.pool_scope, lane.tenant) end",
    ),
)
async def test_nothing_waits_behind_another_lane(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await send(queue, "x0", metadata={"org": "x"})
    assert await claimed(queue) == ["x0"]
    await send(queue, "x1", metadata={"org": "x"})
    await send(queue, "y1", metadata={"org": "y"})
    assert await claimed(queue) == ["y1"]
