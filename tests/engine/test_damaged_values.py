"""Values that are no number, and names that are none, in any key: nothing fails or hangs, it is named, mended, and all drains.

A value stops at most the lane or the message that it belongs to; everybody else is served before anybody mends anything.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from fairqueue import FairQueue, Lease, Limit, NewMessage, RetryPolicy
from fairqueue._engine.keys import US, join
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, lane, one, put, raw

ORG = join("org", "o")
LANE_A, LANE_B = (lane(tenant, ("org", "o")) for tenant in "ab")
POOL_RING, LANES_OF_A, WAITERS = ("p", "default"), ("t", "default", "a"), ("g", "default", "org", "o")
HANGS = 10  # seconds, and far more than anything here takes


class Damage(NamedTuple):
    """One command on one key; ``check`` is the audit's that names it, or None where nothing is to be named."""

    check: str | None
    command: str
    kind: str
    parts: tuple[str, ...]
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return (
            " ".join([self.kind, *self.parts, *map(repr, self.args)]).replace(US, "/").replace("\\x1f", "/")
        )


def hset(check: str | None, kind: str, *parts: str, args: tuple[Any, ...]) -> Damage:
    return Damage(check, "HSET", kind, parts, args)


def zadd(check: str | None, kind: str, *parts: str, args: tuple[Any, ...]) -> Damage:
    return Damage(check, "ZADD", kind, parts, args)


NO_NUMBERS = ["x", "nan", "1.5", "9" * 18]
NO_NAMES = ["", "nobody"]

