"""Guarantee 3, its classes: who holds fewer slots than it is guaranteed goes first, and is charged as all are."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

from fairqueue import ConfigurationError, Lease, Limit, NewMessage
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, drop_key

GUARANTEES, FIRST = "includes/guarantees.lua", "includes/going_first.lua"
WAKING, ONE = "includes/waking.lua", "includes/wake_one.lua"
PICK, PASSING, RIVALS = "includes/claim_pick.lua", "includes/claim_passing.lua", "includes/rivals.lua"
ORG = {"org": "o"}


async def made(make_queue: MakeQueue, org: int | None = None, **guaranteed: int) -> Queue:
    queue = await make_queue(limits=[Limit("tenant"), Limit("org", default=org, key="org")])
    for tenant, slots in guaranteed.items():
        await queue.limits.set("tenant", tenant, None, guaranteed=slots)
    return queue


async def arrive(there: Queue, tenants: str, count: int = 20, **options: Any) -> None:
    await there.enqueue_many(
        NewMessage(n, tenant=tenant, metadata=ORG, **options) for n in range(count) for tenant in tenants
    )


def tenants_of(leases: list[Lease[Any]]) -> str:
    return "".join(lease.message.tenant for lease in leases)


@guard(
    "guarantee 3",
    "who holds fewer slots than it is guaranteed is served first, and no further than that",
    without(
        "looking at who goes first",
        PASSING,
        "local tenant, tag = guarantees.first(scope, aside[scope])",
        "local tenant, tag = nil, nil",
    ),
    without(
        "counting what is held",
        GUARANTEES,
        "return held and guaranteed - held - promised_at(scope, tenant)",
        "return held and guaranteed",
    ),
    without(
        "counting what this claim takes",
        "includes/claim_admit.lua",
        "guarantees.held = function(group) return gate_of(group).held end",
        "",
    ),
)
async def test_who_lacks_slots_is_served_first(make_queue: MakeQueue) -> None:
    queue = await made(make_queue, z=2)
    await arrive(queue, "abz")
    assert tenants_of(await queue.claim(4)) == "zzab"


@guard(
    "guarantee 3",
    "a slot of its own that comes free lets a tenant go first again",
    without("listing it again", WAKING, "  guarantees.regain(groups, places)\n", ""),
)
async def test_a_freed_slot_lets_it_go_first_again(make_queue: MakeQueue) -> None:
    queue = await made(make_queue, z=2)
    await arrive(queue, "abz")
    running = await queue.claim(4)
    await queue.claim(1)  # whoever held enough by then is not looked at any more
    for lease in running[:2]:
        await lease.complete()
    assert tenants_of(await queue.claim(2)) == "zz"


@guard(
    "guarantee 3",
    "what is served under a guarantee is charged",
    without(
        "the charge",
        PICK,
        "weights.charge(lane.tenant, cost), least)",
        "guarantees.of(lane.tenant) and 0 or weights.charge(lane.tenant, cost), least)",
    ),
)
async def test_it_is_charged(make_queue: MakeQueue) -> None:
    """A guarantee of the fair share gives the fair share."""
    queue = await made(make_queue, z=2)
    await arrive(queue, "abcz", 40)
    got: Counter[str] = Counter()
    for _ in range(10):
        leases = await queue.claim(8)
        got.update(tenants_of(leases))
        await queue.complete_many(leases)
    assert got == {"a": 20, "b": 20, "c": 20, "z": 20}


@guard(
    "guarantee 3",
    "a newcomer is not put behind what was served under a guarantee",
    without(
        "the least of the others",
        FIRST,
        "return math.max(clock(scope), math.min(tag, least or tag))",
        "return tag",
    ),
)
async def test_virtual_time_is_that_of_the_others(make_queue: MakeQueue) -> None:
    queue = await made(make_queue, z=6)
    await arrive(queue, "bz", 60)
    running: list[Lease[Any]] = []
    for _ in range(5):
        running = await queue.claim(7)
        assert Counter(tenants_of(running)) == {"z": 6, "b": 1}
        await queue.complete_many(running)
    await queue.claim(6)  # of z, whose turns are far ahead
    await arrive(queue, "n", 20)
    assert Counter(tenants_of(await queue.claim(10))) == {"b": 5, "n": 5}


@guard(
    "guarantee 3",
    "who loses its guarantee does not wait until the others were served as much",
    without("standing level", "set_limit.lua", "if tag and tag > clock(scope) then", "if false then"),
)
async def test_who_loses_its_guarantee_stands_level(make_queue: MakeQueue) -> None:
    queue = await made(make_queue, z=6)
    await arrive(queue, "bz", 60)
    for _ in range(5):
        await queue.complete_many(await queue.claim(7))
    await queue.limits.set("tenant", "z", None)
    assert Counter(tenants_of(await queue.claim(10))) == {"b": 5, "z": 5}


async def full(
    make_queue: MakeQueue, slots: int, tenants: str = "abc", **guaranteed: int
) -> tuple[Queue, list[Lease[Any]]]:
    """These hold all slots of the org and wait for more."""
    queue = await made(make_queue, slots, **guaranteed)
    await arrive(queue, tenants)
    running = await queue.claim(slots)
    assert await queue.claim(10) == []
    return queue, list(running)


@guard(
    "guarantee 3",
    "a slot of a full group goes to who lacks slots",
    without("looking at who goes first", ONE, "guarantees.next(scope)\n  if not", "first(scope)\n  if not"),
)
async def test_a_slot_of_a_full_group_goes_to_who_lacks_it(make_queue: MakeQueue) -> None:
    queue, running = await full(make_queue, 4, z=1)
    await arrive(queue, "z")
    assert await queue.claim(10) == []
    await running[0].complete()
    assert tenants_of(await queue.claim(10)) == "z"


@guard(
    "guarantee 3",
    "of the slots of a full group nobody is promised more first than it lacks",
    without(
        "counting what it was promised",
        GUARANTEES,
        "return held and guaranteed - held - promised_at(scope, tenant)",
        "return held and guaranteed - held",
    ),
)
async def test_nobody_is_promised_more_than_it_lacks(make_queue: MakeQueue) -> None:
    queue, running = await full(make_queue, 4, z=1)
    await arrive(queue, "z", cost=50, queue="late")
    await arrive(queue, "z", cost=50, queue="later")
    assert await queue.claim(10) == []
    for lease in running:
        await lease.complete()
    assert Counter(tenants_of(await queue.claim(10)))["z"] == 1


@guard(
    "guarantee 3",
    "who lacks slots takes over what was promised to those who lack none, though its turn is later",
    without(
        "giving way",
        RIVALS,
        "if favoured ~= guarantees.covers(scope, rival.lane.tenant) then return favoured end",
        "",
    ),
    without(
        "looking in spite of the turn",
        RIVALS,
        "local favoured = guarantees.is_below(scope, lane.tenant)",
        "local favoured = false",
    ),
)
async def test_it_takes_over_what_was_promised(make_queue: MakeQueue) -> None:
    queue, running = await full(make_queue, 3, z=1)
    await arrive(queue, "z", 1, cost=90)
    assert await queue.claim(10) == []
    await running[0].complete()
    (of_z,) = await queue.claim(10)
    assert of_z.message.tenant == "z"
    await queue.complete_many([*running[1:], of_z])  # promised to a, b and c; the next turn of z is late
    await arrive(queue, "z", cost=90)
    assert tenants_of(await queue.claim(3))[0] == "z"


@guard(
    "guarantee 3",
    "a promise that one queue cannot take is for the tenant's next queue in the same claim, while it lacks slots",
    without(
        "waking it at once",
        "includes/claim_park.lua",
        "is_alone(lane, baton) or guarantees.is_below(group_scope(lane.pool, baton), lane.tenant)",
        "is_alone(lane, baton)",
    ),
)
async def test_a_promise_is_for_its_next_queue(make_queue: MakeQueue) -> None:
    queue = await promised(make_queue)
    await queue.pause("z", "first")
    assert tenants_of(await queue.claim(10))[0] == "z"
    await queue.resume("z", "first")


@guard(
    "guarantee 3",
    "what was promised to a queue whose messages have expired is for the tenant's next queue in the same claim",
    without("leaving before others are chosen", "claim.lua", "if expired > 0 then emptied_leave() end", ""),
)
async def test_what_expired_hands_its_promise_on(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await promised(make_queue)
    clock.advance(31)
    assert tenants_of(await queue.claim(10))[0] == "z"


async def promised(make_queue: MakeQueue) -> Queue:
    """The only slot of the org is promised to the first queue of z, which expires; b needs none."""
    queue = await made(make_queue, 1, z=1)
    await arrive(queue, "z", 1, queue="first", expires=30)
    await arrive(queue, "c", 3)
    await queue.limits.set("org", "o", 0)
    assert await queue.claim(10) == []
    await arrive(queue, "z", 1, queue="second")
    assert await queue.claim(10) == []
    await queue.limits.set("org", "o", 1)
    await queue.enqueue_many(NewMessage(n, tenant="b") for n in range(20))
    return queue


@guard(
    "guarantee 3",
    "reconcile lists again who was left out of those who go first",
    without("looking at the guarantees", "tidy.lua", "guarantees.again(scope, tenant)", "do end"),
)
async def test_reconcile_lists_who_goes_first(make_queue: MakeQueue) -> None:
    queue = await made(make_queue, z=1)
    await arrive(queue, "az")
    await drop_key(queue, "below", "p", "default")
    await queue.reconcile()
    assert tenants_of(await queue.claim()) == "z"


@guard(
    "guarantee 3",
    "guarantees that add up to more than a shared group has are refused",
    without("the refusal", "set_limit.lua", "if refusal then", "if false then"),
    without("looking at what is there", "set_limit.lua", "if not uses.known(tenant)", "if false"),
)
async def test_more_than_there_is_is_refused(make_queue: MakeQueue) -> None:
    queue = await made(make_queue, 3, y=2)
    await arrive(queue, "yz", 1)
    with contextlib.suppress(ConfigurationError):
        await queue.limits.set("tenant", "z", 5, guaranteed=2)
    assert (await queue.limits.get("tenant", "z")).guaranteed is None


@guard(
    "guarantee 3",
    "who was guaranteed slots before its first message is counted at the group of that",
    without("noting it", "enqueue.lua", "if guarantees.any then\n  for", "if false then\n  for"),
)
async def test_a_message_tells_of_its_group(make_queue: MakeQueue) -> None:
    queue = await made(make_queue, 3, y=2, z=1)
    await arrive(queue, "yz", 1)
    with contextlib.suppress(ConfigurationError):
        await queue.limits.set("tenant", "z", 5, guaranteed=2)
    assert (await queue.limits.get("tenant", "z")).guaranteed == 1


@guard(
    "guarantee 3",
    "a shared group's limit is not set below what is guaranteed of it",
    without("the look", "set_limit.lua", "if not of_tenant then refusal", "if false then refusal"),
)
async def test_a_limit_below_the_guarantees_is_refused(make_queue: MakeQueue) -> None:
    queue = await made(make_queue, 3, y=2, z=1)
    await arrive(queue, "yz", 1)
    with contextlib.suppress(ConfigurationError):
        await queue.limits.set("org", "o", 2)
    assert (await queue.limits.get("org", "o")).limit == 3


@guard(
    "guarantee 3",
    "guarantees that hold another type stop nobody",
    without("trying", GUARANTEES, "try('HGET', k.guarantees, tenant)", "call('HGET', k.guarantees, tenant)"),
)
async def test_damaged_guarantees_stop_nobody(make_queue: MakeQueue) -> None:
    queue = await made(make_queue, b=1)
    await arrive(queue, "a", 1)
    await faults.wrong_type(queue, "guarantees")
    try:
        leases = await queue.claim()
    except Exception:  # noqa: BLE001 - whatever it is, nobody is served
        leases = []
    await drop_key(queue, "guarantees")
    assert tenants_of(leases) == "a"
