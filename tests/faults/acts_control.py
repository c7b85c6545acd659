"""The acts of an operator: what is paused, resumed, cancelled and purged, and what other scripts meet of it."""

from __future__ import annotations

from typing import Any

from fairqueue._engine.keys import join
from fairqueue.testing import faults
from tests.engine.tools import raw
from tests.faults.acts import act
from tests.faults.acts_wake import wakes
from tests.faults.crowds import ORG, and_then, crowd, first_lane_unreadable, woken
from tests.faults.scenes import Scene, Step, mend, prepared

EVERYTHING: tuple[dict[str, Any], ...] = ({"tenant": "b"}, {"queue": "default"}, {"pool": "default"})


async def resumed(scene: Scene) -> None:
    """Nothing is paused any more; what holds another type is removed."""
    await mend(scene)
    for selectors in EVERYTHING:
        await scene.queue.resume(**selectors)


async def paused(scene: Scene) -> None:
    """The tenant whose turn it is, and a pool in which nobody has work."""
    await scene.queue.pause(tenant="b", by="ops")
    await scene.queue.pause(pool="idle")


async def parked(scene: Scene) -> None:
    """A tenant waits at its pause, and at a limit another."""
    await scene.add("a", "a1", "a2", "a3", org=None)
    await scene.add("b", "b1", "b2", org=None)
    await scene.queue.pause(tenant="b")
    await scene.take(2)


async def _pause(scene: Scene) -> None:
    await scene.queue.pause(tenant="b", by="ops", reason="why")


async def _pause_pool(scene: Scene) -> None:
    await scene.queue.pause(pool="default")


act("pause", after=resumed)(_pause)
act("pause", given=parked, after=resumed)(_pause_pool)
act("pause", given=paused, after=resumed)(_pause)


@act("resume", given=parked, after=resumed)
async def resume(scene: Scene) -> None:
    await scene.queue.resume(tenant="b")


async def _resumed_call(scene: Scene) -> None:
    await parked(scene)
    calls, stream = scene.queue._engine.calls, scene.queue._engine.settle_streams.take()
    scene.call = calls.resume(("b", "", ""), stream=stream)
    await scene.run(scene.call)


@act("resume", given=_resumed_call, after=resumed)
async def resume_again(scene: Scene) -> None:
    """The reply was lost."""
    await scene.run(scene.call)


@act("resume", given=and_then(crowd, _pause_pool), after=resumed)
async def resume_pool(scene: Scene) -> None:
    await scene.queue.resume(pool="default")


@act("claim", given=parked, after=resumed)
async def claim_beside_pauses(scene: Scene) -> None:
    """One lane is to be parked; another pool is paused as a whole."""
    await scene.add("b", "b8", org=None, queue="q2")
    await scene.queue.pause(pool="idle")
    await scene.queue.claim(5, pools=("default", "idle"))


async def _claim(scene: Scene) -> None:
    await scene.queue.claim(5)


async def _release(scene: Scene) -> None:
    await scene.queue.release_many(scene.give_up())