BATONS = [
    hset("MOVES", "woken", "default", ORG, args=(LANE_A, f"100000000000{US}1")),
    hset("MOVES", "woken", "default", ORG, args=(LANE_A, f"0{US}1")),
    hset("MOVES", "woken", "default", ORG, args=(LANE_A, f"3{US}nan")),
    hset(None, "woken", "default", ORG, args=(LANE_A, f"1{US}nan")),
    hset("MOVES", "woken", "default", ORG, args=(f"{LANE_A}\x1e2", "")),
    *(hset("MOVES", "woken", "default", ORG, args=(name, f"1{US}1")) for name in NO_NAMES),
]
COUNTERS = [
    *(
        hset("CLEAN", "totals", args=(name, "x"))
        for name in ("claimed", "completed", "healed", "enqueued", "r", "d")
    ),
    *(hset("CLEAN", "tenant", "a", args=("completed", value)) for value in NO_NUMBERS),
    *(hset("CLEAN", "tenant", "a", args=(name, "x")) for name in ("r", "d", "x", "enqueued", "retried")),
    *(hset("CLEAN", "present", args=("a", value)) for value in NO_NUMBERS),
    *(
        hset("CLEAN", "counters", args=(name, v))
        for name in ("seq", "claims", "dead")
        for v in [*NO_NUMBERS, "-7"]
    ),
]
TIMES = [
    *(
        hset("MOVES", "vtime", args=(join(*POOL_RING), value))
        for value in ["x", "", "nan", "inf", "-inf", "1e300"]
    ),
    *(hset("MOVES", "vtime", args=(join(*scope), "nan")) for scope in (LANES_OF_A, WAITERS)),
    *(zadd("MOVES", "ring", *POOL_RING, args=(tag, "b")) for tag in ("inf", "-inf", "1e300")),
    *(zadd("MOVES", "ring", "t", "default", "b", args=(tag, lane("b"))) for tag in ("inf", "-inf")),
    *(zadd("MOVES", "ring", *WAITERS, args=(tag, "a")) for tag in ("inf", "-inf", "4e15")),
    *(zadd("MOVES", "tags", *POOL_RING, args=(tag, "a")) for tag in ("inf", "-inf")),
    *(zadd("MOVES", "waiting", "default", ORG, "a", args=(tag, LANE_A)) for tag in ("inf", "-inf")),
    *(zadd("OWNER", "deadlines", args=(at, f"h{US}held")) for at in ("inf", "1e16", "99999999999999")),
    *(zadd("KEEP", "delayed", args=(at, f"a{US}late")) for at in ("inf", "1e16", "-inf", "5")),
    *(zadd("KEEP", "lane", LANE_A, args=(score, f"a{US}a1")) for score in ("inf", "-inf")),
    *(zadd("KEEP", "dead", "a", args=(score, "dead")) for score in ("inf", "-inf")),
]
LIMITS = [
    *(hset("SLOTS", "limits", args=(ORG, value)) for value in ["x", "", "nan", "inf", "-3", "1.5"]),
    *(hset("SLOTS", "limits", args=("org", value)) for value in ["x", "nan"]),
    hset("SLOTS", "limits", args=("nobody", "nan")),
]
NAMES = [
    *(zadd("KEEP", "delayed", args=(score, name)) for name in [*NO_NAMES, US] for score in (0, "inf")),
    *(zadd("OWNER", "deadlines", args=(score, name)) for name in NO_NAMES for score in (0, "inf")),
    *(hset("KEEP", "head", args=(name, "")) for name in NO_NAMES),
    *(hset("OWNER", "leases", args=(name, "")) for name in NO_NAMES),
    *(hset("OWNER", "leases", args=(name, join("t", "", "1", "1", "", "", LANE_A))) for name in NO_NAMES),
    *(hset("CLEAN", kind, args=(name, "")) for kind in ("body", "notes") for name in NO_NAMES),
    *(hset("MOVES", "vtime", args=(name, "5")) for name in NO_NAMES),
    *(hset(None, kind, args=(name, "1")) for kind in ("dirty", "stopped") for name in NO_NAMES),
    *(Damage("SLOTS", "SADD", "groups", (), (name,)) for name in NO_NAMES),
    *(Damage("MOVES", "SADD", "pools", (), (name,)) for name in NO_NAMES),
    *(Damage("KEEP", "SADD", "dead_tenants", (), (name,)) for name in ("", US)),
    *(Damage(None, "SADD", "waiters", (ORG,), (name,)) for name in NO_NAMES),
    *(hset("CLEAN", "present", args=(name, "1")) for name in NO_NAMES),
    *(hset("SLOTS", "slots", ORG, args=(name, "token")) for name in NO_NAMES),
    *(zadd("KEEP", "lane", LANE_A, args=(0, name)) for name in NO_NAMES),
    *(zadd("MOVES", "ring", "t", "default", "b", args=(0, name)) for name in NO_NAMES),
    *(zadd("MOVES", "ring", *POOL_RING, args=(0, name)) for name in NO_NAMES),
    *(zadd(None, "ring", *WAITERS, args=(0, name)) for name in NO_NAMES),
    *(zadd(None, "waiting", "default", ORG, "a", args=(0, name)) for name in NO_NAMES),
]  # fmt: skip
ALL = [*BATONS, *COUNTERS, *TIMES, *LIMITS, *NAMES]
FIFO = [(damage, "fifo") for damage in [*BATONS[:4], *TIMES[:20]]]


def org(id_: str, tenant: str) -> NewMessage[Any]:
    return NewMessage(id_, tenant=tenant, id=id_, metadata={"org": "o"})


async def busy(make_queue: MakeQueue, scheduler: str) -> tuple[FairQueue[Any], Lease[Any], set[str]]:
    """Work in every state: h holds the one slot of org o, a and b wait for it, b has lanes that wait for nothing."""
    queue = await make_queue(
        limits=[Limit("org", default=1, key="org")], retry=RetryPolicy.fixed(1), scheduler=scheduler
    )
    await queue.enqueue("dead", tenant="a", id="dead")
    await (await one(queue)).dead_letter("enough")
    await queue.enqueue("late", tenant="a", id="late", delay=60)
    await queue.enqueue_many([org("held", "h")])
    lease = await one(queue)
    await queue.enqueue_many([org("a1", "a"), org("a2", "a"), org("b1", "b")])
    assert await queue.claim(10) == []
    await queue.enqueue_many([NewMessage(id_, tenant="b", id=id_) for id_ in ("free1", "free2")])
    assert not (await queue.audit()).findings
    return queue, lease, {"late", "held", "a1", "a2", "b1", "free1", "free2"}


