"""The acts of claim: what a claim meets, from a full tenant to what somebody's hand left behind."""

from __future__ import annotations

from dataclasses import replace

from fairqueue._engine.keys import join
from fairqueue.testing import faults
from tests.engine.tools import lane, raw
from tests.faults.acts import act
from tests.faults.acts_return import old_and_due
from tests.faults.acts_wake import wakes
from tests.faults.crowds import (
    ODD,
    and_then,
    crowd,
    first_lane_unreadable,
    roomy,
    woken,
    woken_often,
    wrong_numbers,
)
from tests.faults.scenes import Scene, mend, prepared

ORG = ("org", "o")


@act("claim")
async def claim(scene: Scene) -> None:
    await scene.leases[0].complete()
    scene.end(scene.leases.pop(0))
    scene.clock.advance(6)
    await scene.queue.claim(3)


async def _claim_made(scene: Scene) -> None:
    """The reply of a claim is lost: nobody knows that these three are held."""
    await scene.add("a", "a1", "a2", "a3")
    await scene.add("b", "b1", queue="other")
    engine = scene.queue._engine
    stream = engine.claim_streams.take(("default",))
    scene.call = engine.calls.claim(stream, 3, 30_000, "me", ("default",))
    await scene.run(scene.call)
    fewer = engine.calls.claim(replace(stream), 2, 30_000, "me", ("default",))
    scene.call = replace(fewer, number=stream.call)


@act("claim", given=_claim_made)
async def claim_again(scene: Scene) -> None:
    """The same call, asking for fewer: it gets two of the three, and the third is kept for the next call."""
    assert scene.call
    await scene.run(scene.call)


async def _rubbish(scene: Scene) -> None:
    """Unreadable headers in a lane and among the delayed, entries without a message, and one in another's lane."""
    await scene.add("a", "a1", "a2", "a3", org=None)
    await scene.add("b", "b1", "b2", "b3", org=None, queue="other")
    await scene.add("c", "late1", "late2", "late3", delay=5, org=None)
    for tenant, id_ in (("a", "a1"), ("c", "late1")):
        await faults.overwrite(scene.queue, "header", tenant, id_, b"rubbish")
    for tenant, id_ in (("a", "a2"), ("c", "late2")):
        await faults.delete(scene.queue, "header", tenant, id_)
        scene.may_be_gone((tenant, id_))
    other = lane("b", ("tenant", "b"))  # a queue of the same tenant that has no messages
    await raw(scene.queue, "ZADD", "lane", other, args=(1, join("b", "b2")))
    await raw(scene.queue, "ZADD", "ring", "t", "default", "b", args=(0, other))
    scene.clock.advance(6)


UNREADABLE = ("^KEEP 'a/a1': the header cannot be read$",)


@act("claim", given=_rubbish, leaves=UNREADABLE)
async def claim_meets_rubbish(scene: Scene) -> None:
    await scene.queue.claim(10)


@act("promote", given=_rubbish, leaves=UNREADABLE)
async def promote_rubbish(scene: Scene) -> None:
    await faults.wrong_type(scene.queue, "notes")
    await scene.run(scene.queue._engine.calls.promote(100))


@act("promote", given=_rubbish, after=mend, leaves=UNREADABLE)
async def promote_cannot_bury(scene: Scene) -> None:
    """The dead letters hold another type."""
    await faults.wrong_type(scene.queue, "dead", "c")
    await raw(scene.queue, "HSET", "counters", args=("dead", "rubbish"))
    await scene.run(scene.queue._engine.calls.promote(100))


@act("claim", given=_rubbish, after=mend, leaves=UNREADABLE)
async def claim_cannot_bury(scene: Scene) -> None:
    """The dead letters hold another type: what cannot be read is tried again later."""
    await faults.wrong_type(scene.queue, "dead", "a")
    await scene.queue.claim(10)


