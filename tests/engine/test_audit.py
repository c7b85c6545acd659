"""Audit: every kind of damage is named with its evidence, and put right with ``fix``: nothing lost, nothing stuck.

Each case damages one thing of a queue with work in every state. The audit must name it; a fixing pass must repair it,
so that the next audit finds nothing; and then every message that still has its payload must be claimable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, RetryPolicy
from fairqueue._engine.keys import join
from fairqueue.inside import engine_of
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, held, lane, one, put, raw, state

Damage = Callable[[FairQueue[Any]], Awaitable[object]]

LANE_A = lane("a", ("tenant", "a"))
RING_A = join("t", "default", "a")
GROUP_A = join("tenant", "a")
WAITERS_A = join("g", "default", "tenant", "a")


@dataclass(frozen=True)
class Case:
    check: str
    evidence: str
    damage: Damage
    lost: tuple[str, ...] = ()
    """Messages of tenant a that the damage itself destroyed."""


def on(command: str, kind: str, *parts: str, args: tuple[Any, ...] = ()) -> Damage:
    return lambda queue: raw(queue, command, kind, *parts, args=args)


def broken(kind: str, *parts: str) -> Damage:
    async def damage(queue: FairQueue[Any]) -> None:
        await raw(queue, "DEL", kind, *parts)
        await raw(queue, "SET", kind, *parts, args=("broken",))

    return damage


def fault(name: str, *args: Any) -> Damage:
    return lambda queue: getattr(faults, name)(queue, *args)


async def stale_lease(queue: FairQueue[Any]) -> None:
    """A record and a deadline whose message has left flight, as a cut script would leave them."""
    record = await raw(queue, "HGET", "leases", args=(join("a", "flying"),))
    await raw(queue, "HSET", "leases", args=(join("a", "ready1"), record))
    await raw(queue, "ZADD", "deadlines", args=(4e12, join("a", "ready1")))


async def header_and_deadline(queue: FairQueue[Any]) -> None:
    await faults.delete(queue, "header", "a", "flying")
    await faults.delete(queue, "deadline", "a", "flying")


async def other_token(queue: FairQueue[Any]) -> None:
    record = await raw(queue, "HGET", "leases", args=(join("a", "flying"),))
    await raw(
        queue,
        "HSET",
        "leases",
        args=(join("a", "flying"), b"00000009.9.other" + record[record.index(b"\x1f") :]),
    )


# tenant a, limit 2: "flying" and "flying2" hold both slots, "ready1" and "ready2" wait parked, "late" is delayed,
# "dead" is dead. tenant b, unlimited: "b1" and "b2" are claimable. So each index has something in it.
CASES: dict[str, Case] = {
    "ready but not in its lane": Case("KEEP", "not in its lane", on("ZREM", "lane", LANE_A, args=("a\x1fready1",))),
    "at another place in its lane": Case("KEEP", "another place", on("ZADD", "lane", LANE_A, args=(1, "a\x1fready2"))),
    "a lane of the wrong type": Case("KEEP", "not a zset", broken("lane", LANE_A)),
    "a lane of the wrong type that takes turns": Case("KEEP", "not a zset", broken("lane", lane("b", ("tenant", "b")))),
    "slots of the wrong type where nobody holds or waits": Case(
        "SLOTS", "holds a string", fault("wrong_type", "slots", "tenant", "b")
    ),
    "a lane that is gone": Case("KEEP", "not in its lane", on("DEL", "lane", LANE_A)),
    "delayed without a due time": Case("KEEP", "no due time", on("ZREM", "delayed", args=("a\x1flate",))),
    "delayed and not listed by its name": Case("KEEP", "by its name", on("ZREM", "delayed_names", args=("a\x1flate",))),
    "the name of what is delayed out of its order": Case("KEEP", "by its name", on("ZADD", "delayed_names", args=(1, "a\x1flate"))),
    "in flight without a record": Case("OWNER", "no lease record", fault("delete", "lease", "a", "flying")),
    "in flight with another token": Case("OWNER", "has token", other_token),
    "in flight without a deadline": Case("OWNER", "no deadline", fault("delete", "deadline", "a", "flying")),
    "dead but not listed": Case("KEEP", "not among the dead", on("ZREM", "dead", "a", args=("dead",))),
    "dead letters of the wrong type": Case("KEEP", "dead letters key", broken("dead", "a")),
    "dead letters list one that is not dead": Case("KEEP", "not dead", on("ZADD", "dead", "a", args=(9, "ready1"))),
    "a ready message's header cannot be read": Case(
        "KEEP", "header cannot be read", fault("overwrite", "header", "a", "ready1", b"garbage"), ("ready1",)
    ),
    "a running message's header cannot be read": Case(
        "KEEP", "header cannot be read", fault("overwrite", "header", "a", "flying", b"garbage"), ("flying",)
    ),
    "a delayed message's header cannot be read": Case(
        "KEEP", "header cannot be read", fault("overwrite", "header", "a", "late", b"garbage"), ("late",)
    ),
    "a ready message's header is gone": Case(
        "CLEAN", "payload without a message", fault("delete", "header", "a", "ready1"), ("ready1",)
    ),
    "a delayed message's header is gone": Case(
        "KEEP", "due time of a message", fault("delete", "header", "a", "late"), ("late",)
    ),
    "a dead message's header is gone": Case("KEEP", "not dead", fault("delete", "header", "a", "dead"), ("dead",)),
    "a running message's header is gone": Case("OWNER", "but no message", fault("delete", "header", "a", "flying")),
    "a running message's header and deadline are gone": Case("OWNER", "but no message", header_and_deadline),
    "a payload is missing": Case("KEEP", "payload is missing", fault("delete", "body", "a", "ready1"), ("ready1",)),
    "a record cannot be read": Case("OWNER", "cannot be read", fault("overwrite", "lease", "a", "flying", b"?")),
    "a record of a message that is not in flight": Case("OWNER", "not in flight", stale_lease),
    "a slot is missing": Case("SLOTS", "holds no slot", fault("delete", "slot", "a", "flying")),
    "a group is not registered": Case("SLOTS", "not registered", on("SREM", "groups", args=(GROUP_A,))),
    "a ghost holds a slot": Case("SLOTS", "without a lease", fault("leak_slot", "tenant", "a", "ghost")),
    "slots of the wrong type": Case("SLOTS", "not a hash", broken("slots", GROUP_A)),
    "room, but those who wait are not woken": Case("MOVES", "tenants wait", on("HSET", "limits", args=(GROUP_A, 3))),
    "a promise to a lane that takes no turns": Case(
        "MOVES", "takes no turns", on("HSET", "woken", join("default", GROUP_A), args=(LANE_A, 1))
    ),
    "a payload without a message": Case("CLEAN", "payload without", on("HSET", "body", args=("a\x1fnone", "0:1"))),
    "a note without a message": Case("CLEAN", "note without", on("HSET", "notes", args=("a\x1fnone", "x\x1f1\x1fy"))),
    "a due time without a message": Case("KEEP", "due time of", on("ZADD", "delayed", args=(1, "a\x1fnone"))),
    "a due time of a ready message": Case("KEEP", "due time of", on("ZADD", "delayed", args=(4e12, "a\x1fready1"))),
    "a name of what is delayed without a message": Case("CLEAN", "a name, among", on("ZADD", "delayed_names", args=(0, "a\x1fnone"))),
    "a name of what is delayed of a ready message": Case("CLEAN", "a name, among", on("ZADD", "delayed_names", args=(0, "a\x1fready1"))),
    "a deadline without a message": Case("OWNER", "deadline of", on("ZADD", "deadlines", args=(4e12, "a\x1fnone"))),
    "a tenant takes turns without a lane": Case(
        "MOVES", "no claimable lane", on("ZADD", "ring", join("p", "default"), args=(0, "nobody"))
    ),
    "a lane takes turns with nothing ready": Case(
        "MOVES", "nothing ready", on("ZADD", "ring", join("t", "default", "b"), args=(0, lane("b", queue="empty")))
    ),
    "a lane lists a message that is not ready": Case(
        "KEEP", "not ready in it", on("ZADD", "lane", lane("b", ("tenant", "b")), args=(1, "a\x1fflying"))
    ),
    "a lane neither takes turns nor waits": Case(
        "MOVES", "neither takes turns nor waits", on("ZREM", "ring", join("t", "default", "b"), args=(lane("b", ("tenant", "b")),))
    ),
    "a tenant with claimable lanes takes no turns": Case(
        "MOVES", "takes no turns in its pool", on("ZREM", "ring", join("p", "default"), args=("b",))
    ),
    "a parked lane is not on its waiting list": Case(
        "MOVES", "not on its waiting list", on("DEL", "waiting", join("default", GROUP_A, "a"))
    ),
    "a waiting tenant is not on the group's list": Case(
        "MOVES", "not on the list there", on("DEL", "ring", WAITERS_A)
    ),
    "a group does not know the pool that waits at it": Case(
        "MOVES", "not known there", on("DEL", "waiters", GROUP_A)
    ),
    "a tenant's counter is wrong": Case("CLEAN", "counter r", on("HINCRBY", "tenant", "b", args=("r", 5))),
    "the namespace's counter is wrong": Case("CLEAN", "counter x", on("HINCRBY", "totals", args=("x", -3))),
    "the order of acceptance is behind": Case("CLEAN", "less than it gave out", on("HSET", "counters", args=("seq", 2))),
    "the order of acceptance is lost": Case("CLEAN", "less than it gave out", on("DEL", "counters")),
    "the order of acceptance is no number": Case("CLEAN", "no number", on("HSET", "counters", args=("seq", "x"))),
    "the count of claims is no number": Case("CLEAN", "no number", on("HSET", "counters", args=("claims", "x"))),
    "the count of deaths is no number": Case("CLEAN", "no number", on("HSET", "counters", args=("dead", "x"))),
    "a tenant that has gone is counted": Case("CLEAN", "counter gone", on("HSET", "present", args=("gone", 2))),
}  # fmt: skip


async def in_every_state(make_queue: MakeQueue, clock: ManualClock) -> FairQueue[Any]:
    queue = await make_queue(limits=[Limit("tenant", default=2)], retry=RetryPolicy.fixed(1))
    await queue.limits.set("tenant", "b", None)
    await put(queue, "a", "dead")
    await (await one(queue)).dead_letter("enough")
    await put(queue, "a", "flying", "flying2", "ready1", "ready2")
    await put(queue, "a", "late", delay=60)
    assert await claimed(queue) == ["flying", "flying2"]
    await put(queue, "b", "b1", "b2")
    assert (await queue.stats("a")).blocked == 2
    assert (await queue.audit()).findings == []
    return queue


@pytest.mark.parametrize("name", CASES)
async def test_damage_is_named_mended_and_everything_goes_on(
    make_queue: MakeQueue, clock: ManualClock, name: str
) -> None:
    case = CASES[name]
    queue = await in_every_state(make_queue, clock)
    await case.damage(queue)

    found = (await queue.audit()).findings
    assert any(finding.check == case.check and case.evidence in finding.evidence for finding in found), found
    assert (await queue.audit()).findings == found  # a look changes nothing

    report = await queue.audit(fix=True)
    assert report.fixed
    assert (await queue.audit()).findings == []

    if await queue.dead_letters.count("a"):
        await queue.dead_letters.redrive_all("a")
    clock.advance(60)
    await queue.reclaim()
    ran = [message.id for message in await drain(queue, batch=10)]
    everything = {"dead", "flying", "flying2", "ready1", "ready2", "late", "b1", "b2"}
    assert everything - set(case.lost) <= set(ran) <= everything
    assert len(ran) == len(set(ran))
    await queue.dead_letters.purge("a")
    assert (await queue.stats()).in_flight == 0


@pytest.mark.parametrize("name", CASES)
async def test_a_claim_never_fails_because_of_damage_elsewhere(
    make_queue: MakeQueue, clock: ManualClock, name: str
) -> None:
    """Before anybody mends anything: tenant b's messages are claimed at once."""
    queue = await in_every_state(make_queue, clock)
    await CASES[name].damage(queue)
    expected = {"b1", "b2"}
    if name in BLOCKING_B:
        expected = set()
    leases = await queue.claim(10)
    assert expected <= {lease.message.id for lease in leases if lease.message.tenant == "b"}
    await queue.audit(fix=True)


