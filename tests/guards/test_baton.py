"""Waking is a baton: who leaves a group with room wakes whoever fits; who cannot take the slot hands it on."""

from __future__ import annotations

from random import Random
from typing import Any

from fairqueue import Lease, Limit, NewMessage
from fairqueue._engine.keys import US, join, key, lane_name
from fairqueue.testing import drain, faults, leftover_keys
from tests.conftest import MakeQueue
from tests.engine.shares import serve_beside_own_limits, widest_gap
from tests.engine.tools import commands
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, drop_key, ids

ORG = [Limit("org", default=1, key="org")]
BOTH = [Limit("org", default=1, key="org"), Limit("room", default=1, key="room")]
WAITING, BATONS, WAKING = "includes/waiting.lua", "includes/batons.lua", "includes/waking.lua"
BESIDE, ONE, LEAVES = "includes/wake_beside.lua", "includes/wake_one.lua", "includes/lane_leaves.lua"
PICK, PARK, RIVALS = "includes/claim_pick.lua", "includes/claim_park.lua", "includes/rivals.lua"
TAKE, TURNS = "includes/claim_take.lua", "includes/turns.lua"


async def send(queue: Queue, tenant: str, org: str = "o", room: str | None = None) -> None:
    """A message of this tenant, called like it."""
    metadata = {"org": org} if room is None else {"org": org, "room": room}
    await queue.enqueue(tenant, tenant=tenant, id=tenant, metadata=metadata)


async def send_as(queue: Queue, *tenants: str) -> None:
    """A message of each, all of org o; of one tenant there may be several."""
    await queue.enqueue_many(NewMessage(tenant, tenant=tenant, metadata={"org": "o"}) for tenant in tenants)


async def busy(make_queue: MakeQueue, *waiting: str, limits: list[Limit] = ORG) -> tuple[Queue, Lease[Any]]:
    """The one slot of org o is held; these tenants wait for it, in this order."""
    queue = await make_queue(limits=limits)
    await send(queue, "holder")
    (lease,) = await queue.claim()
    for tenant in waiting:
        await send(queue, tenant)
    assert await claimed(queue, 10) == []
    return queue, lease


async def woken(queue: Queue, org: str = "o") -> int:
    """Lanes that were given a baton of the org."""
    where = key(queue._engine.calls.root, "woken", "default", join("org", org))
    count: int = await queue._engine.command("HLEN", where)
    return count


@guard(
    "baton",
    "a freed slot wakes whoever waits for it",
    without("the waking", "includes/slots.lua", "  wake(freed)\n", ""),
)
async def test_a_freed_slot_wakes(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue, "a")
    await lease.complete()
    assert await claimed(queue) == ["a"]


@guard(
    "baton",
    "a raised limit wakes whoever fits now",
    without("the waking", "set_limit.lua", "wake({ [group] = true })\n", ""),
)
async def test_a_raised_limit_wakes(make_queue: MakeQueue) -> None:
    queue, _ = await busy(make_queue, "a", "b", "c")
    await queue.limits.set("org", "o", 3)
    assert await claimed(queue, 10) == ["a", "b"]


@guard(
    "baton",
    "a raised default wakes whoever fits now",
    without(
        "looking at the groups in use",
        "fairqueue._engine.redeclared:follow_up",
        '"to_wake": _wake_who_fits,',
        "",
    ),
)
async def test_a_raised_default_wakes(make_queue: MakeQueue) -> None:
    await busy(make_queue, "a", "b")
    queue = await make_queue(limits=[Limit("org", default=2, key="org")])
    assert await claimed(queue, 10) == ["a"]


@guard(
    "baton",
    "a healed leak wakes whoever was blocked by it",
    without("the waking", "reconcile_group.lua", "wake({ [group] = true })\n", ""),
)
async def test_a_healed_leak_wakes(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ORG)
    await faults.leak_slot(queue, "org", "o", "ghost", tenant="gone")
    await send(queue, "a")
    assert await claimed(queue) == []
    await queue.reconcile()
    assert await claimed(queue) == ["a"]


@guard(
    "baton",
    "as many are woken as there is room, those already woken included",
    without(
        "counting those already woken",
        WAKING,
        "place.room - call('HLEN', woken_key(pool, place.group))",
        "place.room",
    ),
)
async def test_no_more_are_woken_than_there_is_room(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue, "a", "b", "c")
    await lease.complete()
    assert await woken(queue) == 1
    await queue.limits.set("org", "o", 2)
    assert await woken(queue) == 2