async def _strangers(scene: Scene) -> None:
    """In the rings and on a list: lanes that are not the tenant's, names that no tenant can have, tenants without a lane."""
    await prepared(scene)
    await scene.add("d", "d1", org=None)
    await raw(scene.queue, "ZADD", "ring", "t", "default", "d", args=(-1, lane("x")))
    await raw(scene.queue, "ZADD", "ring", "p", "default", args=(-3, ""))
    await raw(scene.queue, "ZADD", "ring", "p", "default", args=(-2, "nobody"))
    await scene.add("e", "e1", org=None)
    await raw(scene.queue, "DEL", "ring", "t", "default", "e")  # it is evicted
    await scene.done(scene.leases[0])


STRANGE = (
    "^MOVES 'd': a lane that is not the tenant's takes turns",
    "^MOVES 'lane/e/.* neither takes turns nor waits",
)


@act("claim", given=_strangers, leaves=STRANGE)
async def claim_meets_strangers(scene: Scene) -> None:
    await scene.queue.claim(10)


async def _leftover(scene: Scene) -> None:
    """A message that waits at a group that its own leftover slot keeps full."""
    await scene.add("a", "a1", "a2", "a3")
    await scene.take(1)
    await faults.leak_slot(scene.queue, "tenant", "a", "a3")


@act("claim", given=_leftover)
async def claim_over_leftover(scene: Scene) -> None:
    await scene.queue.claim(3)


async def _many_holders(scene: Scene) -> None:
    """So many slots are held that not each of them is looked at."""
    await _leftover(scene)
    ghosts = [word for n in range(130) for word in (join("a", f"ghost{n}"), "token")]
    await raw(scene.queue, "HSET", "slots", "tenant", "a", args=ghosts)
    await scene.queue.limits.set("tenant", "a", 132)


@act("claim", given=_many_holders)
async def claim_over_one_of_many(scene: Scene) -> None:
    await scene.queue.claim(3)


async def _shut(scene: Scene) -> None:
    """The tenant of the lane that slots are promised to may start nothing any more."""
    await raw(scene.queue, "HSET", "limits", args=(join("tenant", "b"), 0))


async def _reopen(scene: Scene) -> None:
    await mend(scene)
    await scene.queue.limits.set("tenant", "b", None)


async def _doctor(scene: Scene) -> None:
    await scene.queue.audit(fix=True)


async def _claim(scene: Scene) -> None:
    """The lane that was woken cannot come in: others are woken for its slots."""
    await scene.queue.claim(5)


wakes(
    "claim",
    _claim,
    *(and_then(woken, odd, _shut) for odd in ODD),
    and_then(woken_often, _shut),
    after=_reopen,
)
wakes("claim", _claim, *(and_then(scene, first_lane_unreadable) for scene in (woken, woken_often)))


wakes("claim", _claim, and_then(woken, roomy, _shut), after=_reopen, scheduler="fifo")


async def _sent_on(scene: Scene) -> None:
    """An entry of a lane belongs to another, which waits and cannot be read."""
    await crowd(scene)
    await first_lane_unreadable(scene)
    await scene.add("h", "h1", org=None)
    await raw(scene.queue, "ZADD", "lane", lane("h", ("tenant", "h")), args=(0, join("b", "b1")))


wakes("claim", _claim, _sent_on)
wakes("claim", _claim, and_then(woken, wrong_numbers), after=_doctor)


