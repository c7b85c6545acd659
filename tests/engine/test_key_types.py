"""A key that holds another type is named by the doctor and filled again from the messages, whichever key it is."""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import FairQueue, Limit, NewMessage
from fairqueue._engine.keys import IRREPLACEABLE, KEYS, join, key
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue

REBUILT = sorted(kind for kind, spec in KEYS.items() if not spec.of and kind not in IRREPLACEABLE)
POOL, TENANT, ORG = "default", "a", join("org", "x")
RINGS = {
    "pool ring": ("ring", join("p", POOL)),
    "tenant ring": ("ring", join("t", POOL, TENANT)),
    "group ring": ("ring", join("g", POOL, ORG)),
    "tags": ("tags", join("t", POOL, TENANT)),
    "parked": ("parked", join(POOL, TENANT)),
    "blocked": ("blocked", POOL),
    "waiters": ("waiters", ORG),
    "woken": ("woken", join(POOL, ORG)),
    "waiting": ("waiting", join(POOL, ORG, TENANT)),
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
    await spoil(queue, key(queue._engine.calls.root, kind))
    await everything_runs(queue, clock)


@pytest.mark.parametrize("name", RINGS)
async def test_a_ring_or_list_of_the_wrong_type_is_named_and_filled_again(
    make_queue: MakeQueue, clock: ManualClock, name: str
) -> None:
    queue = await busy(make_queue)
    kind, of = RINGS[name]
    await spoil(queue, key(queue._engine.calls.root, kind, of))
    await everything_runs(queue, clock)


@pytest.mark.leaves_findings
@pytest.mark.parametrize("kind", sorted(IRREPLACEABLE))
async def test_what_nothing_else_can_tell_is_named_and_left_alone(make_queue: MakeQueue, kind: str) -> None:
    queue = await busy(make_queue)
    where = key(queue._engine.calls.root, kind)
    await spoil(queue, where)
    assert [finding.subject for finding in (await queue.audit(fix=True)).findings] == [kind]
    assert await queue._engine.command("GET", where) == b"not what it was"


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
    await spoil(queue, key(queue._engine.calls.root, "tenant", "a"))
    assert (await queue.audit(fix=True)).findings
    assert not (await queue.audit()).findings
    assert (await queue.stats("a")).ready == 2
