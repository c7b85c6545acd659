"""Fair by weight: what a tenant was charged is rescaled with its weight, wherever that is noted."""

from __future__ import annotations

from typing import Any

from fairqueue import Lease, Limit, NewMessage
from fairqueue._engine.keys import join, key
from fairqueue.lease import held as kept_with
from tests.conftest import MakeQueue
from tests.engine.tools import raw
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed

ORG = [Limit("tenant"), Limit("org", default=1, key="org")]
REWEIGH, CHARGED, CORRECTIONS = "includes/reweigh.lua", "includes/charged.lua", "includes/corrections.lua"


async def send(queue: Queue, tenant: str, count: int, cost: float = 1) -> None:
    await queue.enqueue_many(
        NewMessage(n, tenant=tenant, cost=cost, metadata={"org": "o"}) for n in range(count)
    )


async def served(queue: Queue, claims: int) -> list[str]:
    """Whose message each of the next claims of one gives; all are completed at once."""
    tenants = []
    for _ in range(claims):
        (lease,) = await queue.claim()
        tenants.append(lease.message.tenant)
        await lease.complete()
    return tenants


async def charged_while_light(make_queue: MakeQueue, count: int, **options: Any) -> Queue:
    """a weighs 0.01 and was served one of its messages, which charged it 1,000; b was, too, which charged it 10."""
    queue = await make_queue(**options)
    await queue.tenants.set_weight("a", 0.01)
    await send(queue, "b", 40, cost=10)
    await send(queue, "a", count, cost=10)
    await served(queue, 4)
    return queue


@guard(
    "guarantee 3",
    "a new weight holds for the backlog that is there: what its tenant was charged is rescaled",
    without("rescaling it", REWEIGH, "local to = time + (tag - time) * factor", "local to = tag"),
)
async def test_a_backlog_goes_by_a_new_weight(make_queue: MakeQueue) -> None:
    queue = await charged_while_light(make_queue, 20)
    await queue.tenants.set_weight("a", 1)
    assert (await served(queue, 12)).count("a") >= 5


@guard(
    "guarantee 3",
    "a tenant that has left for a moment comes back by its new weight",
    without("the tag it left with", REWEIGH, "{ k.ring(scope), k.tags(scope) }", "{ k.ring(scope) }"),
)
async def test_who_left_comes_back_by_a_new_weight(make_queue: MakeQueue) -> None:
    queue = await charged_while_light(make_queue, 1)
    await queue.tenants.set_weight("a", 1)
    await send(queue, "a", 20, cost=10)
    assert (await served(queue, 12)).count("a") >= 5


@guard(
    "guarantee 3",
    "those who wait at a full group take their turns there by their new weights",
    without("the turns at groups", CHARGED, "'^([pg])\\31", "'^(p)\\31"),
)
async def test_waiters_of_a_full_group_go_by_a_new_weight(make_queue: MakeQueue) -> None:
    queue = await charged_while_light(make_queue, 20, limits=ORG)
    await queue.tenants.set_weight("a", 1)
    assert (await served(queue, 12)).count("a") >= 5


@guard(
    "guarantee 3",
    "a place that the tenant has come to while others were looked for goes by its new weight too",
    without(
        "the groups of its lanes",
        REWEIGH,
        "    for group in pairs(groups_of(pool, tenant)) do add(group_scope(pool, group)) end\n",
        "",
    ),
)
async def test_a_place_it_has_come_to_since_goes_by_a_new_weight(make_queue: MakeQueue) -> None:
    """The places that were found are named in the call: here none is."""
    queue = await charged_while_light(make_queue, 20, limits=ORG)
    engine = queue._engine
    assert await engine.run_replayable(engine.calls.set_weight, "a", 1.0, [])
    assert (await served(queue, 12)).count("a") >= 5


@guard(
    "guarantee 3",
    "a promise that is handed back gives back what it charged, at the weight of then",
    without(
        "rescaling promises",
        REWEIGH,
        "  for _, one in ipairs(promises) do call('HSET', unpack(one)) end\n",
        "",
    ),
)
async def test_a_promise_is_rescaled(make_queue: MakeQueue) -> None:
    """Heavy, a was promised a slot, which charged it next to nothing; light, it cannot take it: nothing is what it owes."""
    queue = await make_queue(limits=ORG)
    await queue.tenants.set_weight("a", 100)
    await send(queue, "b", 30)
    (running,) = await queue.claim()
    await send(queue, "a", 3)
    assert await queue.claim() == []
    await running.complete()
    assert await served(queue, 1) == ["b"]
    (promised,) = await raw(queue, "HKEYS", "woken", "default", "org", "o")
    assert promised.startswith(b"a")
    await queue.tenants.set_weight("a", 0.01)
    await queue.limits.set("tenant", "a", 0)
    assert (await served(queue, 3)) == ["b"] * 3
    await queue.limits.set("tenant", "a", None)
    assert "a" in await served(queue, 4)


