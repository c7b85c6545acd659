"""Rule 4 of slots: a message's own leftover slot never blocks it, wherever it stands in its lane."""

from __future__ import annotations

from fairqueue import Limit
from fairqueue.testing import faults
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, drop_key, held, put_slot, state, told

ONE = [Limit("tenant", default=1)]
BOTH = [*ONE, Limit("org", default=1, key="org")]
LOOKING = "for _, mid in ipairs(holders_in(lane, group, gate.held)) do"


async def waiting(queue: Queue, *ids: str) -> None:
    for id_ in ids:
        await queue.enqueue(id_, tenant="a", id=id_)


@guard(
    "slots 4",
    "a leftover slot does not block its own message",
    without(
        "looking for the message's own slot",
        "includes/claim_admit.lua",
        LOOKING,
        "for _, mid in ipairs({}) do",
    ),
)
async def test_a_leftover_slot_does_not_block_its_own_message(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await waiting(queue, "m")
    await faults.leak_slot(queue, "tenant", "a", "m")
    assert await claimed(queue) == ["m"]
    assert await held(queue, "tenant", "a") == 1


@guard(
    "slots 4",
    "a leftover slot is found although its message is not at the head of its lane",
    without(
        "looking beyond the head of the lane",
        "includes/claim_admit.lua",
        "call('ZSCORE', k.lane(lane.name), mid)",
        "call('ZRANGE', k.lane(lane.name), 0, 0)[1] == mid",
    ),
)
async def test_a_leftover_slot_of_a_message_behind_the_head(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await waiting(queue, "m0", "m1", "m2")
    await faults.leak_slot(queue, "tenant", "a", "m2")
    assert await claimed(queue) == ["m2"]
    assert await held(queue, "tenant", "a") == 1


@guard(
    "slots 4",
    "limit 0 stops a message although a leftover slot is its own",
    without(
        "the limit for a message over its own slot",
        "includes/claim_admit.lua",
        "if gate.held - 1 >= gate.limit then return group end",
        "",
    ),
)
async def test_limit_zero_stops_a_message_with_a_leftover_slot(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await waiting(queue, "m")
    await faults.leak_slot(queue, "tenant", "a", "m")
    await queue.limits.set("tenant", "a", 0)
    assert await claimed(queue) == []
    await queue.reconcile()


@guard(
    "slots 4",
    "a leftover in one group does not let a message into another that is full",
    without(
        "the other groups' limits",
        "includes/claim_admit.lua",
        "elseif not has_room(gate, lane, group) then",
        "elseif false then",
    ),
)
async def test_a_leftover_in_one_group_is_no_way_into_another(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await queue.enqueue(0, tenant="b", id="other", metadata={"org": "x"})
    assert await claimed(queue) == ["other"]
    await queue.enqueue(1, tenant="a", id="m", metadata={"org": "x"})
    await faults.leak_slot(queue, "tenant", "a", "m")
    assert await claimed(queue) == []
    await queue.reconcile()


@guard(
    "slots 4",
    "a message that another group keeps out waits there, not at the group of its own leftover",
    without(
        "waiting where it is really kept out",
        "includes/claim_park.lua",
        "if elsewhere and not must_reconcile then",
        "if false then",
    ),
)
async def test_a_message_waits_where_it_is_really_kept_out(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await queue.enqueue(0, tenant="b", id="other", metadata={"org": "x"})
    (other,) = await queue.claim()
    await queue.enqueue(1, tenant="a", id="m", metadata={"org": "x"})
    await faults.leak_slot(queue, "tenant", "a", "m")
    assert await claimed(queue) == []
    await other.complete()
    assert await claimed(queue) == ["m"]


@guard(
    "slots 4",
    "a group that cannot be counted is mended before a message waits at the group of its own leftover",
    without(
        "meeting the broken group first",
        "includes/claim_admit.lua",
        "if gate.closed then return group, true end",
        "if gate.closed and not full then return group, true end",
    ),
)
async def test_a_leftover_in_one_group_while_another_is_broken(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await queue.enqueue(1, tenant="a", id="m", metadata={"org": "x"})
    await queue.enqueue(1, tenant="b", id="other")
    await faults.leak_slot(queue, "tenant", "a", "m")
    await faults.wrong_type(queue, "slots", "org", "x")
    for _ in range(3):
        await told(queue.claim(2))
    assert [await state(queue, "a", "m"), await state(queue, "b", "other")] == ["in_flight", "in_flight"]


@guard(
    "slots 4",
    "a message that waits at a group with a leak, over its own leftover elsewhere, has the leak mended",
    without(
        "asking whether that group is dirty",
        "includes/claim_park.lua",
        "return elsewhere, gate_of(elsewhere).dirty end",
        "return elsewhere, false end",
    ),
)
async def test_a_leftover_in_one_group_while_another_is_dirty(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await queue.enqueue(0, tenant="b", id="other", metadata={"org": "x"})
    (other,) = await queue.claim()
    await faults.wrong_type(queue, "slots", "org", "x")
    await other.complete()
    await drop_key(queue, "slots", "org", "x")
    await put_slot(queue, "org", "x", ("b", "other"), other.token)  # readable again, and not freed
    await queue.enqueue(1, tenant="a", id="m", metadata={"org": "x"})
    await faults.leak_slot(queue, "tenant", "a", "m")
    assert await claimed(queue) == ["m"]


@guard(
    "slots 4",
    "the room that a leftover makes when it is taken over goes to the next one",
    without(
        "handing the room on",
        "includes/claim_take.lua",
        "elseif added ~= gates[group].taken then",
        "elseif false then",
    ),
)
async def test_the_room_of_a_leftover_taken_over_is_handed_on(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await waiting(queue, "m0", "m1", "m2")
    await faults.leak_slot(queue, "tenant", "a", "m0")
    assert await claimed(queue, 3) == [
        "m0",
        "m1",
    ]  # of the two slots that were counted, m0's was its own already
    assert await held(queue, "tenant", "a") == 2