async def _reclaim(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


async def _promote(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


wakes("claim", _claim, and_then(woken, paused), after=resumed)
wakes("settle", _release, and_then(crowd, paused), after=resumed)
wakes("reclaim", _reclaim, and_then(crowd, paused), after=resumed)


async def c_paused(scene: Scene) -> None:
    """The one that is woken when the first lane is found to be unreadable."""
    for tenant in "cdf":
        await scene.queue.pause(tenant=tenant)


async def _all_resumed(scene: Scene) -> None:
    for tenant in "cdf":
        await scene.queue.resume(tenant=tenant)
    await resumed(scene)


wakes("promote", _promote, and_then(woken, first_lane_unreadable, c_paused), after=_all_resumed)


async def promised_alone(scene: Scene) -> None:
    """A slot is promised to a lane, and nobody else needs that group."""
    await raw(scene.queue, "HSET", "limits", args=(join(*ORG), 1))
    await scene.add("d", "d1", org="p")
    await scene.take(1)
    await scene.add("d", "d2", org="p")
    await scene.add("d", "d9", org="p", delay=5)
    await scene.take(5)
    await scene.done(scene.leases[0])


async def _d_paused(scene: Scene) -> None:
    await scene.queue.pause(tenant="d")


async def _d_resumed(scene: Scene) -> None:
    await scene.queue.resume(tenant="d")
    await mend(scene)


async def _d_unreadable(scene: Scene) -> None:
    scene.may_be_gone(("d", "d2"))
    await faults.wrong_type(scene.queue, "lane", "d", "default")


wakes("claim", _claim, and_then(promised_alone, _d_paused), after=_d_resumed)
wakes("promote", _promote, and_then(promised_alone, _d_unreadable), after=mend)


# --- cancel and purge ----------------------------------------------------------------------------------------------


def cancels(*given: tuple[str, str]) -> Step:
    """Cancels these messages one by one: what is cancelled may be gone, whatever fails."""

    async def cancel(scene: Scene) -> None:
        scene.may_be_gone(*given)
        for tenant, id_ in given:
            await scene.queue.cancel(tenant, id_)

    return cancel


def cancel_act(
    name: str, *named_: tuple[str, str], given: Step = prepared, after: Step | None = None
) -> None:
    go = cancels(*named_)
    go.__name__ = name  # type: ignore[attr-defined]
    act("cancel", given=given, after=after)(go)


cancel_act("ready", ("a", "a4"), ("b", "b3"))
cancel_act("delayed", ("c", "later"))
cancel_act("in_flight", ("a", "a1"), ("b", "b1"))


async def _expiring(scene: Scene) -> None:
    await prepared(scene)
    await scene.add("e", "e1", expires=3600)


cancel_act("expiring", ("e", "e1"), given=_expiring)
cancel_act("nothing", ("z", "nothing"))
cancel_act("promised", ("b", "b1"), ("b", "b2"), given=woken)
cancel_act("paused", ("b", "b1"), ("b", "b2"), given=parked, after=resumed)


async def _dead(scene: Scene) -> None:
    await prepared(scene)
    await scene.bury()


cancel_act("dead", ("a", "a1"), ("a", "a2"), given=_dead)


async def _damaged(scene: Scene) -> None:
    """One runs without a header, one is ready with a header that cannot be read, one left its lease record."""
    await prepared(scene)
    await faults.delete(scene.queue, "header", "a", "a1")
    await faults.overwrite(scene.queue, "header", "b", "b3", b"rubbish")
    lease = await raw(scene.queue, "HGET", "leases", args=(join("a", "a2"),))
    await raw(scene.queue, "HSET", "leases", args=(join("c", "later"), lease))


cancel_act("damaged", ("a", "a1"), ("b", "b3"), ("c", "later"), given=_damaged)


async def _cancelled_call(scene: Scene) -> None:
    await prepared(scene)
    scene.may_be_gone(("b", "b3"))
    stream = scene.queue._engine.settle_streams.take()
    scene.call = scene.queue._engine.calls.cancel("b", "b3", stream=stream)
    await scene.run(scene.call)


@act("cancel", given=_cancelled_call)
async def cancel_again(scene: Scene) -> None:
    """The reply was lost."""
    await scene.run(scene.call)


async def marked(scene: Scene) -> None:
    """All that runs is cancelled."""
    await prepared(scene)
    for lease in scene.leases:
        scene.may_be_gone((lease.message.tenant, lease.message.id))
        await scene.queue.cancel(lease.message.tenant, lease.message.id)


@act("extend", given=marked)
async def extend_cancelled(scene: Scene) -> None:
    await scene.queue.extend_many(scene.leases)


@act("settle", given=marked)
async def fail_cancelled(scene: Scene) -> None:
    await scene.queue.fail_many(scene.give_up())


@act("settle", given=marked)
async def complete_cancelled(scene: Scene) -> None:
    await scene.queue.complete_many(scene.leases)


@act("reclaim", given=marked)
async def reclaim_cancelled(scene: Scene) -> None:
    await _reclaim(scene)


async def purge_all(scene: Scene) -> None:
    scene.may_be_gone(*(one for one in scene.accepted if one[0] in "ab"))
    scene.may_be_gone(("c", "later"))
    for tenant in "abc":
        await scene.queue.purge(tenant)


async def purge_lanes(scene: Scene) -> None:
    """What is ready first."""
    scene.may_be_gone(*(one for one in scene.accepted if one[0] in "ab"))
    calls, streams = scene.queue._engine.calls, scene.queue._engine.settle_streams
    for tenant in "ba":
        for lane in await scene.run(calls.lanes(tenant)):
            await scene.run(calls.purge(tenant, "", lane.name, "0", 2**45, stream=streams.take()))


@act("purge")
async def purge_what_is_ready(scene: Scene) -> None:
    await purge_lanes(scene)


@act("purge")
async def purge_what_waits(scene: Scene) -> None:
    await purge_all(scene)


@act("purge", given=parked, after=resumed)
async def purge_what_is_paused(scene: Scene) -> None:
    await purge_lanes(scene)


@act("purge", given=and_then(crowd, first_lane_unreadable), after=mend)
async def purge_beside_an_unreadable_lane(scene: Scene) -> None:
    await purge_lanes(scene)


async def _cut_before(scene: Scene) -> None:
    """A script that ended messages was cut: their entries and payloads are left."""
    await prepared(scene)
    for named_ in (("b", "b3"), ("c", "later")):
        scene.may_be_gone(named_)
        await faults.delete(scene.queue, "header", *named_)


@act("purge", given=_cut_before)
async def purge_what_a_cut_left(scene: Scene) -> None:
    await purge_lanes(scene)


async def _purged_call(scene: Scene) -> None:
    await prepared(scene)
    scene.may_be_gone(("c", "later"))
    stream = scene.queue._engine.settle_streams.take()
    scene.call = scene.queue._engine.calls.purge("c", "", "", "0", 2**45, stream=stream)
    await scene.run(scene.call)


@act("purge", given=_purged_call)
async def purge_again(scene: Scene) -> None:
    """The reply was lost."""
    await scene.run(scene.call)