@guard(
    "baton",
    "all are woken for whom there is room, however many they are",
    without("calling again after a full script", "set_limit.lua", "wakes >= most_wakes and 1 or 0", "0"),
    without(
        "the client's repetition",
        "fairqueue.limits_control:LimitsControl._change",
        "while await self",
        "if await self",
    ),
)
async def test_all_are_woken_for_whom_there_is_room(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=0, key="org")])
    await queue.enqueue_many(
        [NewMessage(n, tenant=f"t{n}", id="m", metadata={"org": "o"}) for n in range(450)]
    )
    assert await claimed(queue, 10) == []
    await queue.limits.set("org", "o", 500)
    assert await woken(queue) == 450
    assert len(await drain(queue, batch=100)) == 450


@guard(
    "baton",
    "the slot a lane was woken for is not taken by another",
    without(
        "holding the slot for who was woken",
        "includes/claim_admit.lua",
        "return free > woken + gate.handed_back",
        "return free > 0",
    ),
)
async def test_the_slot_of_a_woken_lane_is_held_for_it(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue, "z")
    await lease.complete()
    await send(queue, "a")  # by its name it would be first in the ring
    assert await claimed(queue, 10) == ["z"]


@guard(
    "baton",
    "a woken lane that another group keeps out hands the slot on",
    without(
        "giving the baton back when it is parked elsewhere",
        BATONS,
        "local batons = hand_back(lane)\n  stand_at(",
        "local batons = {}\n  stand_at(",
    ),
    without(
        "waking the next one",
        TAKE,
        "  wake(batons)\n",
        "",
    ),
)
async def test_a_woken_lane_kept_out_by_another_group_hands_on(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await send(queue, "holder")
    (holder,) = await queue.claim()
    await send(queue, "a", room="r")
    await send(queue, "b")
    assert await claimed(queue, 10) == []  # both wait for the org
    await holder.complete()
    await send(queue, "Other", org="elsewhere", room="r")  # by its name it is first in the ring
    assert await claimed(queue) == ["Other"]  # a was woken, but the room it needs is taken by now
    assert await claimed(queue, 10) == ["b"]


@guard(
    "baton",
    "a lane that was promised a slot for all it had waits for more with the others when a message comes",
    without("standing on the list again", "enqueue.lua", "  wait_for_more(lane_of(name))\n", ""),
    without(
        "standing on the list again, after a release", "includes/places.lua", "  wait_for_more(lane)\n", ""
    ),
)
async def test_a_lane_that_was_woken_for_all_it_had_waits_for_what_comes_next(
    make_queue: MakeQueue, namespace: str
) -> None:
    """Else whoever sends one message at a time has one slot of each four, for as long as it goes on."""
    for again in ("sent", "given back"):
        queue = await make_queue(limits=[Limit("org", default=4, key="org")], name=f"{namespace}-{again[:4]}")
        await send_as(queue, "a", "first", "first", "first")
        own, *running = await queue.claim(4)
        assert own.message.tenant == "a"
        await send_as(queue, "a", "b", "b", "b", "b")
        assert await queue.claim(1) == []
        await queue.complete_many(running[:2])  # promised to a and b
        if again == "sent":
            await send_as(queue, "a")
            await own.complete()
        else:
            await own.release()
        await queue.complete_many(running[2:])
        assert (await promised_to(queue, "a"), await promised_to(queue, "b")) == (2, 2)
        assert sorted(lease.message.tenant for lease in await queue.claim(4)) == ["a", "a", "b", "b"]


@guard(
    "baton",
    "a lane that another group keeps out when it would be woken lets the next one have the slot",
    without("moving on to the other group", BESIDE, "or is_shut(lane, other)", "or false"),
)
async def test_a_lane_that_would_be_kept_out_elsewhere_is_not_woken(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await send(queue, "holder")
    (holder,) = await queue.claim()
    await send(queue, "a", room="r")
    await send(queue, "b")
    assert await claimed(queue, 10) == []  # both wait for the org
    await send(queue, "other", org="elsewhere", room="r")
    assert await claimed(queue) == ["other"]
    await holder.complete()
    where = key(queue._engine.calls.root, "woken", "default", join("org", "o"))
    assert await queue._engine.command("HKEYS", where) == [
        lane_name("b", "default", "default", (("org", "o"),)).encode()
    ]


@guard(
    "baton",
    "who frees a slot of its own and a shared one at once competes for the shared one",
    without(
        "moving on to the shared group",
        BESIDE,
        "if other ~= group and not turns[other] and (contended or",
        "if other ~= group and not turns[other] and (false or",
    ),
)
async def test_who_frees_two_slots_at_once_competes_for_the_wider(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=1, key="org")])
    served, tenants = await serve_beside_own_limits(queue, Random(6))
    assert widest_gap(served, tenants) <= 2 * 1000