async def everything_is_called(queue: FairQueue[Any], lease: Lease[Any]) -> set[str]:
    """No call fails; who is not meant is served. Returns whose work is done."""
    free = await queue.claim(2)
    assert len(free) == 2
    await free[0].complete()
    await free[1].fail("once more")
    await queue.reconcile()
    await lease.extend()
    assert await lease.complete() == "done"
    await queue.enqueue_many([org("b2", "b"), NewMessage("c", tenant="c", id="c")])
    assert (await queue.stats()).dead == 1
    assert (await queue.stats("a")).tenant == "a"
    assert (await queue.limits.get("org", "o")).limit == 1
    await queue.get("a", "late")
    await queue.messages("a")
    _ = [[one async for one in queue.queues("a")], [one async for one in queue.limits.list("org")]]
    await queue.reclaim()
    return {free[0].message.id, "held"}


@pytest.mark.parametrize(("damage", "scheduler"), [*((damage, "fair") for damage in ALL), *FIFO], ids=str)
async def test_a_damaged_value_stops_nobody_and_is_named_and_mended(
    make_queue: MakeQueue, clock: ManualClock, damage: Damage, scheduler: str
) -> None:
    queue, lease, accepted = await busy(make_queue, scheduler)
    await raw(queue, damage.command, damage.kind, *damage.parts, args=damage.args)
    async with asyncio.timeout(HANGS):
        found = (await queue.audit()).findings
        assert damage.check is None or damage.check in {finding.check for finding in found}, found
        assert (await queue.audit()).findings == found  # a look changes nothing
        ended = await everything_is_called(queue, lease)
        await queue.audit(fix=True)
        assert not (await queue.audit()).findings
        for _ in range(3):
            clock.advance(60)
            await queue.reclaim()
            ended |= {message.id for message in await drain(queue)}
    assert accepted | {"b2", "c"} <= ended
    assert await queue.dead_letters.redrive_all("a") == 1
    assert [message.id for message in await drain(queue)] == ["dead"]


@pytest.mark.parametrize("damage", [*BATONS, *COUNTERS[-3:], *TIMES, *LIMITS[:1], *NAMES[::6]], ids=str)
async def test_one_fixing_pass_mends_a_damaged_value_that_nobody_has_met(
    make_queue: MakeQueue, clock: ManualClock, damage: Damage
) -> None:
    queue, lease, accepted = await busy(make_queue, "fair")
    await raw(queue, damage.command, damage.kind, *damage.parts, args=damage.args)
    async with asyncio.timeout(HANGS):
        await queue.audit(fix=True)
        assert not (await queue.audit()).findings
    assert await lease.complete() == "done"
    clock.advance(60)
    assert {message.id for message in await drain(queue)} == accepted - {"held"}


@pytest.mark.parametrize("value", ["7", "none"])
async def test_a_default_that_is_not_the_declared_one_is_named_and_mended(
    make_queue: MakeQueue, value: str
) -> None:
    queue, lease, _ = await busy(make_queue, "fair")
    await raw(queue, "HSET", "limits", args=("org", value))
    (named,) = [one for one in (await queue.audit()).findings if one.subject == "limits/org"]
    assert value in named.evidence
    await queue.audit(fix=True)
    assert not (await queue.audit()).findings
    assert (await queue.limits.get("org", "o")).limit == 1
    assert await lease.complete() == "done"


