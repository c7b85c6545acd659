"""Rule 5 of slots: reconcile makes slots and deadlines equal to the leases again."""

from __future__ import annotations

from fairqueue import Limit, NewMessage
from fairqueue._engine.keys import join, key
from fairqueue.maintenance.reconciler import Healed
from fairqueue.maintenance.service import Maintenance
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, held, leases_of, put_slot, slots, told
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

ORGS = [Limit("tenant", default=5), Limit("org", default=1, key="org")]
ONE = [Limit("tenant", default=1)]
GROUP = "reconcile_group.lua"
LEASES = "reconcile_leases.lua"


@guard(
    "slots 5",
    "reconcile removes a slot without a lease",
    without("the removal", GROUP, "many('HDEL', k.slots(group), ghosts)", ""),
    without("the count", GROUP, "tally('healed', #ghosts + #rewritten)", ""),
)
async def test_reconcile_removes_ghosts(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await faults.leak_slot(queue, "tenant", "a", "ghost")
    report = await queue.reconcile()
    assert report.freed == [Healed("a", "ghost", "slot", ("tenant", "a"))]
    assert await held(queue, "tenant", "a") == 0
    assert (await queue.stats()).totals.healed == 1


@guard(
    "slots 5",
    "a group is looked at as long as anybody holds a slot or waits there",
    without(
        "asking before it is forgotten",
        "includes/slots.lua",
        "if not dirty_state(group) and call('EXISTS', k.slots(group), k.waiters(group)) == 0 then",
        "if true then",
    ),
)
async def test_a_group_in_use_is_not_forgotten(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(2)])
    leases = await queue.claim(2)
    await queue._engine.command(
        "HSET", key(queue._engine.calls.root, "slots", join("tenant", "a")), join("a", "ghost"), "of nobody"
    )
    assert await leases[0].complete() == "done"
    assert [healed.id for healed in (await queue.reconcile()).freed] == ["ghost"]


@guard(
    "slots 5",
    "reconcile spares the slots of leases",
    without(
        "asking the leases",
        GROUP,
        "if not known and not still_runs(mid, token) then",
        "if true then",
    ),
)
async def test_reconcile_spares_live_slots(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ORGS)
    await queue.enqueue(1, tenant="a", id="m", metadata={"org": "x"})
    assert await claimed(queue) == ["m"]
    report = await queue.reconcile()
    assert (report.freed, report.restored) == ([], [])
    assert await held(queue, "org", "x") == await held(queue, "tenant", "a") == 1


@guard(
    "slots 5",
    "reconcile gives a lease its missing slot back",
    without("the slot", LEASES, "call('HSET', k.slots(group), mid, lease.token)", ""),
)
async def test_reconcile_gives_missing_slots_back(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await queue.enqueue(1, tenant="a", id="m")
    await queue.enqueue(2, tenant="a", id="next")
    assert await claimed(queue) == ["m"]
    await faults.delete(queue, "slot", "a", "m")
    assert (await queue.reconcile()).restored == [Healed("a", "m", "slot", ("tenant", "a"))]
    assert await claimed(queue) == []


@guard(
    "slots 5",
    "a deadline deleted by hand comes back",
    without("the deadline", LEASES, "call('ZADD', k.deadlines, int(now + visibility), mid)", ""),
)
async def test_a_deleted_deadline_comes_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=ONE)
    await queue.enqueue(1, tenant="a", id="m")
    assert await claimed(queue) == ["m"]
    await faults.delete(queue, "deadline", "a", "m")
    assert (await queue.reconcile()).restored == [Healed("a", "m", "deadline")]
    clock.advance(31)
    assert (await queue.reclaim()).reclaimed == [("a", "m")]


@guard(
    "slots 5",
    "a deadline that never comes is set anew: the slots of a dead worker are not held for good",
    without("the last instant", "includes/lease.lua", "if at and at <= now + LONGEST_MS then", "if at then"),
)
async def test_a_deadline_that_never_comes_is_set_anew(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=ONE)
    await queue.enqueue(1, tenant="a", id="m")
    assert await claimed(queue) == ["m"]
    await queue._engine.command("ZADD", key(queue._engine.calls.root, "deadlines"), "inf", join("a", "m"))
    assert (await queue.reconcile()).restored == [Healed("a", "m", "deadline")]
    clock.advance(31)
    assert (await queue.reclaim()).reclaimed == [("a", "m")]


@guard(
    "slots 5",
    "a lease record that cannot be read is written again from the header",
    without("the new record", LEASES, "if not lease and in_flight then", "if false then"),
)
async def test_an_unreadable_lease_is_written_again(make_queue: MakeQueue) -> None:
    queue = await make_queue()  # with a slot the look at that would tell
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    await faults.overwrite(queue, "lease", "a", "m", b"not a lease")
    await queue.reconcile()
    assert await leases_of(queue) == {"a/m": lease.token}


