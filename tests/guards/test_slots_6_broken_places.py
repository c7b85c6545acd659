"""Rule 6 of slots: a message whose place cannot be written leaves flight all the same, and holds no slot."""

from __future__ import annotations

from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import (
    LIMITS,
    drop_key,
    four,
    held,
    state,
    told,
)

PLACES = "includes/places.lua"

BROKEN_LANE = without(
    "surviving a lane that cannot be written",
    PLACES,
    "failed(try('ZADD', k.lane(h.lane), lane_score(h), mid))",
    "failed(call('ZADD', k.lane(h.lane), lane_score(h), mid))",
)


@guard("slots 6", "a reclaim whose lane is broken frees the slot and keeps the message", BROKEN_LANE)
async def test_a_requeue_whose_lane_is_broken_frees_the_slot(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    await queue.claim()
    await faults.wrong_type(queue, "lane", "a", "default")
    clock.advance(31)
    report = await told(queue.reclaim())
    assert await held(queue, "org", "o") == 0
    assert await state(queue, "a", "m0") == "delayed"
    assert getattr(report, "reclaimed", report) == [("a", "m0")]
    await queue.audit(fix=True)
    clock.advance(10)
    assert [message.id for message in await drain(queue)] == ["m0"]


@guard("slots 6", "a release whose lane is broken frees the slot and keeps the message", BROKEN_LANE)
async def test_a_release_whose_lane_is_broken_frees_the_slot(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    await faults.wrong_type(queue, "lane", "a", "default")
    outcome = await told(lease.release())
    assert await held(queue, "org", "o") == 0
    assert await state(queue, "a", "m0") == "delayed"
    assert outcome == "released"
    await queue.audit(fix=True)
    clock.advance(10)
    assert [message.id for message in await drain(queue)] == ["m0"]


@guard(
    "slots 6",
    "an enqueue into a broken lane is accepted and delivered later, and so are the others of its batch",
    without(
        "surviving a lane that cannot be written",
        "enqueue.lua",
        "local part = try('ZADD'",
        "local part = call('ZADD'",
    ),
)
async def test_an_enqueue_into_a_broken_lane_is_accepted(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await faults.wrong_type(queue, "lane", "a", "default")
    sent = await told(queue.enqueue_many(four()[:2]))
    assert [await state(queue, "a", "m0"), await state(queue, "b", "m1")] == ["delayed", "ready"]
    assert [one.created for one in sent] == [True, True]
    await queue.audit(fix=True)
    clock.advance(10)
    assert sorted(message.id for message in await drain(queue)) == ["m0", "m1"]


@guard(
    "slots 6",
    "a message that cannot be listed among the dead letters leaves flight all the same",
    without(
        "surviving dead letters that cannot be written",
        PLACES,
        "failed(try('ZADD', k.dead(tenant), at, id_of(mid)))",
        "failed(call('ZADD', k.dead(tenant), at, id_of(mid)))",
    ),
)
async def test_a_death_that_cannot_be_listed(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    await faults.wrong_type(queue, "dead", "a")
    outcome = await told(lease.dead_letter("enough"))
    assert await held(queue, "org", "o") == 0
    assert await state(queue, "a", "m0") == "delayed"
    assert outcome == "retried"
    await drop_key(queue, "dead", "a")
