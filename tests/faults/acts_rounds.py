"""The acts under the scheduler "drr": who takes turns in rounds."""

from __future__ import annotations

from typing import Any

from tests.faults.acts import act
from tests.faults.acts_charges import settled_by_time
from tests.faults.acts_return import only_lane_unreadable
from tests.faults.acts_settle import last_of_all, named
from tests.faults.scenes import Scene, mend, prepared

DRR: dict[str, Any] = {"scheduler": "drr"}


async def _costly(scene: Scene) -> None:
    """Some fit into a round and some do not."""
    await prepared(scene)
    await scene.add("d", "d1", "d2", org=None, cost=3)
    await scene.add("e", "e1", "e2", org=None, cost=0.5)


@act("claim", given=_costly, **DRR)
async def claim_in_rounds(scene: Scene) -> None:
    await scene.take(6)


@act("enqueue", **DRR)
async def enqueue_in_rounds(scene: Scene) -> None:
    await scene.add("f", "f1", "f2", org=None)


async def _alone(scene: Scene) -> None:
    await scene.add("a", "a1", "a2", "a3", org=None)
    await scene.add("b", "b1", org=None)
    await scene.take(2)


@act("settle", given=_alone, **DRR)
async def settle_by_time_in_rounds(scene: Scene) -> None:
    await settled_by_time(scene, 7)


@act("promote", given=_costly, **DRR)
async def promote_in_rounds(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


@act("reclaim", given=_costly, **DRR)
async def reclaim_in_rounds(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


@act("settle", given=last_of_all, **DRR)
async def complete_the_last_of_a_round(scene: Scene) -> None:
    scene.may_be_gone(*named(scene.leases))
    await scene.queue.complete_many(scene.give_up())


@act("promote", given=only_lane_unreadable, after=mend, **DRR)
async def promote_to_the_only_lane_of_a_round(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


@act("reclaim", given=only_lane_unreadable, after=mend, **DRR)
async def reclaim_to_the_only_lane_of_a_round(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


@act("set_weight", given=_costly, **DRR)
async def weigh_in_rounds(scene: Scene) -> None:
    await scene.take(3)
    await scene.queue.tenants.set_weight("d", 5)


@act("retag", given=_costly, after=mend, **DRR)
async def level_rounds(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.retag("default", "pool0"))
