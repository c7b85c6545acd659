"""The acts that wake: what is freed goes to lanes that wait for it, some of them damaged."""

from __future__ import annotations

from typing import Any

from fairqueue.testing import faults
from tests.engine.tools import raw
from tests.faults.acts import act
from tests.faults.acts_return import ONE_CRASH
from tests.faults.acts_settle import named
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
from tests.faults.scenes import Scene, Step, mend


async def _c_unreadable(scene: Scene) -> None:
    """First come, first served: it is another lane that slots are promised to."""
    await woken(scene)
    await roomy(scene)
    await scene.add("c", "c9", org="p", delay=5)
    scene.may_be_gone(("c", "c1"), ("c", "c2"), ("c", "c3"))
    await faults.wrong_type(scene.queue, "lane", "c", "default")


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


async def _weigh(scene: Scene) -> None:
    """Whose lanes wait, or were promised slots."""
    await scene.queue.tenants.set_weight("b", 0.5)


async def _weighed(scene: Scene) -> None:
    await raw(scene.queue, "HSET", "weights", args=("b", "4"))


wakes("set_weight", _weigh, woken, woken_often, and_then(woken_often, _weighed))
wakes("settle", _complete, and_then(crowd, _weighed))
