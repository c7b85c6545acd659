"""The acts beside guarantees: who holds less than it is guaranteed goes first, by lists of which some are outdated."""

from __future__ import annotations

import contextlib
from functools import partial

from fairqueue import ConfigurationError
from fairqueue._engine.keys import join
from tests.engine.tools import raw
from tests.faults.acts import act
from tests.faults.acts_wake import (
    _claim_due,
    _complete,
    _enqueue_more,
    _promote,
    _reclaim,
    _release,
    _set_limit,
    wakes,
)
from tests.faults.crowds import (
    ORG,
    and_then,
    crowd,
    first_lane_unreadable,
    narrow,
    woken,
    woken_for_all,
    woken_often,
)
from tests.faults.scenes import Scene, prepared

OVERBOOKED = (
    "SLOTS '(org|room)/[a-z]+': those who use the group are guaranteed [0-9]+ slots, and its limit is "
)
LEAVES = ("SLOTS 'guarantees/g': the guarantee is no number of slots: rubbish$", OVERBOOKED)
"""It counts as none, and is the doctor's; and nobody asked whether the groups have so much."""
beside = partial(act, leaves=LEAVES)
wakes_beside = partial(wakes, leaves=LEAVES)


async def guaranteed(scene: Scene) -> None:
    """To those at work and those who come last."""
    await raw(scene.queue, "HSET", "settings", args=("guarantees", "1"))
    slots = ("a", 1, "b", 2, "c", 1, "d", 2, "f", 1, "g", "rubbish")
    await raw(scene.queue, "HSET", "guarantees", args=slots)


async def outdated(scene: Scene) -> None:
    """Of those who go first one is gone, one holds enough, and one stands there by an old tag."""
    for scope in (("p", "default"), ("g", "default", *ORG)):
        await raw(
            scene.queue, "ZADD", "below", *scope, args=(-9, "nobody", -8, "a", -7, "b", -6, "c", -5, "f")
        )


async def unlisted(scene: Scene) -> None:
    for scope in (("p", "default"), ("g", "default", *ORG)):
        await raw(scene.queue, "DEL", "below", *scope)


CROWD = and_then(guaranteed, crowd, outdated)
PROMISED = and_then(guaranteed, woken, outdated)

wakes_beside("settle", _complete, CROWD)
wakes_beside("settle", _release, and_then(guaranteed, woken_often, first_lane_unreadable, outdated))
wakes_beside("reclaim", _reclaim, CROWD, and_then(guaranteed, woken_often, first_lane_unreadable, outdated))
wakes_beside("promote", _promote, and_then(guaranteed, woken, first_lane_unreadable, outdated))
wakes_beside("set_limit", _set_limit, CROWD)
for script, go in (("enqueue", _enqueue_more), ("claim", _claim_due)):
    wakes_beside(script, go, and_then(guaranteed, woken_for_all), PROMISED)


@beside("audit_numbers", given=and_then(guaranteed, crowd, unlisted))
async def audit_guarantees(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.audit("numbers", "g0", fix=True))


async def _claim_all(scene: Scene) -> None:
    await scene.queue.claim(10)


wakes_beside(
    "claim", _claim_all, PROMISED, and_then(guaranteed, woken, narrow), and_then(guaranteed, prepared)
)


async def _prepared(scene: Scene) -> None:
    await guaranteed(scene)
    await prepared(scene)
    await scene.add("d", "d1", "d2", org=None)


@beside("retag", given=_prepared)
async def retag_those_who_go_first(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.retag("default", "pool0"))


@beside("set_limit", given=_prepared)
async def set_a_guarantee(scene: Scene) -> None:
    await scene.queue.limits.set("tenant", "b", 2, guaranteed=1)


@beside("set_limit", given=_prepared)
async def take_a_guarantee_away(scene: Scene) -> None:
    await raw(scene.queue, "ZADD", "ring", "p", "default", args=(50, "d", 0, "x"))
    await scene.queue.limits.set("tenant", "d", 2)


@beside("set_limit")
async def take_the_last_guarantee_away(scene: Scene) -> None:
    await raw(scene.queue, "HSET", "settings", args=("guarantees", "1"))
    await raw(scene.queue, "HSET", "guarantees", args=("b", 1))
    await scene.queue.limits.set("tenant", "b", 2)


@beside("enqueue", given=_prepared)
async def enqueue_what_goes_first(scene: Scene) -> None:
    await scene.add("f", "f1", "f2", org=None)


