"""Odd ids: any text is an ordinary name, through every transition, without crosstalk (reported faults N1 and N2)."""

from __future__ import annotations

import itertools
import unicodedata

import pytest

from fairqueue import Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import held, one, state

SEPARATORS = [
    "a:b",
    ":",
    "::",
    "tenant:x:y",
    "a b",
    " ",
    "  a ",
    "a|b",
    "a,b",
    "a/b",
    "a\\b",
    "\\",
    "-",
    "--",
    ".",
]
GLOBS = [
    "*",
    "acme?",
    "[x]",
    "[a-z]*",
    "?",
    "^",
    "fq[1]*",
    "{a}",
    "{}",
    "}{",
    "%s",
    "%",
    "$(x)",
    "'",
    '"',
    "`",
]
TEXT = [
    "日本",
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "🦀",
    "ß",
    "İ",
    "a\u00a0b",
    "\u200b",
]
NUMBERS = ["0", "00123", "1e5", "9223372036854775807", "-1", "nan", "inf", "null", "true", "0x10", "1.0"]
SUFFIXES = [
    "x",
    "x:items",
    "a",
    "a:data",
    "dead",
    "lane",
    "slots",
    "none",
    "default",
    "items",
    "fq",
    "p",
    "t",
    "g",
]
LONG = ["x" * 512, "é" * 256, "日" * 170]
ODD = [*SEPARATORS, *GLOBS, *TEXT, *NUMBERS, *SUFFIXES, *LONG]


@pytest.mark.parametrize("name", ODD, ids=lambda name: ascii(name)[:40])
async def test_one_name_as_everything_through_every_transition(
    make_queue: MakeQueue, clock: ManualClock, name: str
) -> None:
    queue = await make_queue(
        limits=[Limit("tenant", default=1), Limit("org", default=1, key="org")],
        retry=RetryPolicy.fixed(5, max_attempts=3, max_crashes=2),
    )
    options = {"tenant": name, "queue": name, "pool": name, "id": name, "metadata": {"org": name}}
    assert (await queue.enqueue({"name": name}, **options)).created
    assert not (await queue.enqueue("again", **options)).created

    lease = await one(queue, pools=[name], consumer=name)
    message = lease.message
    assert (message.tenant, message.queue, message.pool, message.id) == (name,) * 4
    assert (message.payload, message.groups) == ({"name": name}, (("tenant", name), ("org", name)))
    assert (await queue.limits.get("org", name)).holders == [(name, name)]
    await lease.extend()
    assert await lease.fail("no") == "retried"
    clock.advance(5)

    await one(queue, pools=[name])
    clock.advance(30)
    fresh = await make_queue()
    assert (await fresh.reclaim()).reclaimed == [(name, name)]
    assert (await held(fresh, "tenant", name), await held(fresh, "org", name)) == (0, 0)

    assert await (await one(fresh, pools=[name])).dead_letter(name) == "dead"
    (letter,), _ = await fresh.dead_letters.list(name)
    assert (letter.message.id, letter.reason) == (name, name)
    assert [tenant async for tenant in fresh.dead_letters.tenants()] == [name]
    assert await fresh.dead_letters.redrive(name, name) == 1

    await faults.leak_slot(fresh, "org", name, "ghost", tenant=name)
    assert len((await fresh.reconcile()).freed) == 1
    items, _ = await fresh.messages(name)
    assert [item.message.id for item in items] == [name]
    assert [found.queue async for found in fresh.queues(name)] == [name]
    assert (await fresh.stats(name)).ready == 1
    assert (await fresh.audit()).findings == []
    (ran,) = await drain(fresh, pools=[name])
    assert (ran.payload, ran.attempt) == ({"name": name}, 1)


async def test_all_of_them_as_tenants_at_once_without_crosstalk(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)], retry=RetryPolicy.none())
    await queue.enqueue_many([NewMessage([t, n], tenant=t, id=f"m{n}") for t in ODD for n in range(4)])
    leases = await queue.claim(1000)
    assert len(leases) == 2 * len(ODD)
    for lease in leases:
        assert lease.message.payload == [lease.message.tenant, int(lease.message.id[1:])]
        if lease.message.id == "m0":
            await lease.fail("no")
    clock.advance(30)
    await queue.reclaim()
    for tenant in ODD:
        stats = await queue.stats(tenant)
        assert (stats.ready, stats.dead, stats.in_flight) == (3, 1, 0), tenant
        assert await queue.dead_letters.purge(tenant) == 1
    assert len(await drain(queue, batch=500)) == 3 * len(ODD)


async def test_all_of_them_as_ids_and_queues_of_one_tenant(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(id_, tenant="a", queue=id_, id=id_) for id_ in ODD])
    for message in await drain(queue, batch=7):
        assert message.payload == message.id == message.queue
    assert (await queue.stats()).totals["completed"] == len(ODD)


async def test_all_of_them_as_groups_of_one_limit(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await queue.enqueue_many([NewMessage(g, tenant="a", metadata={"org": g}) for g in ODD for _ in range(2)])
    leases = await queue.claim(1000)
    assert sorted(lease.message.payload for lease in leases) == sorted(ODD)
    assert {found.id for found in [found async for found in queue.limits.list("org")]} == set(ODD)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "b:c"), ("a:b", "c")),
        (("a", "b c"), ("a b", "c")),
        (("a", "|b"), ("a|", "b")),
        (("x", "x:items"), ("x:x", "items")),
        (("é", "m"), ("e\u0301", "m")),
        (("A", "m"), ("a", "m")),
    ],
)
async def test_pairs_that_run_together_when_glued_are_two(
    make_queue: MakeQueue, first: tuple[str, str], second: tuple[str, str]
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    for tenant, id_ in (first, second):
        assert (await queue.enqueue([tenant, id_], tenant=tenant, id=id_)).created
    leases = await queue.claim(10)
    assert sorted((lease.message.tenant, lease.message.id) for lease in leases) == sorted([first, second])
    await leases[0].complete()
    assert await state(queue, leases[1].message.tenant, leases[1].message.id) == "in_flight"


async def test_lanes_whose_parts_run_together_when_glued_are_different_lanes(make_queue: MakeQueue) -> None:
    """Queue, pool and group ids made of each other's texts: each lane keeps its own limit."""
    queue = await make_queue(
        limits=[Limit("org", default=1, key="org"), Limit("team", default=1, key="team")]
    )
    parts = ["a", "org", "a:org", "org:a"]
    combinations = list(itertools.product(parts, parts, parts))
    await queue.enqueue_many(
        [
            NewMessage([q, o, t], tenant="T", queue=q, metadata={"org": o, "team": t})
            for q, o, t in combinations
        ]
    )
    seen = []
    while leases := await queue.claim(100):
        orgs = [lease.message.metadata["org"] for lease in leases]
        assert len(orgs) == len(set(orgs))
        for lease in leases:
            assert lease.message.payload == [lease.message.queue, *lease.message.metadata.values()]
            seen.append(tuple(lease.message.payload))
        await queue.complete_many(leases)
    assert sorted(seen) == sorted(combinations)