@guard(
    "slots 5",
    "a slot left in group A while the lease lists B: A is healed, B is untouched",
    without(
        "asking whether the lease lists the group",
        GROUP,
        "lease.token == token and lists(lease)",
        "lease.token == token",
    ),
)
async def test_a_slot_in_a_group_the_lease_does_not_list(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ORGS)
    await queue.enqueue(1, tenant="a", id="m", metadata={"org": "B"})
    (lease,) = await queue.claim()
    await put_slot(queue, "org", "A", ("a", "m"), lease.token)
    report = await queue.reconcile()
    assert [healed.group for healed in report.freed] == [("org", "A")]
    assert await slots(queue, "org", "A") == {}
    assert await slots(queue, "org", "B") == {"a/m": lease.token}


@guard(
    "slots 5",
    "a slot of an earlier delivery is no slot of the lease",
    without("comparing the tokens", GROUP, "lease.token == token and lists(lease)", "lists(lease)"),
)
async def test_a_slot_with_the_token_of_an_earlier_delivery(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ORGS)
    await queue.enqueue(1, tenant="a", id="m", metadata={"org": "B"})
    (lease,) = await queue.claim()
    await put_slot(queue, "org", "B", ("a", "m"), "00000000.0.earlier")
    report = await queue.reconcile()
    assert [healed.group for healed in report.freed] == [("org", "B")]
    assert await slots(queue, "org", "B") == {"a/m": lease.token}


