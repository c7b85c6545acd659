"""Reconcile: slots and deadlines are made equal to the leases again, and whoever was blocked is woken."""

from __future__ import annotations

import pytest

from fairqueue import Limit
from fairqueue._engine.keys import join
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, held, one, put, raw, waiting

BOTH = [Limit("tenant", default=2), Limit("org", default=2, key="org")]


async def test_a_whole_queue_is_left_as_it_is(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await put(queue, "a", "m1", "m2", "m3", metadata={"org": "x"})
    leases = await queue.claim(2)
    report = await queue.reconcile()
    assert (report.freed, report.restored, report.rebuilt) == ([], [], [])
    assert report.checked > 0
    await finish(queue, leases)


async def test_ghosts_are_removed_and_live_slots_spared(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2000)])
    await put(queue, "a", "m1", "m2")
    lease = await one(queue)
    for n in range(500):
        await faults.leak_slot(queue, "tenant", "a", f"ghost{n}")
    report = await queue.reconcile()
    assert len(report.freed) == 500
    assert {(healed.tenant, healed.what, healed.group) for healed in report.freed} == {
        ("a", "slot", ("tenant", "a"))
    }
    assert (await queue.limits.get("tenant", "a")).holders == [("a", "m1")]
    assert (await queue.stats()).totals["healed"] == 500
    assert await lease.complete() == "done"


async def test_a_ghost_under_a_live_message_s_name_is_told_by_its_token(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await put(queue, "a", "m", metadata={"org": "x"})
    lease = await one(queue)
    await faults.leak_slot(queue, "tenant", "a", "m")
    report = await queue.reconcile()
    assert len(report.freed) == len(report.restored) == 1
    assert (
        await raw(queue, "HGET", "slots", join("tenant", "a"), args=[join("a", "m")]) == lease.token.encode()
    )


async def test_a_slot_left_in_a_group_its_lease_does_not_list_is_healed_and_the_listed_one_untouched(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(limits=BOTH)
    await put(queue, "a", "m", metadata={"org": "B"})
    lease = await one(queue)
    await raw(queue, "HSET", "slots", join("org", "A"), args=[join("a", "m"), lease.token])
    await raw(queue, "SADD", "groups", args=[join("org", "A")])
    report = await queue.reconcile()
    assert [healed.group for healed in report.freed] == [("org", "A")]
    assert (await held(queue, "org", "A"), await held(queue, "org", "B")) == (0, 1)


async def test_missing_slots_come_back(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await put(queue, "a", "m1", "m2", "m3", metadata={"org": "x"})
    leases = await queue.claim(2)
    await faults.delete(queue, "slot", "a", "m1")
    report = await queue.reconcile()
    assert sorted((h.tenant, h.id, h.what, h.group) for h in report.restored) == [
        ("a", "m1", "slot", ("org", "x")),
        ("a", "m1", "slot", ("tenant", "a")),
    ]
    assert await held(queue, "tenant", "a") == await held(queue, "org", "x") == 2
    assert await claimed(queue) == []
    await finish(queue, leases)


async def test_a_deleted_slot_key_comes_back_whole(make_queue: MakeQueue) -> None:
    """Reported fault R3: DEL the slots of a tenant with 3 in flight."""
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await put(queue, "a", *(f"m{n}" for n in range(5)))
    await queue.claim(3)
    await raw(queue, "DEL", "slots", join("tenant", "a"))
    await queue.reconcile()
    assert (await queue.limits.get("tenant", "a")).holders == [("a", "m0"), ("a", "m1"), ("a", "m2")]
    assert await claimed(queue) == []


async def test_a_missing_deadline_comes_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await one(queue)
    await faults.delete(queue, "deadline", "a", "m")
    clock.advance(60)
    assert (await queue.reclaim()).reclaimed == []
    report = await queue.reconcile()
    assert [(healed.tenant, healed.id, healed.what) for healed in report.restored] == [("a", "m", "deadline")]
    clock.advance(30)
    assert (await queue.reclaim()).reclaimed == [("a", "m")]


async def test_an_unreadable_record_is_written_again_from_its_header(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await put(queue, "a", "m", metadata={"org": "x"})
    lease = await one(queue)
    await faults.overwrite(queue, "lease", "a", "m", b"not a record")
    report = await queue.reconcile()
    assert ("lease" in [healed.what for healed in report.restored]) is True
    assert (await held(queue, "tenant", "a"), await held(queue, "org", "x")) == (1, 1)
    assert await lease.complete() == "done"


async def test_whoever_was_blocked_by_what_was_freed_is_woken(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    for n in range(2):
        await faults.leak_slot(queue, "org", "x", f"ghost{n}")
    for tenant in ("a", "b", "c"):
        await put(queue, tenant, "m", metadata={"org": "x"})
    assert await claimed(queue) == []
    assert await waiting(queue, "org", "x") == 3
    await queue.reconcile()
    assert len(await claimed(queue)) == 2


async def test_waiters_at_a_group_with_room_that_nobody_woke_are_woken(make_queue: MakeQueue) -> None:
    """A freed slot whose wake-up was lost: the limit changed behind the scripts' back."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    await one(queue)
    assert await claimed(queue) == []
    await raw(queue, "HSET", "limits", args=[join("tenant", "a"), 2])
    assert await claimed(queue) == []
    await queue.reconcile()
    assert await claimed(queue) == ["m2"]


@pytest.mark.leaves_findings
async def test_leaks_of_odd_names_are_healed_and_a_neighbour_namespace_is_untouched(
    make_queue: MakeQueue, server: str, namespace: str
) -> None:
    """Reported fault N2."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    neighbour = await make_queue(limits=[Limit("tenant", default=1)], name=namespace + "z")
    tenants = ["*", "acme?", "[x]", "a\\b", "{}", "a:b"]
    for tenant in tenants:
        await faults.leak_slot(queue, "tenant", tenant, "ghost")
        await faults.leak_slot(neighbour, "tenant", tenant, "ghost")
    assert len((await queue.reconcile()).freed) == len(tenants)
    assert [await held(neighbour, "tenant", tenant) for tenant in tenants] == [1] * len(tenants)
    await neighbour.reconcile()


async def test_reconcile_knows_its_groups_without_scanning_the_keyspace(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    await one(queue)
    before = await queue._engine.command("INFO", "commandstats")
    await queue.reconcile()
    await queue.stats()
    await queue.audit()
    after = await queue._engine.command("INFO", "commandstats")
    for name in ("cmdstat_keys", "cmdstat_scan"):
        assert after.get(name) == before.get(name)
