"""A key that holds another type is named by the doctor and filled again from the messages, whichever key it is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairqueue import FairQueue, FairQueueError, Limit, NewMessage
from fairqueue._engine import script
from fairqueue._engine.keys import INDEXES, IRREPLACEABLE, KEYS, US, key
from fairqueue.errors import ConfigurationError, DamagedKeyError
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import finish, put
from tests.support.dump import stored

SCRIPTS = Path(script.__file__).parent / "scripts"
REBUILT = sorted(kind for kind, spec in KEYS.items() if not spec.of and kind not in IRREPLACEABLE)
CHECKS = {
    "KEEP": {"head", "body", "delayed", "delayed_names", "dead_tenants", "doubtful"},
    "OWNER": {"leases", "deadlines"},
    "SLOTS": {"limits", "guarantees", "rates", "arrivals", "pauses", "groups", "dirty"},
    "MOVES": {"settings", "counters", "stopped", "vtime", "pools", "weights", "expiring", "rated"},
    "CLEAN": {"notes", "present", "totals", "workers", "worker_info", "served", "backlogs"},
}
POOL, TENANT, ORG = "default", "a", ("org", "x")
RINGS = {
    "pool ring": ("ring", "p", POOL),
    "tenant ring": ("ring", "t", POOL, TENANT),
    "group ring": ("ring", "g", POOL, *ORG),
    "tags": ("tags", "t", POOL, TENANT),
    "parked": ("parked", POOL, TENANT),
    "blocked": ("blocked", POOL),
    "waiters": ("waiters", *ORG),
    "woken": ("woken", POOL, *ORG),
    "waiting": ("waiting", POOL, *ORG, TENANT),
}


async def busy(make_queue: MakeQueue) -> FairQueue[Any]:
    """Work in every state, and lanes that wait at a full shared group."""
    queue = await make_queue(limits=[Limit("tenant", default=2), Limit("org", default=3, key="o")])
    for tenant in "abc":
        await queue.enqueue_many(
            [NewMessage(n, tenant=tenant, metadata={"o": "x"}, queue=f"q{n % 2}") for n in range(4)]
        )
    await queue.enqueue(1, tenant="d", delay=100)
    dead, failed, _ = await queue.claim(3)
    await dead.dead_letter("no")
    await failed.fail("later")
    await queue.claim(2)
    return queue


async def spoil(queue: FairQueue[Any], where: str) -> None:
    await queue._engine.command("DEL", where)
    await queue._engine.command("SET", where, "not what it was")


async def everything_runs(queue: FairQueue[Any], clock: ManualClock) -> None:
    assert (await queue.audit()).findings
    assert (await queue.audit(fix=True)).findings
    assert not (await queue.audit()).findings
    ran = 0
    for _ in range(3):
        clock.advance(5000)
        await queue.reclaim()
        ran += len(await drain(queue))
    assert ran == 12
    assert await queue.dead_letters.count("a") + await queue.dead_letters.count("b") == 1


@pytest.mark.parametrize("kind", REBUILT)
async def test_a_key_of_the_wrong_type_is_named_and_filled_again(
    make_queue: MakeQueue, clock: ManualClock, kind: str
) -> None:
    queue = await busy(make_queue)
    await faults.wrong_type(queue, kind)
    await everything_runs(queue, clock)


@pytest.mark.leaves_findings
@pytest.mark.parametrize("kind", sorted(kind for kind, spec in KEYS.items() if not spec.of))
async def test_the_check_that_names_it_is_the_one_of_what_the_key_holds(
    make_queue: MakeQueue, kind: str
) -> None:
    queue = await busy(make_queue)
    await faults.wrong_type(queue, kind)
    named = [(finding.check, finding.subject) for finding in (await queue.audit()).findings]
    assert named == [(check, kind) for check, kinds in CHECKS.items() if kind in kinds]


@pytest.mark.parametrize("name", RINGS)
async def test_a_ring_or_list_of_the_wrong_type_is_named_and_filled_again(
    make_queue: MakeQueue, clock: ManualClock, name: str
) -> None:
    queue = await busy(make_queue)
    await faults.wrong_type(queue, *RINGS[name])
    await everything_runs(queue, clock)


@pytest.mark.leaves_findings
@pytest.mark.parametrize("kind", sorted(IRREPLACEABLE))
async def test_what_nothing_else_can_tell_is_named_and_left_alone(make_queue: MakeQueue, kind: str) -> None:
    queue = await busy(make_queue)
    await faults.wrong_type(queue, kind)
    assert [finding.subject for finding in (await queue.audit(fix=True)).findings] == [kind]
    assert await queue._engine.command("GET", key(queue._engine.calls.root, kind)) == b"not what it was"


async def test_a_virtual_time_that_was_deleted_gives_newcomers_no_head_start(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant=tenant) for tenant in "ab" for n in range(60)])
    for lease in await queue.claim(100):
        await lease.complete()
    await queue._engine.command("DEL", key(queue._engine.calls.root, "vtime"))
    await queue.enqueue_many([NewMessage(n, tenant="new") for n in range(60)])
    served = [lease.message.tenant for lease in await queue.claim(15)]
    assert served.count("new") <= 6


@pytest.mark.parametrize(("kind", "field"), [("present", "a"), ("totals", "r"), ("tenant:a", "r")])
async def test_a_counter_that_is_no_number_is_named_and_counted_anew(
    make_queue: MakeQueue, kind: str, field: str
) -> None:
    queue = await busy(make_queue)
    await queue._engine.command("HSET", queue._engine.calls.root + kind, field, "no number")
    (finding,) = (await queue.audit()).findings
    assert "no number" in finding.evidence
    await queue.audit(fix=True)
    assert not (await queue.audit()).findings


async def test_counters_of_a_tenant_in_a_key_of_another_type_are_counted_anew(make_queue: MakeQueue) -> None:
    queue = await busy(make_queue)
    await faults.wrong_type(queue, "tenant", "a")
    assert (await queue.audit(fix=True)).findings
    assert not (await queue.audit()).findings
    assert (await queue.stats("a")).ready == 2


@pytest.mark.parametrize("kind", INDEXES)
async def test_an_index_of_the_wrong_type_stops_nobody_but_who_is_in_it(
    make_queue: MakeQueue, clock: ManualClock, kind: str
) -> None:
    """It is removed by who meets it, and written again by the next reconcile."""
    queue = await busy(make_queue)
    root = queue._engine.calls.root
    for where in await queue._engine.command("KEYS", root.replace("{", "\\{") + kind + "*"):
        if where.decode()[len(root) :].partition(":")[0] == kind:
            await spoil(queue, where.decode())
    await queue.enqueue("of somebody else", tenant="z", id="z", metadata={"o": "y"})
    assert "z" in {lease.message.tenant for lease in await queue.claim(20)}
    await queue.stats("a")
    await queue.stats()
    await queue.reconcile()
    ran = 0
    for _ in range(4):
        clock.advance(5000)
        await queue.reclaim()
        ran += len(await drain(queue))
    assert ran == 13, "all but the dead letter, and one more"
    assert (await queue.audit(fix=True)).fixed
    assert not (await queue.audit()).findings


READS: dict[str, Callable[[FairQueue[Any]], Awaitable[Any]]] = {
    "reconcile": lambda queue: queue.reconcile(),
    "reclaim": lambda queue: queue.reclaim(),
    "stats": lambda queue: queue.stats(),
    "limits": lambda queue: queue.limits.get(*ORG),
    "tenants": lambda queue: listed(queue.tenants.list()),
    "workers": lambda queue: listed(queue.workers()),
    "dead letters": lambda queue: queue.dead_letters.list("a"),
    "a new default": lambda queue: queue.limits.set("tenant", "a", 3),
    "enqueue": lambda queue: queue.enqueue(1, tenant="y", metadata={"o": "y"}),
    "claim": lambda queue: queue.claim(1),
}


async def listed(of: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in of]


@pytest.mark.parametrize("what", READS)
@pytest.mark.parametrize("kind", sorted(kind for kind in INDEXES if not KEYS[kind].of))
async def test_whoever_meets_an_index_of_the_wrong_type_first_goes_on(
    make_queue: MakeQueue, kind: str, what: str
) -> None:
    queue = await busy(make_queue)
    await faults.wrong_type(queue, kind)
    await READS[what](queue)
    await queue.reconcile()
    await queue.audit(fix=True)
    assert not (await queue.audit()).findings


async def test_limits_that_cannot_be_read_are_not_listed_as_none(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await faults.wrong_type(queue, "limits")
    with pytest.raises(FairQueueError, match="WRONGTYPE"):
        await listed(queue.limits.list("tenant"))
    await queue._engine.command("DEL", key(queue._engine.calls.root, "limits"))


async def test_a_worker_whose_entry_was_damaged_is_not_listed_until_its_next_sign_of_life(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue()
    entries = ("no json", "7", "[]", "{}", json.dumps({"host": "h", "pid": 1, "pools": 3}))
    for n, entry in enumerate(entries):
        await queue._engine.command("HSET", key(queue._engine.calls.root, "worker_info"), f"w{n}", entry)
    assert not await listed(queue.workers())


async def kept_aside(queue: FairQueue[Any], kind: str) -> Callable[[], Awaitable[None]]:
    """The key holds another type; what is returned puts back what it held."""
    root = queue._engine.calls.root
    where, aside = key(root, kind), root + "kept"
    if there := await queue._engine.command("EXISTS", where):
        await queue._engine.command("RENAME", where, aside)
    await queue._engine.command("SET", where, "not what it was")

    async def put_back() -> None:
        await queue._engine.command("DEL", where)
        if there:
            await queue._engine.command("RENAME", aside, where)

    return put_back


MESSAGES = ("body", "counters", "head", "limits")


@pytest.mark.parametrize("kind", MESSAGES)
async def test_a_claim_that_cannot_be_written_takes_nothing(
    make_queue: MakeQueue, clock: ManualClock, kind: str
) -> None:
    """Not half of it: a delivery nobody got would be counted as a crash."""
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant=tenant) for tenant in "ab" for n in range(3)])
    put_back = await kept_aside(queue, kind)
    for _ in range(3):
        with pytest.raises(DamagedKeyError):
            await queue.claim(2)
    await put_back()
    clock.advance(100)
    await queue.reclaim()
    leases = await queue.claim(10)
    assert [lease.message.crashes for lease in leases] == [0] * 6
    assert [lease.message.tenant for lease in leases] == ["a", "b"] * 3, "nor is a turn charged"
    await queue.complete_many(leases)


ENDS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "complete": lambda lease: lease.complete(),
    "fail": lambda lease: lease.fail("no"),
    "release": lambda lease: lease.release(),
    "dead_letter": lambda lease: lease.dead_letter("no"),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", MESSAGES)
async def test_a_settle_that_cannot_be_written_changes_nothing(
    make_queue: MakeQueue, kind: str, end: str
) -> None:
    """And may be asked for again: half of it done, it would say that the lease is lost."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(2)])
    (lease,) = await queue.claim()
    assert await queue.claim() == []
    put_back = await kept_aside(queue, kind)
    before = await stored(queue)
    for _ in range(2):
        with pytest.raises(DamagedKeyError):
            await ENDS[end](lease)
    assert await stored(queue) == before
    await put_back()
    assert await ENDS[end](lease) in ("done", "retried", "released", "dead")
    assert [other.message.id for other in await queue.claim()] == ["m0" if end == "release" else "m1"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["leases", "deadlines", "delayed", "delayed_names", "settings"])