@guard(
    "slots 5",
    "a dirty group stays dirty until its last page was looked at",
    without("waiting for the last page", GROUP, "if page[1] == '0' then", "if true then"),
)
async def test_a_group_stays_dirty_until_its_last_page(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    root, group = queue._engine.calls.root, join("tenant", "a")
    ghosts = [word for number in range(2000) for word in (join("a", f"ghost{number}"), "of nobody")]
    await queue._engine.command("HSET", key(root, "slots", group), *ghosts)
    await queue._engine.command("HSET", key(root, "dirty"), group, "dirty")
    cursor, *_ = await queue._engine.run(queue._engine.calls.reconcile_group(group, "0"))
    assert cursor != "0"  # and whoever looked at the first page dies
    await queue.enqueue(1, tenant="a", id="m")
    assert await claimed(queue) == ["m"]


@guard(
    "slots 5",
    "a group that is being rebuilt is closed: nobody comes in before its leases are counted again",
    without("the closing", GROUP, "call('HSET', k.dirty, group, 'closed')", ""),
)
async def test_a_group_under_repair_is_closed(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await queue.enqueue(1, tenant="a", id="m")
    assert await claimed(queue) == ["m"]
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await queue._engine.run(
        queue._engine.calls.reconcile_group(join("tenant", "a"), "0")
    )  # whoever ran it dies
    await queue.enqueue(2, tenant="a", id="next")
    assert await claimed(queue) == []
    assert await held(queue, "tenant", "a") == 1


@guard(
    "slots 5",
    "a group that was rebuilt is open again, and whoever waits is woken",
    without("the opening", "reconcile_open.lua", "call('HDEL', k.dirty, group)", ""),
    without("the waking", "reconcile_open.lua", "wake({ [group] = true })", ""),
)
async def test_a_rebuilt_group_opens_and_wakes(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await faults.leak_slot(queue, "tenant", "a", "ghost")
    await queue.enqueue(1, tenant="a", id="m")
    assert await claimed(queue) == []  # parked
    await faults.wrong_type(queue, "slots", "tenant", "a")
    assert (await queue.reconcile()).rebuilt == [("tenant", "a")]
    assert await queue._engine.command("EXISTS", queue._engine.calls.root + "dirty") == 0
    assert await claimed(queue) == ["m"]


async def expire_one(queue: Queue, clock: ManualClock, number: int) -> None:
    """A lease that expires, and the maintenance that runs has taken it back."""
    await queue.enqueue(number, tenant="b", id=f"b{number}")
    (lease,) = await queue.claim()
    clock.advance(1)
    await eventually(lambda: _is_ready(queue, lease.message.id), "the expired lease to be taken back")
    await queue.complete_many([lease])


async def _is_ready(queue: Queue, id_: str) -> bool:
    info = await queue.get("b", id_)
    return info is not None and info.state.value == "ready"


@guard(
    "slots 5",
    "at interval 0 reconcile does nothing by itself; calling it always works",
    without(
        "the meaning of interval 0",
        "fairqueue.maintenance.service:Maintenance.start",
        "if interval > 0",
        "if True",
    ),
)
async def test_reconcile_does_nothing_at_interval_0(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=ONE, visibility_timeout=0.5, reclaim_interval=0.02, reconcile_interval=0)
    await faults.leak_slot(queue, "tenant", "a", "ghost")
    maintenance = Maintenance(queue._engine)
    await maintenance.start()
    try:
        for number in range(3):  # the other duties have had their turns
            await expire_one(queue, clock, number)
        assert await held(queue, "tenant", "a") == 1
    finally:
        await maintenance.stop()
    assert len((await queue.reconcile()).freed) == 1


@guard(
    "slots 5",
    "one worker at a time reconciles, and the lock of one that died expires",
    without(
        "asking who holds the lock",
        "lock.lua",
        "if holder and holder ~= owner and in_force then return 0 end",
        "",
    ),
    without(
        "the lock's expiry", "lock.lua", "call('SET', key, owner, 'PX', int(ttl))", "call('SET', key, owner)"
    ),
)
async def test_one_worker_at_a_time_reconciles(make_queue: MakeQueue) -> None:
    queue = await make_queue()

    async def taken_by(owner: str, ttl_ms: int) -> bool:
        return await queue._engine.run(queue._engine.calls.lock("reconcile", owner, ttl_ms))

    assert await taken_by("one", 60_000)
    assert not await taken_by("another", 60_000)
    assert await taken_by("one", 30)  # its own it may prolong
    await eventually(
        lambda: taken_by("another", 60_000), "the lock to expire", deadline=20
    )  # shorter than a proof may take


@guard(
    "slots 5",
    "the slot of a message that runs stays its own though its lease record was destroyed, and the record is written again",
    without(
        "asking the message", GROUP, "if not known and not still_runs(mid, token) then", "if not known then"
    ),
    without("comparing the token", GROUP, " or h.token ~= token", ""),
    without(
        "the new record",
        GROUP,
        "  call('HSET', k.leases, mid, pack_lease(lease_of_header(h, '')))\n  rewritten",
        "  rewritten",
    ),
)
async def test_a_destroyed_record_does_not_free_the_slot(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(3)])
    (lease,) = await queue.claim()
    await faults.delete(queue, "lease", "a", "m0")
    await put_slot(queue, "tenant", "a", ("a", "m1"), "00000000.0.leaked")
    report = await queue.reconcile()
    assert await claimed(queue, 3) == [], "m0 runs"
    assert await slots(queue, "tenant", "a") == {"a/m0": lease.token}
    assert report.restored == [Healed("a", "m0", "lease")]
    assert await leases_of(queue) != {}
    await faults.delete(queue, "lease", "a", "m0")
    await put_slot(queue, "tenant", "a", ("a", "m0"), "00000000.0.leaked")
    assert [healed.what for healed in (await queue.reconcile()).freed] == ["slot"]
    assert await told(lease.complete()) == "done"


@guard(
    "slots 5",
    "a lock that never expires keeps nobody from reconciling",
    without("asking whether it expires", "lock.lua", "left >= 0 and", ""),
    without("asking when it expires", "lock.lua", " and left <= LONGEST_MS", ""),
)
async def test_a_lock_that_does_not_expire_is_taken(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    engine = queue._engine
    lock = key(engine.calls.root, "lock", "reconcile")
    for damaged in (["PERSIST", lock], ["PEXPIRE", lock, 10**13]):
        assert await engine.run(engine.calls.lock("reconcile", "gone", 60_000))
        assert await engine.command(*damaged) == 1
        assert await engine.run(engine.calls.lock("reconcile", "next", 60_000)), damaged
        assert not await engine.run(engine.calls.lock("reconcile", "another", 60_000))
        assert await engine.run(engine.calls.lock("reconcile", "next", 0))


@guard(
    "slots 5",
    "a worker whose lock another holds leaves the slots alone, until it gets the lock",
    without(
        "asking for the lock",
        "fairqueue.maintenance.service:Maintenance._reconcile",
        "        return\n",
        "        pass\n",
    ),
)
async def test_a_worker_without_the_lock_leaves_the_slots_alone(proxy: Proxy, make_queue: MakeQueue) -> None:
    queue = await make_queue(url=proxy.url, limits=ONE, reclaim_interval=0, reconcile_interval=0.02)
    await faults.leak_slot(queue, "tenant", "a", "ghost")
    calls = queue._engine.calls
    await queue._engine.run(calls.lock("reconcile", "another", 60_000))
    asked = proxy.count("lock")
    maintenance = Maintenance(queue._engine)
    await maintenance.start()
    try:
        await eventually(lambda: proxy.count("lock") >= asked + 3, "the lock to be asked for")
        assert await held(queue, "tenant", "a") == 1
        await queue._engine.run(calls.lock("reconcile", "another", 0))
        await eventually(lambda: _is_free(queue), "the leaked slot to be freed")
    finally:
        await maintenance.stop()


async def _is_free(queue: Queue) -> bool:
    return await held(queue, "tenant", "a") == 0


@guard(
    "slots 5",
    "a lease record that lists other groups than its message gives it its own slots back, and none there",
    without(
        "comparing it with the header",
        LEASES,
        "if lease and in_flight and lease.token == h.token and lease.lane ~= h.lane then lease = nil end",
        "",
    ),
)
async def test_a_record_that_lists_other_groups(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ORGS)
    await queue.enqueue(1, tenant="a", id="m", metadata={"org": "x"})
    (lease,) = await queue.claim()
    leases, mid = key(queue._engine.calls.root, "leases"), join("a", "m")
    record = await queue._engine.command("HGET", leases, mid)
    await faults.overwrite(queue, "lease", "a", "m", record.replace(b"org\x1fx", b"org\x1fy"))
    await faults.delete(queue, "slot", "a", "m")
    await queue.reconcile()
    assert (await held(queue, "org", "x"), await held(queue, "org", "y")) == (1, 0)
    assert await told(lease.complete()) == "done"