STRAYS = {
    "a name that is none": ("nobody", "x"),
    "a lane of another tenant": (f"zz{US}q{US}default", f"1{US}1{US}0{US}1"),
    "a lane that takes no turns": (lane("zz", ("org", "o")), f"1{US}1{US}0{US}1"),
    "a further one without a first": (f"{LANE_A}\x1e9", f"1{US}0"),
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
async def test_a_slot_promised_to_nobody_comes_back_by_itself(
    make_queue: MakeQueue, stray: tuple[str, str]
) -> None:
    """Nothing is held, and the only slot is kept for a lane that will not come."""
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await raw(queue, "HSET", "woken", "default", ORG, args=stray)
    for tenant in "ab":
        await queue.enqueue(1, tenant=tenant, metadata={"org": "o"})
    await queue.claim(5)
    await queue.reconcile()
    assert len(await drain(queue)) == 2


@pytest.mark.parametrize("value", ["x", f"1{US}1{US}0{US}1", f"3{US}3{US}0{US}7"])
async def test_promises_that_their_lane_no_longer_counts_come_back_by_themselves(
    make_queue: MakeQueue, value: str
) -> None:
    queue = await make_queue(limits=[Limit("org", default=3, key="org")])
    await queue.enqueue_many(NewMessage(n, tenant="a", metadata={"org": "o"}) for n in range(20))
    running = await queue.claim(5)
    await queue.complete_many(running)
    await raw(queue, "HSET", "woken", "default", ORG, args=(LANE_A, value))
    for _ in range(2):
        await queue.complete_many(await queue.claim(5))
        await queue.reconcile()
    assert len(await queue.claim(5)) == 3


@pytest.mark.parametrize("at", ["inf", "1e16", 10**12])
async def test_a_due_time_that_was_moved_to_later_is_put_back_by_reconcile(
    make_queue: MakeQueue, clock: ManualClock, at: float | str
) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}", delay=5) for n in range(300)])
    for name in (join("a", "m7"), join("a", "nobody"), "nobody"):
        score = at if isinstance(at, str) else clock.now_ms() + at
        await raw(queue, "ZADD", "delayed", args=(score, name))
    await queue.reconcile()
    assert await queue.claim() == [], "nor before its time"
    clock.advance(5)
    assert len(await queue.claim(300)) == 300
    assert await raw(queue, "ZCARD", "delayed") == 0


MAX_ATTEMPTS, SEQ, ENQUEUED_AT, MOVED_AT = 8, 11, 12, 13


@pytest.mark.parametrize("digits", [17, 20, 5000])
@pytest.mark.parametrize("field", [MAX_ATTEMPTS, SEQ, ENQUEUED_AT, MOVED_AT])
async def test_a_header_with_a_number_too_long_stops_nobody_else(
    make_queue: MakeQueue, field: int, digits: int
) -> None:
    """Python refuses to read some that Lua reads: no claim may be lost for that with all that it brought."""
    queue = await make_queue()
    await put(queue, "a", "m", "n")
    fields = (await raw(queue, "HGET", "head", args=[join("a", "m")])).split(US.encode())
    fields[field] = b"9" * digits
    await faults.overwrite(queue, "header", "a", "m", US.encode().join(fields))
    assert await queue.get("a", "m") is None
    assert [info.message.id for info in (await queue.messages("a"))[0]] == ["n"]
    assert await claimed(queue, 5) == ["n"]
    (letter,), _ = await queue.dead_letters.list("a")
    assert (letter.message.id, letter.reason, letter.message.payload) == ("m", "unreadable", "m")


@pytest.mark.parametrize("instant", ["9" * 5000, "9" * 20, "\u00b2", "", "-1", "x"])
async def test_an_instant_that_cannot_be_read_stops_no_look(make_queue: MakeQueue, instant: str) -> None:
    queue = await make_queue(retry=RetryPolicy.none())
    await put(queue, "a", "dead", "runs")
    dead, runs = await queue.claim(2)
    await dead.fail("no")
    await raw(queue, "HSET", "notes", args=(join("a", "dead"), join("failed", instant, "no")))
    lease = (await raw(queue, "HGET", "leases", args=(join("a", "runs"),))).decode().split(US)
    lease[2] = instant
    await raw(queue, "HSET", "leases", args=(join("a", "runs"), join(*lease)))
    (letter,), _ = await queue.dead_letters.list("a")
    assert (letter.message.id, letter.error) == ("dead", None)
    info = await queue.get("a", "runs")
    assert info is not None
    assert str(info.state) == "in_flight"
    await queue.audit(fix=True)
    assert await runs.complete() == "done"
