"""The acts of time to live: what is not started in time ends, wherever it waits."""

from __future__ import annotations

from datetime import timedelta

from fairqueue._engine.keys import join
from fairqueue.testing import faults
from tests.engine.tools import lane, raw
from tests.faults.acts import act
from tests.faults.crowds import and_then
from tests.faults.scenes import Scene, Step, mend, prepared

SOON = 3


@act("enqueue")
async def enqueue_for_a_time(scene: Scene) -> None:
    await scene.add("d", "d1", "d2", expires=SOON)
    scene.condemned |= {("d", "d1"), ("d", "d2")}


async def dropped(scene: Scene, tenant: str, *ids: str, **options: object) -> None:
    await scene.add(tenant, *ids, org=None, expires=SOON, on_expiry="drop", **options)
    scene.may_be_gone(*((tenant, id_) for id_ in ids))


async def buried(scene: Scene, tenant: str, *ids: str, **options: object) -> None:
    await scene.add(tenant, *ids, org=None, expires=SOON, **options)
    scene.condemned |= {(tenant, id_) for id_ in ids}


async def _expiring(scene: Scene) -> None:
    """Ready, delayed and waiting at a full group; the last of a lane, and the last of a tenant."""
    await prepared(scene)
    await buried(scene, "a", "a8", queue="other")
    await buried(scene, "d", "d1", "d2")
    await buried(scene, "d", "d3", at=scene.clock.now + timedelta(seconds=5))
    await dropped(scene, "e", "e1")
    await dropped(scene, "f", "f1", delay=SOON - 1)
    await scene.add("g", "g1", org=None)


async def _ill_listed(scene: Scene) -> None:
    """Listed too early, listed though gone, and of a call that was cut: its lease would bring the message back."""
    await _expiring(scene)
    await scene.add("h", "h1", org=None, expires=60)
    scene.condemned.add(("h", "h1"))
    await raw(scene.queue, "ZADD", "expiring", args=(1, join("h", "h1"), 1, join("h", "nobody")))
    await dropped(scene, "i", "i1")
    await _cut_claim_of(scene, "i", "i1")
    await raw(scene.queue, "ZADD", "expiring", args=(scene.clock.now_ms() + SOON * 1000, join("i", "i1")))


async def _cut_claim_of(scene: Scene, tenant: str, id_: str) -> None:
    """What a claim leaves that ends before it writes the header."""
    now, mid = scene.clock.now_ms(), join(tenant, id_)
    record = join("00000001.1.cut", "me", str(now), "1", "3", "3", "", lane(tenant, ("tenant", tenant)))
    await raw(scene.queue, "HSET", "leases", args=(mid, record))
    await raw(scene.queue, "ZADD", "deadlines", args=(now + 30_000, mid))
    await raw(scene.queue, "ZREM", "expiring", args=(mid,))


def _unlisted(given: Step) -> Step:
    async def unlisted(scene: Scene) -> None:
        """The claim itself comes to them."""
        await given(scene)
        await raw(scene.queue, "DEL", "expiring")

    return unlisted


async def _no_letters(scene: Scene) -> None:
    await _expiring(scene)
    await faults.wrong_type(scene.queue, "dead", "d")


@act("promote", given=_expiring)
async def promote_ends_what_expired(scene: Scene) -> None:
    scene.clock.advance(SOON)
    await scene.run(scene.queue._engine.calls.promote(100))


@act("promote", given=_ill_listed)
async def promote_meets_what_is_ill_listed(scene: Scene) -> None:
    await promote_ends_what_expired(scene)


@act("claim", given=_expiring)
async def claim_ends_what_expired(scene: Scene) -> None:
    scene.clock.advance(SOON)
    await scene.queue.claim(2)


@act("claim", given=_ill_listed)
async def claim_meets_what_is_ill_listed(scene: Scene) -> None:
    await claim_ends_what_expired(scene)


@act("claim", given=_unlisted(_ill_listed), leaves=("the message is not listed to expire$",))
async def claim_meets_what_is_not_listed(scene: Scene) -> None:
    await claim_ends_what_expired(scene)


@act("claim", given=_no_letters, after=mend)
async def claim_cannot_bury_what_expired(scene: Scene) -> None:
    await claim_ends_what_expired(scene)


@act("claim")
async def claim_in_time(scene: Scene) -> None:
    await scene.add("d", "d1", org=None, expires=SOON)
    scene.condemned.add(("d", "d1"))
    await scene.queue.claim(1)


async def _started(scene: Scene) -> None:
    await buried(scene, "d", "d1", "d2")
    await scene.take(2)


@act("settle", given=and_then(prepared, _started))
async def release_what_expires(scene: Scene) -> None:
    await scene.queue.release_many(scene.give_up())


async def _claim_was_cut(scene: Scene) -> None:
    await buried(scene, "d", "d1")
    await _cut_claim_of(scene, "d", "d1")


@act("reclaim", given=_claim_was_cut)
async def reclaim_lists_what_expires(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


async def audit_what_expires(scene: Scene) -> None:
    """Lists that are damaged are the doctor's; one who was cut is called again."""
    await raw(scene.queue, "ZREM", "expiring", args=(join("d", "d1"),))
    await scene.queue.audit(fix=True)


act("audit_heads", "audit_orphans", given=_ill_listed, again=audit_what_expires)(audit_what_expires)
