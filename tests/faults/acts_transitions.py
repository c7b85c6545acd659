"""The acts of enqueue, settle, extend, promote, reclaim, redrive, purge and set_limit."""

from __future__ import annotations

from typing import Any

from fairqueue import Lease, Limit, RetryPolicy
from fairqueue._engine.calls import NewRow, SettleRow
from fairqueue._engine.keys import join
from fairqueue.testing import faults
from tests.engine.tools import lane, raw
from tests.faults.acts import act
from tests.faults.crowds import (
    ODD,
    and_then,
    crowd,
    crowd_of_one_tenant,
    first_lane_unreadable,
    roomy,
    woken,
    woken_for_all,
    woken_often,
    wrong_numbers,
)
from tests.faults.scenes import Scene, Step, mend, prepared


def named(leases: list[Lease[Any]]) -> list[tuple[str, str]]:
    return [(lease.message.tenant, lease.message.id) for lease in leases]


# --- enqueue ---------------------------------------------------------------------------------------------------------


@act("enqueue")
async def enqueue(scene: Scene) -> None:
    await scene.add("d", "d1", "d2", queue="new")
    await scene.add("a", "a5", delay=3)


async def _stored(scene: Scene) -> None:
    """Some are there already: ready, dead, and one whose header cannot be read."""
    await prepared(scene)
    dead = scene.leases.pop()
    await dead.dead_letter("no")
    await faults.overwrite(scene.queue, "header", "a", "a4", b"rubbish")
    rows = [_row("a", id_) for id_ in ("a4", dead.message.id, "a9")]
    engine = scene.queue._engine
    scene.call = engine.calls.enqueue(engine.settle_streams.take(), rows)


def _row(tenant: str, id_: str, due_in_ms: int = 0) -> NewRow:
    return NewRow(tenant, id_, lane(tenant, ("tenant", tenant)), 0, 1.0, due_in_ms, None, None, b"0:{}1")


@act("enqueue", given=_stored)
async def enqueue_what_is_there(scene: Scene) -> None:
    await scene.run(scene.call)


async def _enqueued(scene: Scene) -> None:
    await _stored(scene)
    await scene.run(scene.call)


@act("enqueue", given=_enqueued)
async def enqueue_again(scene: Scene) -> None:
    """The reply was lost."""
    await scene.run(scene.call)


@act("enqueue")
async def enqueue_delayed(scene: Scene) -> None:
    """Before all others: a timer is set anew. The counters hold another type."""
    await faults.wrong_type(scene.queue, "totals")
    await scene.add("d", "d1", delay=3)


async def _no_lane(scene: Scene) -> None:
    await scene.add("d", "d1")
    scene.may_be_gone(("d", "d1"))
    await faults.wrong_type(scene.queue, "lane", "d", "default")


@act("enqueue", given=_no_lane, after=mend)
async def enqueue_without_a_lane(scene: Scene) -> None:
    await scene.add("d", "d2", "d3")


@act("enqueue", scheduler="fifo")
async def enqueue_in_order(scene: Scene) -> None:
    await scene.add("d", "d1", org=None)
    await scene.add("d", "d2", org=None)


# --- settle ----------------------------------------------------------------------------------------------------------


