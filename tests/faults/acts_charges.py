"""The acts that put right what was charged: by the time that messages took, and where nothing had begun."""

from __future__ import annotations

from typing import Any

from fairqueue._engine.calls import SettleRow
from fairqueue.testing import faults
from tests.faults.acts import act
from tests.faults.acts_settle import named
from tests.faults.crowds import crowd, woken
from tests.faults.scenes import Scene, prepared


async def settled_by_time(scene: Scene, seconds: float, action: str = "complete") -> None:
    rows = [
        SettleRow(one.message.tenant, one.message.id, one.token, action, seconds=seconds)
        for one in scene.leases
    ]
    scene.may_be_gone(*named(scene.leases))
    engine = scene.queue._engine
    await scene.run(engine.calls.settle(engine.settle_streams.take(), rows, 60_000))
    scene.give_up()


async def _various(scene: Scene) -> None:
    """One whose tenant takes turns, one that left with a tag ahead, and one whose turn virtual time has passed."""
    await scene.add("left", "l1", org=None)
    await scene.add("turns", "t1", "t2", "t3", org=None, cost=3)
    await scene.take(2)
    await scene.add("ahead", "h1", org=None)
    await scene.take(1)
    await scene.add("others", "o1", "o2", "o3", "o4", org=None)
    for _ in range(2):
        lease = (await scene.take(1))[0]
        await scene.done(lease)


@act("settle", given=_various)
async def settle_what_took_long(scene: Scene) -> None:
    await settled_by_time(scene, 60)


@act("settle", given=_various)
async def settle_what_was_quick(scene: Scene) -> None:
    await settled_by_time(scene, 0)


@act("settle", given=prepared)
async def settle_long_where_others_wait(scene: Scene) -> None:
    await settled_by_time(scene, 60)


async def _note_of_another_type(scene: Scene) -> None:
    await prepared(scene)
    await faults.wrong_type(scene.queue, "service", str(scene.clock.now_ms() // 60_000 % 64))


@act("settle", given=_note_of_another_type)
async def settle_notes_anew(scene: Scene) -> None:
    """What the fairness report is made of cannot be read: it begins again."""
    await settled_by_time(scene, 60)


@act("settle", given=crowd)
async def settle_long_in_a_crowd(scene: Scene) -> None:
    await settled_by_time(scene, 60)


@act("settle", given=woken)
async def release_ahead_in_a_crowd(scene: Scene) -> None:
    await scene.queue.release_many(scene.give_up())


@act("settle", given=woken)
async def release_ahead_for_later(scene: Scene) -> None:
    for lease in scene.give_up():
        await lease.release(delay=5)


async def _timed(scene: Scene) -> None:
    """What messages take is known of one tenant."""
    await prepared(scene)
    lease = scene.leases[0]
    row = SettleRow(lease.message.tenant, lease.message.id, lease.token, "fail", 60_000, seconds=2)
    scene.leases.remove(lease)
    engine = scene.queue._engine
    await scene.run(engine.calls.settle(engine.settle_streams.take(), [row], 60_000))


@act("claim", given=_timed)
async def claim_by_time(scene: Scene) -> None:
    engine = scene.queue._engine
    stream: Any = engine.claim_streams.take(("default",))
    await scene.run(engine.calls.claim(stream, 3, 30_000, "me", ("default",), by_time=True))