async def test_a_settle_is_whole_whatever_a_key_that_can_be_mended_holds(
    make_queue: MakeQueue, kind: str, end: str
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(2)])
    (lease,) = await queue.claim()
    assert await queue.claim() == []
    await faults.wrong_type(queue, kind)
    outcome = await ENDS[end](lease)
    assert outcome in ("done", "retried", "released", "dead")
    assert await ENDS[end](lease) == outcome
    assert (await queue.limits.get("tenant", "a")).limit == 1
    assert [other.message.id for other in await queue.claim(3)] == ["m0" if end == "release" else "m1"]
    await queue.reconcile()
    assert (await queue.audit()).findings == []


@pytest.mark.parametrize("kind", ["leases", "deadlines"])
async def test_what_runs_keeps_its_slot_and_gets_its_lease_back(
    make_queue: MakeQueue, clock: ManualClock, kind: str
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(3)])
    mine, lost = await queue.claim(2)
    await faults.wrong_type(queue, kind)
    await queue.reconcile()
    assert (await queue.audit()).findings == []
    assert await queue.claim() == [], "both run"
    clock.advance(20)
    await mine.extend()
    clock.advance(20)
    assert (await queue.reclaim()).reclaimed == [("a", lost.message.id)], "of one that is gone, in its time"
    assert await mine.complete() == "done"


