"""The acts of enqueue."""

from __future__ import annotations

from dataclasses import replace

from fairqueue._engine.calls import NewRow
from fairqueue.testing import faults
from tests.engine.tools import lane
from tests.faults.acts import act
from tests.faults.scenes import Scene, mend, prepared


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


UNREADABLE = ("^KEEP 'a/a4': the header cannot be read$",)
"""What is enqueued has to be judged by it: only the doctor, or who comes to it, makes it a dead letter."""


@act("enqueue", given=_stored, leaves=UNREADABLE)
async def enqueue_what_is_there(scene: Scene) -> None:
    await scene.run(scene.call)


async def _enqueued(scene: Scene) -> None:
    await _stored(scene)
    await scene.run(scene.call)


@act("enqueue", given=_enqueued, leaves=UNREADABLE)
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


async def _bounded(scene: Scene) -> None:
    await prepared(scene)
    await scene.queue.limits.set_backlog("a", 2)
    await scene.add("d", "seen", org=None, dedupe_for=60)
    await scene.done((await scene.take(1))[0])
    engine = scene.queue._engine
    rows = [
        _row("a", "a9"),
        replace(_row("d", "seen"), dedupe_ms=60_000),
        replace(_row("e", "e1"), dedupe_ms=60_000),
    ]
    scene.maybe.add(("e", "e1"))
    scene.call = engine.calls.enqueue(engine.settle_streams.take(), rows)


@act("enqueue", given=_bounded)
async def enqueue_beyond_a_backlog(scene: Scene) -> None:
    """One tenant is refused, one id was seen before, and one is new."""
    await scene.run(scene.call)


@act("set_backlog")
async def set_backlog(scene: Scene) -> None:
    await scene.queue.limits.set_backlog("a", 5)
    await scene.queue.limits.set_backlog("a", None)
