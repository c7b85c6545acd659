"""The acts at groups with a rate: tokens are taken, come, are promised, and lanes wait for them."""

from __future__ import annotations

from fairqueue import NewMessage
from fairqueue._engine.keys import join
from fairqueue.testing import faults
from tests.engine.tools import raw
from tests.faults.acts import act
from tests.faults.crowds import and_then
from tests.faults.scenes import Scene

ORG, OTHER, ROOM, GONE = join("org", "s"), join("org", "t"), join("room", "x"), join("org", "gone")


def rate(n: int, per: int, burst: int) -> str:
    return join(str(n), str(per), str(burst))


async def rated(scene: Scene) -> None:
    """Two orgs are out of tokens and a room is too: lanes wait at the orgs, some of them need the room as well."""
    rates = {ORG: rate(1, 10_000, 2), OTHER: rate(1, 9_000, 1), ROOM: rate(3, 100_000, 1)}
    await raw(scene.queue, "HSET", "rates", args=[word for pair in rates.items() for word in pair])
    await scene.add("a", "a1", org="s")
    await scene.add("d", "d0", org="s")
    await scene.add("e", "e0", org="t")
    await scene.take(3)
    await scene.add("b", "b1", "b2", org="s", room="x")
    await scene.add("d", "d1", org="s")
    await scene.add("e", "e1", org="t")
    await scene.add("b", "b9", org="s", room="x", delay=5)
    await scene.take(5)


async def _damaged(scene: Scene) -> None:
    """The room owes more than it can; a group that has no rate is to be woken."""
    await raw(scene.queue, "HSET", "arrivals", args=(ROOM, join(str(scene.clock.now_ms() + 10**9), "1")))
    await raw(scene.queue, "ZADD", "rated", args=(1, GONE))


async def _tokens_come(scene: Scene) -> None:
    await rated(scene)
    await _damaged(scene)
    scene.clock.advance(10)


async def _leftover(scene: Scene) -> None:
    """The slots are full, too; a message that waits has one of them from before."""
    await rated(scene)
    await faults.leak_slot(scene.queue, "org", "s", "b1", tenant="b")
    await raw(scene.queue, "HSET", "limits", args=(ORG, 3))
    scene.clock.advance(10)


@act("claim", given=_tokens_come)
async def claim_what_tokens_came_for(scene: Scene) -> None:
    await scene.queue.claim(5)


@act("promote", given=_tokens_come)
async def promote_what_tokens_came_for(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.promote(100))


@act("claim", given=_leftover)
async def claim_over_leftover_with_a_token(scene: Scene) -> None:
    await scene.queue.claim(5)


@act("promote", given=_leftover)
async def promote_over_leftover_with_a_token(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.promote(100))


@act("settle", given=_tokens_come)
async def release_when_tokens_came(scene: Scene) -> None:
    await scene.queue.release_many(scene.give_up())


@act("reclaim", given=and_then(rated, _damaged))
async def reclaim_when_tokens_came(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


async def _promised(scene: Scene) -> None:
    """A token came, and is promised to the one message of a lane."""
    await rated(scene)
    await raw(scene.queue, "HSET", "rates", args=(ORG, rate(1, 10_000, 6)))  # enough for who is left
    await _damaged(scene)
    for lease in list(scene.leases):
        await scene.done(lease)
    scene.clock.advance(30)
    await scene.run(scene.queue._engine.calls.promote(100))


async def _promised_at_an_org_that_owes_more_than_it_can(scene: Scene) -> None:
    await _promised(scene)
    await raw(scene.queue, "HSET", "arrivals", args=(ORG, join(str(scene.clock.now_ms() + 10**9), "0")))
    await raw(scene.queue, "DEL", "rated")
    await raw(scene.queue, "HSET", "dirty", args=(join("org", "u"), "dirty"))


@act("enqueue", given=_promised)
async def enqueue_where_no_second_token_can_come(scene: Scene) -> None:
    """It goes first: the one token is what a claim comes by to what a cut left of it, until another comes."""
    await scene.add("e", "e2", org="t", priority=9)


@act("enqueue", given=_promised_at_an_org_that_owes_more_than_it_can)
async def enqueue_where_a_token_is_promised(scene: Scene) -> None:
    scene.maybe.add(("d", "d2"))
    await scene.queue.enqueue_many([NewMessage("d2", tenant="d", id="d2", metadata={"org": "s"})])
    scene.accepted.add(("d", "d2"))


@act("set_rate", given=rated)
async def set_rate(scene: Scene) -> None:
    await raw(scene.queue, "HSET", "arrivals", args=(ROOM, join(str(scene.clock.now_ms() + 90_000), "1")))
    await scene.queue.limits.set_rate("room", "x", 7, per=10, burst=2)


@act("set_rate", given=rated)
async def remove_rate(scene: Scene) -> None:
    await scene.queue.limits.set_rate("org", "s", None)


async def _nobody_told(scene: Scene) -> None:
    await rated(scene)
    await _damaged(scene)
    await raw(scene.queue, "DEL", "rated")


async def _rubbish(scene: Scene) -> None:
    await raw(scene.queue, "HSET", "arrivals", args=(GONE, "rubbish"))


async def _doctor(scene: Scene) -> None:
    await scene.queue.audit(fix=True)


@act("audit_group", given=_nobody_told)
async def audit_waiters_for_tokens(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.audit("group", "0", fix=True, of=ORG))


@act("audit_numbers", given=and_then(_nobody_told, _rubbish), after=_doctor)
async def audit_arrivals(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.audit("numbers", "a0", fix=True))