async def test_settings_of_another_type_are_given_back_by_who_knew_them(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)], scheduler="fifo")
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(2)])
    await faults.wrong_type(queue, "settings")
    assert len(await queue.claim(2)) == 1
    assert queue._engine.settings.stored["scheduler"] == "fifo"
    await faults.wrong_type(queue, "settings")
    newcomer = await make_queue(limits=[Limit("tenant", default=1)], scheduler="fifo")
    assert await newcomer.claim(2) == []


def test_scripts_ask_for_all_that_nobody_can_write_again() -> None:
    """What is not among them is read in such a way that another type says nothing."""
    asked = (SCRIPTS / "includes" / "irreplaceable.lua").read_text()
    for kind in IRREPLACEABLE - {"head"}:  # read of each message before anything is written of it
        assert (f"k.{kind}" in asked) == (kind in MESSAGES)


NAMES = {
    "lane": ("a", "q0"),
    "ring": ("g", POOL, *ORG),
    "below": ("p", POOL),
    "tags": ("p", POOL),
    "slots": ORG,
    "dead": ("a",),
    "tenant": ("a",),
    "call": ("session", "stream"),
    "bell": (POOL,),
    "deficits": (POOL,),
    "lock": ("reconcile",),
    "seen": ("a", "m1"),
    "uses": ("a",),
    "users": ("org", "o"),
    "service": ("0",),
} | {kind: RINGS[kind][1:] for kind in ("waiting", "parked", "blocked", "woken", "waiters")}