@guard(
    "baton",
    "of two slots that come free at once a lane that needs both gets both, when it is its turn",
    without("the second one", BESIDE, "turns[other] = turn_at(lane, other, lane_tag)", "turns[other] = nil"),
    without("asking whose turn it is there", BESIDE, "and tag <= (least or math.huge)", ""),
)
async def test_both_slots_go_to_who_needs_both(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    both = {"org": "o", "room": "r"}
    for tenant, cost, needs in (("a", 3, {"org": "o"}), ("b", 3, both), ("c", 1, {"room": "r"})):
        await queue.enqueue_many(
            NewMessage(n, tenant=tenant, id=f"{tenant}{n}", metadata=needs, cost=cost) for n in range(9)
        )
    order = []
    for _ in range(9):
        leases = await queue.claim(10)
        order.append("".join(ids(leases)))
        await queue.complete_many(leases)
    assert order == [
        "a0c0",
        "c1a1",
        "b0",
        "c2a2",
        "c3a3",
        "b1",
        "c4a4",
        "c5a5",
        "c6a6",
    ]  # b and c share the room


@guard(
    "baton",
    "of tenants that come to a full group at one virtual time the first to come is the first to go",
    without("the order of arrival", TURNS, "return last[1] and last[2] + BEHIND or tag", "return tag"),
)
async def test_who_came_first_goes_first(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue)
    for tenant in "cab":
        await send(queue, tenant)
        assert await claimed(queue) == []
    order = []
    for _ in range(3):
        await lease.complete()
        (lease,) = await queue.claim(10)
        order.append(lease.message.id)
    assert order == ["c", "a", "b"]


@guard(
    "baton",
    "who frees a slot of its own and a shared one at once competes with a single other tenant too",
    without(
        "waking last at the group that the others move on to",
        WAKING,
        "if goes_first(a) ~= goes_first(b) then return goes_first(a) end",
        "",
    ),
)
async def test_who_frees_two_slots_at_once_competes_with_one_other(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=1, key="org")])
    await queue.enqueue_many(
        NewMessage(n, tenant=tenant, id=f"{tenant}{n}", metadata={"org": "o"}, cost=cost)
        for tenant, cost in (("a", 1), ("b", 1000))
        for n in range(5)
    )
    order = []
    for _ in range(6):
        (lease,) = await queue.claim(10)
        order.append(lease.message.tenant)
        await lease.complete()
    assert order == ["a", "a", "b", "a", "a", "a"]


@guard(
    "baton",
    "a woken lane whose messages are gone hands the slot on",
    without("waking the next one", LEAVES, "  wake(batons)\n", ""),
)
async def test_a_woken_lane_that_is_empty_hands_on(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue, "a", "b")
    await lease.complete()
    assert await woken(queue) == 1
    await faults.delete(queue, "header", "a", "a")
    assert await claimed(queue, 10) == ["b"]
    await queue.reconcile()


@guard(
    "baton",
    "a woken lane whose key is broken hands the slot on",
    without("leaving the ring", TAKE, "      lane_leaves(lane)\n", ""),
)
async def test_a_woken_lane_that_is_broken_hands_on(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue, "a", "b")
    await lease.complete()
    await faults.wrong_type(queue, "lane", "a", "default")
    assert await claimed(queue, 10) == ["b"]
    await queue.audit(fix=True)


@guard(
    "baton",
    "an empty lane is passed over when somebody is woken",
    without(
        "trying the next one",
        ONE,
        "unpark(lane, group, tag)\n    tenant_changed(lane)\n    return 0",
        "unpark(lane, group, tag)\n    tenant_changed(lane)\n    return nil",
    ),
)
async def test_an_empty_waiting_lane_is_passed_over(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue, "a", "b")
    await drop_key(queue, "lane", lane_name("a", "default", "default", (("org", "o"),)))
    for record in ("header", "body"):
        await faults.delete(queue, record, "a", "a")
    await lease.complete()
    assert await claimed(queue, 10) == ["b"]
    await queue.reconcile()


