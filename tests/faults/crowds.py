"""Those who wait at full groups, and what may be wrong with the lists they stand on: what every waking script meets."""

from __future__ import annotations

from fairqueue._engine.keys import join
from fairqueue.testing import faults
from tests.engine.tools import lane, raw
from tests.faults.scenes import Scene, Step

ORG, ROOM = ("org", "p"), ("room", "r")


async def crowd(scene: Scene) -> None:
    """Two messages hold the two slots of an org and those of a room; lanes wait for the one, the other, and both."""
    await raw(scene.queue, "HSET", "limits", args=(join(*ORG), 2, join(*ROOM), 2))
    await scene.add("a", "a1", org="p", room="r")
    await scene.add("b", "b0", org="p", room="r")
    await scene.take(2)
    await scene.add("b", "b1", "b2", org="p", room="r")
    await scene.add("c", "c1", "c2", "c3", org="p")
    await scene.add("d", "d1", org="p")
    await scene.add("e", "e1", org=None, room="r")
    await scene.add("f", "f1", org="p", room="r")
    await scene.add("b", "b9", org="p", room="r", delay=5)
    await scene.take(5)


async def crowd_of_one_tenant(scene: Scene) -> None:
    """Several lanes of one tenant, which wait for one group or for both."""
    await raw(scene.queue, "HSET", "limits", args=(join(*ORG), 1))
    await scene.add("a", "a1", org="p", room="r")
    await scene.take(1)
    await scene.add("b", "b1", "b2", org="p", room="r")
    await scene.add("b", "b3", org="p", queue="q2")
    await scene.add("b", "b4", org=None, room="r", queue="q3")
    await scene.take(5)


async def woken(scene: Scene) -> None:
    """A slot of each became free: both are promised to the first lane, which has a message at work and one delayed."""
    await crowd(scene)
    await scene.done(scene.leases[0])


async def woken_for_all(scene: Scene) -> None:
    """A lane is promised a slot for the one message it had, and the org is full with that; more comes to it."""
    await raw(scene.queue, "HSET", "limits", args=(join(*ORG), 2))
    await raw(scene.queue, "HSET", "weights", args=("d", 2))
    await scene.add("a", "a1", org="p")
    await scene.add("d", "d0", org="p")
    await scene.take(2)
    await scene.add("d", "d1", org="p")
    await scene.add("d", "d9", org="p", delay=5)
    await scene.take(5)
    await scene.done(scene.leases[0])


async def woken_often(scene: Scene) -> None:
    """The first lane is promised several slots."""
    await crowd(scene)
    await raw(scene.queue, "HSET", "limits", args=(join(*ROOM), 9))
    await scene.queue.limits.set("org", "p", 9)


# --- what may be wrong -----------------------------------------------------------------------------------------------


async def nothing(_: Scene) -> None:
    """All is as it should be."""


async def roomy(scene: Scene) -> None:
    """The limit was raised, and nobody was woken."""
    await raw(scene.queue, "HSET", "limits", args=(join(*ORG), 7))


async def narrow(scene: Scene) -> None:
    """The same, but the limit of the room was lowered."""
    await raw(scene.queue, "HSET", "limits", args=(join(*ORG), 7, join(*ROOM), 1))


async def leftover_of_the_next(scene: Scene) -> None:
    """The next lane would be kept out of the room, but for a slot that it has there from before."""
    await narrow(scene)
    await faults.leak_slot(scene.queue, *ROOM, "f1", tenant="f")


async def unlimited(scene: Scene) -> None:
    await raw(scene.queue, "HSET", "limits", args=(join(*ORG), "none"))


async def dirty(scene: Scene) -> None:
    """The org waits to be reconciled."""
    await raw(scene.queue, "HSET", "dirty", args=(join(*ORG), "dirty"))


async def uncountable(scene: Scene) -> None:
    """The org's slots hold another type."""
    await faults.wrong_type(scene.queue, "slots", *ORG)


async def leftover(scene: Scene) -> None:
    """Both groups are overfull: by slots of messages that wait at them."""
    for id_ in ("c1", "c2"):
        await faults.leak_slot(scene.queue, *ORG, id_, tenant="c")
    for tenant, id_ in (("b", "b1"), ("f", "f1")):
        await faults.leak_slot(scene.queue, *ROOM, id_, tenant=tenant)


async def odd_lists(scene: Scene) -> None:
    """A list is gone, on one stands a stranger, one lane is gone, and one cannot be read."""
    await raw(scene.queue, "DEL", "waiting", "default", *ORG, "c")
    await raw(scene.queue, "ZADD", "waiting", "default", *ORG, "d", args=(-5, lane("x", ORG)))
    await raw(scene.queue, "DEL", "lane", lane("d", ("tenant", "d"), ORG))
    scene.may_be_gone(("d", "d1"), ("f", "f1"))
    await faults.wrong_type(scene.queue, "lane", "f", "default")


async def first_lane_unreadable(scene: Scene) -> None:
    """The lane that a slot is promised to, or that is the first to wait, holds another type."""
    scene.may_be_gone(("b", "b1"), ("b", "b2"))
    await faults.wrong_type(scene.queue, "lane", "b", "default")


async def wrong_numbers(scene: Scene) -> None:
    """Counters that gave out more, a default that is no limit, a promise of more slots than there are, due times too early."""
    first = lane("b", ("tenant", "b"), ORG, ROOM)
    await raw(scene.queue, "HSET", "woken", "default", "tenant", "b", args=(first, "1\x1f1"))
    await scene.add("h", "h1", org=None, delay=90)
    await scene.add("h", "h2", org=None, delay=5)
    await faults.overwrite(scene.queue, "header", "h", "h2", b"rubbish")
    await raw(scene.queue, "HSET", "counters", args=("seq", -5, "claims", -5, "dead", -5))
    await raw(scene.queue, "HSET", "totals", args=("enqueued", "rubbish"))
    await raw(scene.queue, "HSET", "limits", args=("tenant", "rubbish"))
    await raw(scene.queue, "HSET", "weights", args=("h", "rubbish"))
    await raw(scene.queue, "HSET", "backlogs", args=("h", "rubbish"))
    await raw(scene.queue, "HSET", "woken", "default", *ORG, args=(first, "5000\x1f1"))
    await raw(scene.queue, "ZADD", "delayed", args=(1, join("h", "h1"), 1, "nameless"))
    await raw(scene.queue, "HSET", "head", args=("nameless", "rubbish"))
    await raw(scene.queue, "HSET", "vtime", args=("nowhere", "rubbish"))
    await raw(scene.queue, "SADD", "pools", args=("nowhere",))
    await raw(scene.queue, "ZADD", "ring", "p", "default", args=(5, ""))


ODD = (nothing, roomy, narrow, leftover_of_the_next, unlimited, dirty, uncountable, leftover, odd_lists)


def and_then(*steps: Step) -> Step:
    """These steps one after another, called like all of them but ``nothing``."""

    async def together(scene: Scene) -> None:
        for step in steps:
            await step(scene)

    together.__name__ = "_".join(step.__name__ for step in steps if step is not nothing)  # type: ignore[attr-defined]
    return together