@act("claim", given=old_and_due, scheduler="fifo")
async def claim_what_is_due(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.queue.claim(1)


async def _alone(scene: Scene) -> None:
    await scene.add("d", "d1", org=None)


@act("claim", given=_alone)
async def claim_the_last(scene: Scene) -> None:
    """Nobody is left to take turns."""
    await scene.queue.claim(1)


async def _one_of_two_waits(scene: Scene) -> None:
    await raw(scene.queue, "HSET", "limits", args=(join("org", "p"), 1))
    await scene.add("a", "a1", org="p")
    await scene.take(1)
    await scene.add("b", "b1", org="p")
    await scene.add("b", "b2", org=None, queue="q2")


@act("claim", given=_one_of_two_waits, scheduler="fifo")
async def claim_past_one_that_waits(scene: Scene) -> None:
    await scene.queue.claim(2)


@act("claim", given=woken_often)
async def claim_what_was_promised(scene: Scene) -> None:
    await scene.queue.claim(9)


async def _promised(scene: Scene, slots: int) -> None:
    """All slots of an org are promised to one tenant."""
    free = (word for tenant in "cd" for word in (join("tenant", tenant), "none"))
    await raw(scene.queue, "HSET", "limits", args=(join("org", "p"), slots, *free))
    await scene.add("c", *(f"c{n}" for n in range(3 * slots)), org="p")
    await scene.take(slots)
    await scene.take(slots)
    for lease in list(scene.leases):
        await scene.done(lease)


async def _all_promised(scene: Scene) -> None:
    """Another one comes."""
    await _promised(scene, 4)
    await scene.add("d", "d1", "d2", "d3", org="p")


async def _many_promised(scene: Scene) -> None:
    """Another one comes to a wide group: more promises than a claim looks at."""
    await _promised(scene, 20)
    await scene.add("d", "d1", "d2", org="p")


async def _last_promised(scene: Scene) -> None:
    """Another one comes when one has come for all but one of its slots."""
    await _promised(scene, 2)
    await scene.take(1)
    await scene.add("d", "d1", "d2", "d3", org="p")


@act("claim", given=_all_promised)
async def claim_what_another_was_promised(scene: Scene) -> None:
    await scene.queue.claim(4)


@act("claim", given=_many_promised)
async def claim_one_of_many_promised(scene: Scene) -> None:
    await scene.queue.claim(1)


@act("claim", given=_last_promised)
async def claim_the_last_that_another_was_promised(scene: Scene) -> None:
    await scene.queue.claim(4)


async def _dirty(scene: Scene) -> None:
    """Groups that cannot be counted, or wait to be: their lanes are passed over."""
    await prepared(scene)
    await scene.add("d", "d1", "d2", org="q", room="r")
    await scene.add("d", "d3", org=None, queue="free")
    await faults.wrong_type(scene.queue, "slots", "org", "q")
    await raw(scene.queue, "HSET", "dirty", args=(join("room", "r"), "dirty"))
    await scene.done(scene.leases[0])


@act("claim", given=_dirty, leaves=("^SLOTS 'org/q': the slots key holds a string, not a hash$",))
async def claim_meets_dirty_groups(scene: Scene) -> None:
    await scene.queue.claim(5)


@act("claim", scheduler="fifo")
async def claim_in_order(scene: Scene) -> None:
    """First come, first served: lanes that are older than their tags, and younger."""
    await scene.done(scene.leases[0])
    await scene.add("d", "d1", "d2", org=None)
    await raw(scene.queue, "ZADD", "ring", "p", "default", args=("XX", 0, "d"))
    await raw(scene.queue, "ZADD", "ring", "t", "default", "d", args=(0, lane("d", ("tenant", "d"))))
    await scene.queue.claim(5)


async def _broken(scene: Scene) -> None:
    """A lane, a ring and the counters hold what they should not."""
    await prepared(scene)
    await scene.add("d", "d1", org=None)
    await scene.add("e", "e1", org=None)
    await scene.done(scene.leases[0])
    scene.may_be_gone(("d", "d1"))
    await faults.wrong_type(scene.queue, "lane", "d", "default")
    await faults.wrong_type(scene.queue, "ring", "t", "default", "e")
    await raw(scene.queue, "HSET", "counters", args=("claims", "rubbish"))


BROKEN = (
    "^CLEAN 'counters/claims': the counter is no number",
    "^MOVES '(lane/)?e.* holds a string, not a zset$",
)


@act("claim", given=_broken, after=mend, leaves=BROKEN)
async def claim_meets_wrong_types(scene: Scene) -> None:
    await scene.queue.claim(5)


async def _note_of_another_type(scene: Scene) -> None:
    await prepared(scene)
    await scene.done(scene.leases[0])
    await faults.wrong_type(scene.queue, "service", str(scene.clock.now_ms() // 60_000 % 64))


@act("claim", given=_note_of_another_type)
async def claim_notes_anew(scene: Scene) -> None:
    """What the fairness report is made of cannot be read: it begins again."""
    await scene.queue.claim(2)


@act("waiting_now")
async def fairness(scene: Scene) -> None:
    await scene.queue.fairness()