@guard(
    "baton",
    "a tenant that waits with several lanes keeps its place for the others when one is woken",
    without(
        "keeping it",
        WAITING,
        "if call('EXISTS', waiting_key(lane.pool, group, lane.tenant)) == 0 then",
        "if true then",
    ),
)
async def test_all_lanes_of_a_waiting_tenant_are_woken(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue)
    for name in ("first", "second", "third"):
        await queue.enqueue(name, tenant="a", queue=name, id=name, metadata={"org": "o"})
    assert await claimed(queue, 10) == []
    served = []
    for _ in range(3):
        await lease.complete()
        leases = await queue.claim(10)
        served += ids(leases)
        (lease,) = leases or [lease]
    assert sorted(served) == ["first", "second", "third"]


@guard(
    "baton",
    "when nobody waits at a group any more nothing is left of the waiting",
    without(
        "forgetting the group",
        WAITING,
        "if call('EXISTS', k.ring(scope), woken_key(pool, group)) > 0 then return end",
        "if true then return end",
    ),
)
async def test_nothing_is_left_of_the_waiting(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue, "a", "b")
    await lease.complete()
    assert len(await drain(queue)) == 2
    assert await leftover_keys(queue) == []


@guard(
    "baton",
    "who comes to a group where all slots are promised gets its share of them",
    without("taking over", RIVALS, "if policy.by_seq then return nil end", "if true then return nil end"),
)
async def test_not_all_free_slots_are_for_who_was_parked(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=6, key="org")])
    for tenant in "bc":
        await queue.enqueue_many(NewMessage(n, tenant=tenant, metadata={"org": "o"}) for n in range(20))
    for _ in range(2):
        leases = await queue.claim(6)
        assert sorted(lease.message.tenant for lease in leases) == [*"bbbccc"]
        await queue.complete_many(leases)


async def promised_to(queue: Queue, tenant: str) -> int:
    """How many slots of org o."""
    where = key(queue._engine.calls.root, "woken", "default", join("org", "o"))
    name = lane_name(tenant, "default", "default", (("org", "o"),))
    counted: bytes = await queue._engine.command("HGET", where, name)
    return int(counted.split(US.encode())[0])


async def promised_to_both(make_queue: MakeQueue) -> Queue:
    """Six slots of org o: four are promised to b, whose turns were 0 to 3, and two to c, with turns 0 and 1.

    In the pool both are far ahead of whoever comes.
    """
    queue = await make_queue(limits=[Limit("org", default=6, key="org")])
    await send_as(queue, *("b" * 10))
    running = await queue.claim(6)
    assert await claimed(queue) == []
    await send_as(queue, "c", "c")
    assert await claimed(queue) == []
    for tenant in "bc":
        await queue.enqueue(tenant, tenant=tenant, queue="free", cost=100)
    assert len(await queue.claim(2)) == 2
    await queue.complete_many(running)
    assert await woken(queue) == 6
    return queue


@guard(
    "baton",
    "the promise that is taken over is the one of the latest turn",
    without("the latest", RIVALS, "latest.turn >= rival.turn", "latest.turn <= rival.turn"),
)
async def test_the_latest_promise_is_taken_over(make_queue: MakeQueue) -> None:
    queue = await promised_to_both(make_queue)
    await send_as(queue, "a")
    assert [lease.message.tenant for lease in await queue.claim()] == ["a"]
    assert (await promised_to(queue, "b"), await promised_to(queue, "c")) == (3, 2)


@guard(
    "baton",
    "who takes over a promise is charged for it",
    without("the charge", RIVALS, "tag + charged, lane.tenant)", "tag, lane.tenant)"),
)
async def test_who_takes_over_is_charged(make_queue: MakeQueue) -> None:
    queue = await promised_to_both(make_queue)
    await send_as(queue, *("a" * 6))
    first = [lease.message.tenant for lease in await queue.claim(6)][:3]
    assert first == ["a", "a", "c"]


