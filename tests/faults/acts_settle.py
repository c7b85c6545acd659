"""The acts of settle."""

from __future__ import annotations

from typing import Any

from fairqueue import Lease, Limit
from fairqueue._engine.calls import SettleRow
from fairqueue.testing import faults
from tests.engine.tools import raw
from tests.faults.acts import act
from tests.faults.scenes import Scene, mend, prepared


def named(leases: list[Lease[Any]]) -> list[tuple[str, str]]:
    return [(lease.message.tenant, lease.message.id) for lease in leases]


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


async def half_settled(scene: Scene) -> None:
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


@act("settle", given=half_settled)
async def complete_half_settled(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    call = _settle(scene, "complete")
    scene.give_up()  # the messages are with others by now, or may be
    await scene.run(call)


@act("settle", given=half_settled)
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


@act("settle", given=_records_gone, leaves=("^CLEAN 'notes': the key holds a string, not a hash$",))
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


NOWHERE = (
    "CLEAN 'counters/dead': the counter is no number",
    "^KEEP 'a/a[34]': the message is ready but not in its lane$",
)


@act("settle", given=_no_place_to_go, after=mend, leaves=NOWHERE)
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


async def last_of_all(scene: Scene) -> None:
    await scene.add("a", "a1")
    await scene.take(1)
    scene.clock.advance(31)
    await scene.queue.reclaim()


@act("settle", given=last_of_all)
async def complete_the_last_late(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    await scene.run(_settle(scene, "complete"))
    scene.give_up()