BLOCKING_B = {
    "a lane of the wrong type that takes turns",
    "a lane neither takes turns nor waits",
    "a tenant with claimable lanes takes no turns",
}


async def test_a_key_that_is_left_when_all_work_is_done_is_named_and_removed(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    await finish(queue, await queue.claim())
    for kind, command, args in (
        ("dirty", "HSET", (GROUP_A, "dirty")),
        ("groups", "SADD", (GROUP_A,)),
        ("vtime", "HSET", (join("p", "default"), 5)),
        ("pools", "SADD", ("default",)),
        ("present", "HSET", ("a", 3)),
        ("dead_tenants", "SADD", ("a",)),
    ):
        await raw(queue, command, kind, args=args)
    assert {finding.subject for finding in (await queue.audit()).findings} >= {
        "dirty",
        "groups",
        "vtime",
        "pools",
    }
    await queue.audit(fix=True)
    assert (await queue.audit()).findings == []


async def test_a_whole_queue_in_motion_has_no_findings(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await in_every_state(make_queue, clock)
    report = await queue.audit()
    assert (report.ok, report.fixed) == (True, False)
    assert report.checked >= 8


async def test_an_empty_namespace_has_no_findings(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    report = await queue.audit()
    assert (report.ok, report.checked) == (True, 3)  # the counters


async def test_a_fixing_pass_over_a_whole_queue_changes_nothing(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await in_every_state(make_queue, clock)
    before = [await queue.get("a", id_) for id_ in ("flying", "flying2", "ready1", "ready2", "late", "dead")]
    assert (await queue.audit(fix=True)).ok
    assert [
        await queue.get("a", id_) for id_ in ("flying", "flying2", "ready1", "ready2", "late", "dead")
    ] == before
    assert await held(queue, "tenant", "a") == 2


async def test_more_than_one_page_of_everything_is_looked_at(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=700)])
    await put(queue, "a", *(f"m{n}" for n in range(1500)))
    leases = await queue.claim(700)
    for lease in leases[:250]:
        await lease.dead_letter("enough")
    report = await queue.audit()
    assert report.ok
    assert report.checked > 1500 + 450 + 450 + 250
    for n in range(300):
        await faults.leak_slot(queue, "tenant", "a", f"ghost{n}")
    assert len((await queue.audit(fix=True)).findings) == 300
    assert (await queue.audit()).ok


async def test_the_running_go_on_through_a_fixing_pass(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Mending a record that was destroyed must not take the message from whoever runs it."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    lease = await one(queue)
    await faults.delete(queue, "lease", "a", "m1")
    await queue.audit(fix=True)
    assert await state(queue, "a", "m1") == "in_flight"
    assert await held(queue, "tenant", "a") == 1
    assert await claimed(queue) == []
    assert await lease.complete() == "done"


async def test_what_is_new_after_a_mended_counter_stands_behind_what_waits(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2", "m3")
    await raw(queue, "DEL", "counters")
    assert [finding.subject for finding in (await queue.audit(fix=True)).findings] == ["counters/seq"]
    await put(queue, "a", "m4")
    assert await claimed(queue, 10) == ["m1", "m2", "m3", "m4"]


async def test_one_pass_mends_a_broken_lane_whose_message_is_tried_again_later(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Nothing is ready in it then: it must not go on taking turns."""
    queue = await make_queue()
    await faults.wrong_type(queue, "lane", "b", "default")
    sent = await queue.enqueue("m", tenant="b", id="m")
    assert sent.state.value == "delayed"
    assert (await queue.audit(fix=True)).findings
    assert (await queue.audit()).findings == []
    clock.advance(10)
    assert await claimed(queue) == ["m"]


@pytest.mark.parametrize("what", ["pool", "group", "lane", "dead"])
async def test_what_has_emptied_since_the_audit_listed_it_is_no_finding(
    make_queue: MakeQueue, what: str
) -> None:
    """Lists are read first, and what is on them is looked at one by one, on a queue in motion."""
    queue = await make_queue()
    of = {"pool": "side", "group": join("tenant", "a"), "lane": lane("a", ("tenant", "a")), "dead": "a"}[what]
    engine = engine_of(queue)
    assert (await engine.run(engine.calls.audit(what, "0", False, of)))[2] == []