@pytest.mark.leaves_findings
@pytest.mark.parametrize("kind", KEYS)
async def test_a_test_can_give_any_key_another_type(make_queue: MakeQueue, kind: str) -> None:
    queue = await make_queue()
    names = NAMES.get(kind, ())
    await faults.wrong_type(queue, kind, *names)
    where = key(queue._engine.calls.root, kind, *names) + (f"{US}{POOL}" if kind == "lane" else "")
    wanted = "list" if KEYS[kind].type == "string" else "string"
    assert (await queue._engine.command("TYPE", where)).decode() == wanted
    with pytest.raises(ConfigurationError, match=r"expected (names|scope) to be"):
        await faults.wrong_type(queue, kind, *names, "one too many")
    with pytest.raises(ConfigurationError, match="expected kind to be"):
        await faults.wrong_type(queue, "no such kind")


async def test_a_record_of_calls_of_the_wrong_type_stops_nobody(make_queue: MakeQueue) -> None:
    """The client that calls with this stream would be refused for as long as the key lives."""
    queue = await make_queue()
    await put(queue, "a", "m", "n", "o")
    await finish(queue, await queue.claim())
    records = await queue._engine.command("KEYS", queue._engine.calls.root + "call:*")
    assert records
    for record in records:
        await queue._engine.command("DEL", record)
        await queue._engine.command("SADD", record, "x")
    await finish(queue, await queue.claim())
    await finish(queue, await queue.claim())