@guard(
    "baton",
    "who hands a promise back is not charged for it",
    without("the refund", BATONS, "if not policy.by_seq then refund(scope, lane.tenant, charge) end", ""),
)
async def test_who_hands_back_is_not_charged(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await send(queue, "holder")
    (holder,) = await queue.claim()
    await queue.enqueue(0, tenant="a", id="a", metadata={"org": "o", "room": "r"}, cost=5)
    await send_as(queue, *("b" * 6))
    assert await claimed(queue, 10) == []
    await holder.complete()
    assert await woken(queue) == 1  # a
    await queue.enqueue(0, tenant="x", id="x", pool="other", metadata={"room": "r"})
    (other,) = await queue.claim(pools=["other"])
    (running,) = await queue.claim(10)
    assert running.message.tenant == "b"
    await other.complete()
    assert await queue.claim(10) == []
    await running.complete()
    (running,) = await queue.claim(10)
    assert running.message.tenant == "a"


@guard(
    "baton",
    "a slot of its own limit that one lane cannot take is for the tenant's next lane in the same claim",
    without("waking it at once", PARK, "if is_alone(lane, baton) or", "if false or"),
)
async def test_an_own_slot_is_handed_on_at_once(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant"), Limit("org", default=1, key="org")])
    await queue.limits.set("tenant", "a", 2)
    await queue.enqueue_many(NewMessage(n, tenant="a", queue="free", cost=3) for n in range(6))
    running = await queue.claim(2)
    await queue.enqueue_many(
        NewMessage(n, tenant="a", queue="shared", metadata={"org": "o"}) for n in range(4)
    )
    await queue.enqueue_many(NewMessage(n, tenant="b") for n in range(20))
    assert {lease.message.tenant for lease in await queue.claim(6)} == {"b"}
    await queue.complete_many(running)
    leases = await queue.claim(10)
    assert [lease.message.tenant for lease in leases].count("a") == 2


@guard(
    "baton",
    "when a limit was lowered below what is promised, the first of those who hold a promise comes in",
    without(
        "letting it in",
        "includes/claim_admit.lua",
        "if woken > 0 and batons_of(lane, group) > 0 then return free > 0 end",
        "if woken > 0 then woken = woken - batons_of(lane, group) end",
    ),
)
async def test_the_first_of_too_many_comes_in(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue, "a", "b", "c")
    await queue.limits.set("org", "o", 4)
    assert await woken(queue) == 3
    await queue.limits.set("org", "o", 1)
    await lease.complete()
    assert await claimed(queue) == ["a"]
    assert await woken(queue) == 2  # without the guard each of them is parked in that claim, and woken anew
    assert await claimed(queue, 10) == []


@guard(
    "baton",
    "a lane with the baton that takes the slot gives the baton up",
    without(
        "giving it up",
        PICK,
        "if use_baton(lane, group, charged) then return true end",
        "",
    ),
)
async def test_a_baton_is_given_up_with_the_slot(make_queue: MakeQueue) -> None:
    queue, _ = await busy(make_queue, "z")
    await queue.enqueue("more", tenant="z", id="more", metadata={"org": "o"})
    await queue.limits.set("org", "o", 4)
    assert await woken(queue) == 2  # one for each message of z
    assert await claimed(queue) == ["z"]
    assert await woken(queue) == 1
    await send(queue, "a")  # it has had no turn, so it is next, and nobody else was promised the last slot
    assert await claimed(queue) == ["a"]


@guard(
    "baton",
    "a damaged count of batons costs no more than there are batons",
    without(
        "comparing it with them",
        BATONS,
        "  if count > MANY_BATONS then count = math.min(count, call('HLEN', woken_key(lane.pool, group))) end\n",
        "",
    ),
)
async def test_a_damaged_count_of_batons(make_queue: MakeQueue) -> None:
    queue, lease = await busy(make_queue, "a")
    await lease.complete()
    assert await woken(queue) == 1
    where = key(queue._engine.calls.root, "woken", "default", join("org", "o"))
    lane = lane_name("a", "default", "default", (("org", "o"),))
    await queue._engine.command("HSET", where, lane, f"2000000{US}1")
    await queue.limits.set("org", "o", 0)
    before = await commands(queue)
    assert await claimed(queue) == []
    assert await commands(queue) - before < 1000
    await queue.limits.set("org", "o", 1)
    assert await claimed(queue) == ["a"]


@guard(
    "baton",
    "a slot that is handed back in a claim goes to the least served of those who wait, not to whom the claim meets next",
    without(
        "keeping it for them",
        "includes/claim_admit.lua",
        "return free > woken + gate.handed_back",
        "return free > woken",
    ),
)
async def test_a_slot_that_is_handed_back_is_kept_for_those_who_wait(make_queue: MakeQueue) -> None:
    """a is at its own limit when it comes for its slot of the org."""
    queue = await make_queue(limits=[Limit("tenant"), Limit("org", default=2, key="org")])
    await queue.limits.set("tenant", "a", 1)
    await send_as(queue, "b", "c", "c")
    running = await queue.claim(2)
    await send_as(queue, "b", "a", "c", "c")
    assert await queue.claim() == []
    await queue.enqueue("needs no slot of the org", tenant="a")
    await queue.complete_many(running)
    assert sorted(lease.message.tenant for lease in await queue.claim(5)) == ["a", "b", "c"]