async def _two_lanes_wait(scene: Scene) -> None:
    """One of them is promised a slot for all it has."""
    await guaranteed(scene)
    await raw(scene.queue, "HSET", "limits", args=(join(*ORG), 2, "tenant", 9))
    await scene.add("a", "a1", org="p")
    await scene.add("d", "d0", org="p")
    await scene.take(2)
    await scene.add("d", "d1", org="p")
    await scene.add("d", "d5", org="p", queue="second")
    await scene.add("c", "c9", org=None, delay=5)
    await scene.take(5)
    await scene.done(scene.leases[0])


UNDECLARED = ("SLOTS 'limits/tenant': the value is no limit, or not the one declared: 9$",)


@act("enqueue", given=_two_lanes_wait, leaves=(*LEAVES, *UNDECLARED))
async def enqueue_beside_one_that_waits(scene: Scene) -> None:
    await scene.add("d", "d2", org="p")


@act("claim", given=_two_lanes_wait, leaves=(*LEAVES, *UNDECLARED))
async def claim_what_goes_first(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.queue.claim(10)


@beside("claim", given=_prepared, scheduler="fifo")
async def older_than_its_turn(scene: Scene) -> None:
    """A message comes back to a tenant whose turn was of a later one."""
    await scene.queue.release_many(scene.give_up())
    await scene.add("e", "e1", org=None)
    await scene.queue.claim(2)


async def _back(scene: Scene) -> None:
    await scene.queue.release_many(scene.give_up())


wakes_beside("settle", _back, and_then(guaranteed, prepared), scheduler="fifo")


@beside("tidy", "reconcile_group", given=and_then(guaranteed, crowd, outdated))
async def reconcile_who_goes_first(scene: Scene) -> None:
    """It was lost that there are guarantees."""
    await raw(scene.queue, "HDEL", "settings", args=("guarantees",))
    await scene.queue.reconcile()


async def _in_use(scene: Scene) -> None:
    """Of one tenant all is known, of others nothing; one entry counts no more."""
    await guaranteed(scene)
    await prepared(scene)
    past = scene.clock.now_ms() - 1
    await raw(scene.queue, "ZADD", "uses", "b", args=("inf", "", past, join("org", "old")))
    await raw(scene.queue, "ZADD", "users", *ORG, args=(past, "gone"))


@beside("enqueue", given=_in_use)
async def enqueue_for_a_group(scene: Scene) -> None:
    await scene.add("d", "d7", "d8")


async def _letters(scene: Scene) -> None:
    await _in_use(scene)
    await scene.take(2)
    await scene.bury()


@beside("redrive", given=_letters)
async def redrive_for_a_group(scene: Scene) -> None:
    async for tenant in scene.queue.dead_letters.tenants():
        await scene.queue.dead_letters.redrive_all(tenant)


@act("find_uses", "set_limit")
async def set_a_first_guarantee(scene: Scene) -> None:
    await scene.queue.limits.set("tenant", "a", 2, guaranteed=2)


@act("set_limit")
async def guarantee_to_who_has_nothing(scene: Scene) -> None:
    await scene.queue.limits.set("tenant", "new", 2, guaranteed=2)


async def _set_higher(scene: Scene) -> None:
    await scene.queue.limits.set(*ORG, 4)


@act("set_limit", given=and_then(prepared, _set_higher))
async def reset_a_limit(scene: Scene) -> None:
    await scene.queue.limits.reset(*ORG)


async def _nearly_too_much(scene: Scene) -> None:
    await prepared(scene)
    await scene.queue.limits.set("tenant", "a", 2, guaranteed=2)


@act("find_uses", "set_limit", given=_nearly_too_much)
async def refuse_a_guarantee(scene: Scene) -> None:
    with contextlib.suppress(ConfigurationError):
        await scene.queue.limits.set("tenant", "b", 2, guaranteed=2)


@act("set_limit", given=_nearly_too_much)
async def refuse_a_limit(scene: Scene) -> None:
    with contextlib.suppress(ConfigurationError):
        await scene.queue.limits.set(*ORG, 1)


@beside("audit_uses", "find_uses", given=_in_use)
async def reconcile_who_uses_what(scene: Scene) -> None:
    await scene.queue.reconcile()
    await raw(scene.queue, "DEL", "users", *ORG)
    await scene.queue.reconcile()