@guard(
    "guarantee 3",
    "in rounds what is left of a turn is as many messages after a new weight as it was before",
    without("rescaling it", REWEIGH, "  if factor ~= 1 then deficits_times(factor, tenant) end\n", ""),
)
async def test_the_rest_of_a_turn_is_rescaled(make_queue: MakeQueue) -> None:
    """a was served five of the ten of its turn, and weighs ten times as much then: five are left, not fifty."""
    queue = await make_queue(scheduler="drr", quantum=10)
    await send(queue, "a", 80)
    await send(queue, "b", 20)
    assert await served(queue, 5) == ["a"] * 5
    await queue.tenants.set_weight("a", 10)
    assert await served(queue, 16) == ["a"] * 5 + ["b"] * 10 + ["a"]


@guard(
    "guarantee 3",
    "a weight that is none counts as 1, and stops nobody",
    without(
        "looking at the bounds",
        "includes/weights.lua",
        "weight and weight >= LOWEST and weight <= HIGHEST and weight or nil",
        "weight",
    ),
)
async def test_a_weight_of_0_stops_nobody(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await raw(queue, "HSET", "weights", args=("a", "1e-9"))
    for tenant in "ab":
        await send(queue, tenant, 10)
    assert (await served(queue, 12)).count("a") >= 5
    await raw(queue, "HDEL", "weights", args=("a",))


# --- what was charged is put right ---------------------------------------------------------------------------------------


async def took(lease: Lease[Any], seconds: float) -> None:
    """Completes it as a worker does that charges by time."""
    at = iter([0.0, seconds])
    kept_with(lease).begin(lambda: next(at))
    kept_with(lease).end()
    await lease.complete()


async def both(make_queue: MakeQueue, count: int = 40, **options: Any) -> Queue:
    """Two with a backlog."""
    queue = await make_queue(**options)
    for tenant in "ab":
        await send(queue, tenant, count)
    return queue


@guard(
    "guarantee 3",
    "what never began is not charged: a worker that gives back what it claimed ahead costs its tenants no turn",
    without("giving it back", "settle.lua", "    corrections.undone(lease)\n", ""),
)
async def test_what_never_began_is_not_charged(make_queue: MakeQueue) -> None:
    queue = await both(make_queue)
    leases = await queue.claim(20)
    await queue.release_many([lease for lease in leases if lease.message.tenant == "a"])
    await queue.complete_many([lease for lease in leases if lease.message.tenant == "b"])
    assert (await served(queue, 20)).count("a") >= 14


@guard(
    "guarantee 3",
    "what is claimed and given back again and again holds up nobody: a message is charged nothing once",
    without("once", "settle.lua", " or h.via == 'l'", ""),
)
async def test_claim_and_release_in_a_loop(make_queue: MakeQueue) -> None:
    queue = await both(make_queue)
    met = set()
    for _ in range(6):
        (lease,) = await queue.claim()
        met.add(lease.message.tenant)
        await lease.release()
    assert met == {"a", "b"}


@guard(
    "guarantee 3",
    "who puts off each message of a tenant holds up the others for a hundred of them, and no longer",
    without("so many in a row", "settle.lua", "return row < IN_A_ROW", "return true"),
)
async def test_messages_put_off_one_after_the_other(make_queue: MakeQueue) -> None:
    queue = await both(make_queue, 400)
    met = []
    while len(met) < 300:
        (lease,) = await queue.claim()
        met.append(lease.message.tenant)
        await (lease.release(delay=60) if met[-1] == "a" else lease.complete())
    assert met.count("b") >= 98


@guard(
    "guarantee 3",
    "by time a tenant is charged what its messages took",
    without("putting it right", CORRECTIONS, "correct(lane, turn, seconds - charged)", "return"),
)
async def test_what_a_message_took_is_charged(make_queue: MakeQueue) -> None:
    queue = await both(make_queue)
    for lease in await queue.claim(2):
        await took(lease, 11 if lease.message.tenant == "a" else 1)
    assert (await served(queue, 10)).count("b") >= 9


MOVE_WAITER = "    if group ~= 'tenant' .. US .. lane.tenant then move_waiter(lane, group, charged) end\n"


@guard(
    "guarantee 3",
    "by time a tenant is charged what its messages took at a full group, too",
    without("putting it right", CORRECTIONS, MOVE_WAITER, ""),
)
async def test_what_a_message_took_is_charged_at_a_full_group(make_queue: MakeQueue) -> None:
    queue = await both(make_queue, limits=ORG)
    (lease,) = await queue.claim()
    assert await claimed(queue, 9) == []
    await took(lease, 21)
    other = "b" if lease.message.tenant == "a" else "a"
    assert (await served(queue, 20)).count(other) >= 18


@guard(
    "guarantee 3",
    "what was given back brings no credit at a full group, where its tenant was not charged for it",
    without(
        "the bound",
        CORRECTIONS,
        "  if by < 0 then return refund(scope, lane.tenant, -by) end\n",
        "",
    ),
)
async def test_no_credit_at_a_full_group(make_queue: MakeQueue) -> None:
    """a's large message came in while there was room: no promise charged a for it."""
    queue = await make_queue(limits=ORG)
    await send(queue, "a", 1, cost=10)
    (lease,) = await queue.claim()
    for tenant in "ab":
        await send(queue, tenant, 40)
    assert await claimed(queue, 9) == []
    await lease.release(delay=600)
    assert (await served(queue, 12)).count("a") <= 7


@guard(
    "guarantee 3",
    "what a tenant owes is not forgotten because it had nothing ready when its message ended",
    without("noting it", CORRECTIONS, "  call('ZADD', k.tags(scope), tag, lane.tenant)\nend", "end"),
)
async def test_who_has_left_owes_what_it_took(make_queue: MakeQueue) -> None:
    queue = await both(make_queue, 1)
    leases = await queue.claim(2)
    await send(queue, "b", 40)
    await served(queue, 5)
    for lease in leases:
        await took(lease, 21 if lease.message.tenant == "a" else 1)
    await send(queue, "a", 10)
    assert "a" not in await served(queue, 10)


@guard(
    "guarantee 3",
    "virtual time does not go back with who is given something back: who comes then is not ahead of the others",
    without("keeping it", "includes/claim_pick.lua", "behind and time or tag", "tag"),
)
async def test_a_credit_is_of_one_tenant(make_queue: MakeQueue) -> None:
    queue = await both(make_queue)
    leases = await queue.claim(20)
    await queue.release_many([lease for lease in leases if lease.message.tenant == "a"])
    await queue.complete_many([lease for lease in leases if lease.message.tenant == "b"])
    assert await served(queue, 1) == ["a"]
    await send(queue, "new", 20)
    assert (await served(queue, 14)).count("new") <= 3


@guard(
    "guarantee 3",
    "in rounds who has nothing left loses the rest of its turn",
    without("losing it", "includes/policy_drr.lua", "    call('ZREM', k.deficits(pool), member)\n", ""),
)
async def test_the_rest_of_a_turn_is_lost(make_queue: MakeQueue) -> None:
    """a was to wait for rounds of quanta, for a message that somebody else has taken out; nothing of that is left."""
    queue = await make_queue(scheduler="drr", limits=ORG)
    await send(queue, "b", 30)
    await queue.enqueue("large", tenant="a", cost=20)
    assert await served(queue, 3) == ["b"] * 3
    await queue.limits.set("tenant", "a", 0)
    assert await served(queue, 20) == ["b"] * 20
    await queue.limits.set("tenant", "a", None)
    assert await served(queue, 5) == ["b"] * 5


@guard(
    "guarantee 3",
    "a name that no tenant can have, put among those who take turns, keeps nobody waiting",
    without(
        "taking it out (the loop, which has no end then, is left here after 1000 turns)",
        "includes/claim_passing.lua",
        "if not tenant or is_name(tenant) then",
        "bounds.met = (bounds.met or 0) + 1\n    if bounds.met > 1000 then return nil end\n    if true then",
    ),
)
async def test_a_name_that_nobody_has_keeps_nobody_waiting(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    ring = key(queue._engine.calls.root, "ring", join("p", "default"))
    await queue._engine.command("ZADD", ring, -1, "")
    assert await claimed(queue) == ["m"]


@guard(
    "guarantee 3",
    "after a change of scheduler who comes to a full group is level with whoever was served and is promised a slot there",
    without("the tags of promises", "retag.lua", "  level_promises(group)\n", ""),
)
async def test_promises_start_level_too(make_queue: MakeQueue) -> None:
    queue = await make_queue(scheduler="drr", limits=ORG)
    await send(queue, "a", 80, cost=4)
    await served(queue, 40)
    await send(queue, "b", 40)
    other = await make_queue(scheduler="fair")
    assert (await served(other, 12)).count("b") >= 4