@act("settle")
async def complete(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    await scene.queue.complete_many(scene.leases)


@act("settle")
async def fail(scene: Scene) -> None:
    await scene.queue.fail_many(scene.give_up(), "no")


@act("settle")
async def release(scene: Scene) -> None:
    await scene.queue.release_many(scene.give_up())


@act("settle")
async def dead_letter(scene: Scene) -> None:
    await scene.bury()


def _settle(scene: Scene, action: str, **options: Any) -> Any:
    rows = [
        SettleRow(one.message.tenant, one.message.id, one.token, action, **options) for one in scene.leases
    ]
    engine = scene.queue._engine
    return engine.calls.settle(engine.settle_streams.take(), rows, 60_000)


async def _settled(scene: Scene) -> None:
    await prepared(scene)
    scene.may_be_gone(*named(scene.leases))
    scene.call = _settle(scene, "complete")
    await scene.run(scene.call)
    scene.give_up()


@act("settle", given=_settled)
async def complete_again(scene: Scene) -> None:
    """The reply was lost."""
    await scene.run(scene.call)


async def _half_settled(scene: Scene) -> None:
    """A settle was cut after it had moved the messages: one is ready, one delayed, one dead, and their leases are there."""
    await prepared(scene)
    leases = await raw(scene.queue, "HGETALL", "leases")
    one, two, three = scene.leases
    await one.release()
    await two.release(delay=60)
    await three.dead_letter("no")
    await raw(scene.queue, "HSET", "leases", args=[word for pair in leases.items() for word in pair])
    at = scene.clock.now_ms() + 30_000
    await raw(scene.queue, "ZADD", "deadlines", args=[word for mid in leases for word in (at, mid)])


@act("settle", given=_half_settled)
async def complete_half_settled(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    call = _settle(scene, "complete")
    scene.give_up()  # the messages are with others by now, or may be
    await scene.run(call)


@act("settle", given=_half_settled)
async def fail_half_settled(scene: Scene) -> None:
    call = _settle(scene, "fail")
    scene.give_up()
    await scene.run(call)


async def _reclaimed(scene: Scene) -> None:
    await prepared(scene)
    scene.clock.advance(31)
    await scene.queue.reclaim()


@act("settle", given=_reclaimed)
async def complete_late(scene: Scene) -> None:
    """The leases had expired, and nobody took the messages since."""
    scene.may_be_gone(*named(scene.leases))
    await scene.run(_settle(scene, "complete"))
    scene.give_up()


async def _last_try(scene: Scene) -> None:
    await scene.add("a", "a1", "a2", max_attempts=1)
    await scene.add("b", "b1", max_attempts=1)
    await scene.take(3)


@act("settle", given=_last_try)
async def fail_for_good(scene: Scene) -> None:
    await scene.queue.fail_many(scene.give_up(), "no")


@act("settle", given=_last_try, dead_letters=False)
async def fail_and_drop(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    await scene.queue.fail_many(scene.give_up(), "no")


async def _records_gone(scene: Scene) -> None:
    """One has no lease record, one no header, one neither a readable slot nor a place among the dead letters to go to."""
    await prepared(scene)
    one, two, three = (lease.message for lease in scene.leases)
    await faults.delete(scene.queue, "lease", one.tenant, one.id)
    await faults.delete(scene.queue, "header", two.tenant, two.id)
    await faults.wrong_type(scene.queue, "slots", "tenant", three.tenant)
    await faults.wrong_type(scene.queue, "notes")


@act("settle", given=_records_gone)
async def fail_without_records(scene: Scene) -> None:
    await scene.queue.fail_many(scene.give_up(), "no")


async def _no_place_to_go(scene: Scene) -> None:
    """The lanes and the dead letters of those that are held are of the wrong type, one of the lanes has batons."""
    await prepared(scene)
    lost = [(tenant, id_) for tenant in ("a", "b") for id_ in ("a2", "a3", "a4", "b2")]
    scene.may_be_gone(*lost)
    await faults.wrong_type(scene.queue, "lane", "a", "default")
    await faults.wrong_type(scene.queue, "dead", "b")
    await raw(scene.queue, "HSET", "counters", args=("dead", "rubbish"))


@act("settle", given=_no_place_to_go, after=mend)
async def nowhere_to_go(scene: Scene) -> None:
    rows = [
        SettleRow(one.message.tenant, one.message.id, one.token, action)
        for one, action in zip(scene.leases, ("release", "dead", "dead"), strict=True)
    ]
    scene.give_up()
    engine = scene.queue._engine
    await scene.run(engine.calls.settle(engine.settle_streams.take(), rows, 60_000))


@act("settle", scheduler="fifo", limits=[Limit("tenant", default=9)])
async def release_in_order(scene: Scene) -> None:
    """What comes back is older than what its lane and its tenant stand for."""
    await scene.queue.release_many(scene.give_up())


async def _last_of_all(scene: Scene) -> None:
    await scene.add("a", "a1")
    await scene.take(1)
    scene.clock.advance(31)
    await scene.queue.reclaim()


@act("settle", given=_last_of_all)
async def complete_the_last_late(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    await scene.run(_settle(scene, "complete"))
    scene.give_up()


# --- the others ------------------------------------------------------------------------------------------------------


@act("extend")
async def extend(scene: Scene) -> None:
    await scene.queue.extend_many(scene.leases)


@act("extend")
async def extend_without_a_record(scene: Scene) -> None:
    await faults.delete(scene.queue, "lease", scene.leases[0].message.tenant, scene.leases[0].message.id)
    await scene.queue.extend_many(scene.leases)


@act("promote")
async def promote(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


async def _c_unreadable(scene: Scene) -> None:
    """First come, first served: it is another lane that slots are promised to."""
    await woken(scene)
    await roomy(scene)
    await scene.add("c", "c9", org="p", delay=5)
    scene.may_be_gone(("c", "c1"), ("c", "c2"), ("c", "c3"))
    await faults.wrong_type(scene.queue, "lane", "c", "default")


async def old_and_due(scene: Scene) -> None:
    """What comes due is older than what its lane and its tenant stand for."""
    await scene.add("d", "d1", org=None, delay=5)
    await scene.add("d", "d2", org=None)


@act("promote", given=old_and_due, scheduler="fifo")
async def promote_in_order(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


async def _only_lane_unreadable(scene: Scene) -> None:
    await scene.add("d", "d1", "d2", org=None)
    await scene.add("d", "d3", org=None, delay=5)
    await scene.take(1)
    scene.may_be_gone(("d", "d2"))
    await faults.wrong_type(scene.queue, "lane", "d", "default")


@act("promote", given=_only_lane_unreadable, after=mend)
async def promote_to_the_only_lane(scene: Scene) -> None:
    """It cannot be read: nobody is left to take turns."""
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


@act("reclaim", given=_only_lane_unreadable, after=mend)
async def reclaim_to_the_only_lane(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


@act("redrive")
async def redrive(scene: Scene) -> None:
    await dead_letter(scene)
    for tenant in ("a", "b"):
        await scene.queue.dead_letters.redrive_all(tenant)


@act("purge_dead")
async def purge(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    await dead_letter(scene)
    for tenant in ("a", "b"):
        await scene.queue.dead_letters.purge(tenant)


@act("set_limit")
async def set_limit(scene: Scene) -> None:
    await scene.queue.limits.set("org", "o", 10)


@act("reclaim")
async def reclaim(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


ONE_CRASH = RetryPolicy(max_crashes=1)


@act("reclaim", retry=ONE_CRASH, after=mend)
async def reclaim_for_good(scene: Scene) -> None:
    """The last crash that is allowed; for one tenant the dead letters cannot be written."""
    await faults.wrong_type(scene.queue, "dead", "b")
    await faults.wrong_type(scene.queue, "notes")
    await raw(scene.queue, "HSET", "counters", args=("dead", "rubbish"))
    scene.clock.advance(31)
    await scene.queue.reclaim()


async def _last_lease(scene: Scene) -> None:
    await scene.add("a", "a1")
    await scene.take(1)


@act("reclaim", given=_last_lease, retry=ONE_CRASH, dead_letters=False)
async def reclaim_and_drop(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    scene.clock.advance(31)
    await scene.queue.reclaim()


async def _records_damaged(scene: Scene) -> None:
    """One has no lease record, one no header, and one a header that cannot be read; there is a deadline of nothing."""
    await prepared(scene)
    one, two, three = (lease.message for lease in scene.leases)
    await faults.delete(scene.queue, "lease", one.tenant, one.id)
    await faults.delete(scene.queue, "header", two.tenant, two.id)
    await faults.overwrite(scene.queue, "header", three.tenant, three.id, b"rubbish")
    await raw(scene.queue, "ZADD", "deadlines", args=(1, join("a", "nothing")))
    scene.clock.advance(31)


@act("reclaim", given=_records_damaged)
async def reclaim_damaged(scene: Scene) -> None:
    await scene.queue.reclaim()


async def _half_buried(scene: Scene) -> None:
    """A settle was cut when it had listed a message among the dead letters, before it said that it is dead."""
    await prepared(scene)
    one = scene.leases[0].message
    await raw(scene.queue, "ZADD", "dead", one.tenant, args=(1, one.id))
    await raw(scene.queue, "SADD", "dead_tenants", args=(one.tenant,))


@act("reclaim", given=_half_buried)
async def reclaim_half_buried(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


@act("reclaim", given=_half_settled)
async def reclaim_half_settled(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


async def _started_unknown(scene: Scene) -> None:
    """What the server remembers of its last start is of the wrong type."""
    await prepared(scene)
    await faults.wrong_type(scene.queue, "served")


@act("reclaim", given=_started_unknown, after=mend)
async def reclaim_after_an_outage(scene: Scene) -> None:
    """The server runs anew: leases of before are held back."""
    scene.clock.advance(31)
    await scene.run(scene.queue._engine.calls.reclaim(100, 15_000))


async def _reclaimed_call(scene: Scene) -> None:
    await prepared(scene)
    scene.clock.advance(31)
    scene.call = scene.queue._engine.calls.reclaim(100)
    await scene.run(scene.call)


@act("reclaim", given=_reclaimed_call)
async def reclaim_again(scene: Scene) -> None:
    """The reply was lost."""
    await scene.run(scene.call)


@act("reclaim", scheduler="fifo", limits=[Limit("tenant", default=9)])
async def reclaim_in_order(scene: Scene) -> None:
    """What comes back is older than what its lane and its tenant stand for."""
    scene.clock.advance(31)
    await scene.queue.reclaim()


# --- those that wake -------------------------------------------------------------------------------------------------


def wakes(script: str, go: Step, *scenes: Step, after: Step = mend, **options: Any) -> None:
    """An act for each scene: ``go`` is what makes the script run."""
    for given in scenes:

        async def act_on(scene: Scene) -> None:
            await go(scene)

        words = [
            go.__name__.strip("_"),
            given.__name__.strip("_"),
            *map(str, filter(None, [options.get("scheduler")])),
        ]  # type: ignore[attr-defined]
        act_on.__name__ = "_".join(words)
        act(script, given=given, after=after, **options)(act_on)


async def _complete(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    await scene.queue.complete_many(scene.leases)


async def _release(scene: Scene) -> None:
    await scene.queue.release_many(scene.give_up())


async def _reclaim(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


async def _promote(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


async def _set_limit(scene: Scene) -> None:
    await scene.queue.limits.set("org", "p", 3)


CROWDS = [and_then(crowd, odd) for odd in ODD]
UNREADABLE = [and_then(scene, first_lane_unreadable) for scene in (crowd, woken, woken_often)]


async def _bury(scene: Scene) -> None:
    await scene.bury()


async def _enqueue(scene: Scene) -> None:
    await scene.add("g", "g1", org=None)


async def _enqueue_there(scene: Scene) -> None:
    """To the lane that was promised slots."""
    await scene.add("b", "b5", org="p", room="r")


async def _doctor(scene: Scene) -> None:
    await scene.queue.audit(fix=True)


WRONG_NUMBERS = and_then(woken, wrong_numbers)

wakes("enqueue", _enqueue, WRONG_NUMBERS, after=_doctor)
wakes("settle", _bury, WRONG_NUMBERS, after=_doctor)
wakes("reclaim", _reclaim, WRONG_NUMBERS, after=_doctor, retry=ONE_CRASH)
UNREADABLE_TOO = and_then(WRONG_NUMBERS, first_lane_unreadable)
wakes("promote", _promote, UNREADABLE_TOO, after=_doctor)
wakes("enqueue", _enqueue_there, WRONG_NUMBERS, UNREADABLE_TOO, after=_doctor)
wakes("settle", _release, UNREADABLE_TOO, after=_doctor)
wakes("reclaim", _reclaim, UNREADABLE_TOO, after=_doctor)
wakes("settle", _complete, *CROWDS, crowd_of_one_tenant)
wakes("settle", _release, *UNREADABLE)
wakes("reclaim", _reclaim, *CROWDS, crowd_of_one_tenant, *UNREADABLE)
wakes(
    "promote",
    _promote,
    *(and_then(woken, first_lane_unreadable, odd) for odd in ODD),
    UNREADABLE[0],
    UNREADABLE[2],
)
wakes("settle", _complete, crowd, scheduler="fifo")
wakes("reclaim", _reclaim, crowd, scheduler="fifo")
wakes("promote", _promote, _c_unreadable, and_then(woken, first_lane_unreadable, roomy), scheduler="fifo")


async def _enqueue_more(scene: Scene) -> None:
    await scene.add("d", "d2", org="p")


async def _claim_due(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.queue.claim(1)


for script, go in (
    ("enqueue", _enqueue_more),
    ("settle", _release),
    ("reclaim", _reclaim),
    ("promote", _promote),
    ("claim", _claim_due),
):
    wakes(script, go, woken_for_all)
wakes("set_limit", _set_limit, *CROWDS, crowd_of_one_tenant)
