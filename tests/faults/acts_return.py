"""The acts of extend, promote, reclaim, redrive, purge, set_limit and set_weight: what comes back, or stays out for longer."""

from __future__ import annotations

from fairqueue import Limit, RetryPolicy
from fairqueue._engine.keys import join
from fairqueue.testing import faults
from tests.engine.tools import raw
from tests.faults.acts import act
from tests.faults.acts_settle import dead_letter, half_settled, named
from tests.faults.scenes import Scene, mend, prepared


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


async def old_and_due(scene: Scene) -> None:
    """What comes due is older than what its lane and its tenant stand for."""
    await scene.add("d", "d1", org=None, delay=5)
    await scene.add("d", "d2", org=None)


@act("promote", given=old_and_due, scheduler="fifo")
async def promote_in_order(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


async def only_lane_unreadable(scene: Scene) -> None:
    await scene.add("d", "d1", "d2", org=None)
    await scene.add("d", "d3", org=None, delay=5)
    await scene.take(1)
    scene.may_be_gone(("d", "d2"))
    await faults.wrong_type(scene.queue, "lane", "d", "default")


@act("promote", given=only_lane_unreadable, after=mend)
async def promote_to_the_only_lane(scene: Scene) -> None:
    """It cannot be read: nobody is left to take turns."""
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


@act("reclaim", given=only_lane_unreadable, after=mend)
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


async def _remains(scene: Scene) -> None:
    """Of purges and enqueues that were cut: a payload, a note, an entry of the list, and something that runs."""
    await prepared(scene)
    await raw(scene.queue, "HSET", "body", args=(join("a", "body"), "0:1"))
    await raw(scene.queue, "HSET", "notes", args=(join("a", "note"), join("no", "1", "no")))
    await raw(scene.queue, "ZADD", "dead", "a", args=(7, "listed"))
    await raw(scene.queue, "SADD", "dead_tenants", args=("a",))


async def _doctor(scene: Scene) -> None:
    await scene.queue.audit(fix=True)


@act("purge_dead", given=_remains, after=_doctor)
async def purge_remains(scene: Scene) -> None:
    engine = scene.queue._engine
    ids = ["body", "note", "listed", "nothing"]
    await scene.run(engine.calls.purge_dead("a", ids, engine.settle_streams.take()))


@act("set_limit")
async def set_limit(scene: Scene) -> None:
    await scene.queue.limits.set("org", "o", 10)


@act("set_weight", "charged_at")
async def set_weight(scene: Scene) -> None:
    await scene.queue.tenants.set_weight("a", 2)


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


@act("reclaim", given=half_settled)
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
