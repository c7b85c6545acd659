"""Clean-up: when work is done only a small, documented set of keys is left; memory does not grow with tenants that left."""

from __future__ import annotations

import asyncio

from fairqueue import FairQueue, Limit, NewMessage, RetryPolicy
from fairqueue._engine.keys import KEYS, REMAINS
from fairqueue.testing import ManualClock, leftover_keys
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, put, raw
from tests.support.waiting import eventually


async def sizes(queue: FairQueue[int]) -> dict[str, int]:
    """The length of every key that is one of a kind."""
    commands = {"hash": "HLEN", "zset": "ZCARD", "set": "SCARD"}
    found = {}
    for kind, spec in KEYS.items():
        if not spec.of and spec.type in commands:
            found[kind] = await raw(queue, commands[spec.type], kind)
    return found


async def test_thousands_of_tenants_come_and_go_and_leave_nothing(make_queue: MakeQueue) -> None:
    """Reported fault P2: half complete, half fail and are purged."""
    queue = await make_queue(
        limits=[Limit("tenant", default=1), Limit("org", default=50, key="org")], retry=RetryPolicy.none()
    )
    await put(queue, "warm-up", "m1", "m2")  # every counter is there from now on
    await finish(queue, await queue.claim())
    await queue.fail_many(await queue.claim(), "no")
    await queue.dead_letters.purge("warm-up")
    before, keys = await sizes(queue), await queue._engine.command("DBSIZE")
    for batch in range(2):
        await queue.enqueue_many(
            [
                NewMessage(n, tenant=f"t{batch}.{n}", id=f"m{n}", metadata={"org": f"o{n % 40}"})
                for n in range(1000)
            ]
        )
        while leases := await queue.claim(500):
            await queue.complete_many([lease for lease in leases if lease.message.payload % 2])
            await queue.fail_many([lease for lease in leases if not lease.message.payload % 2], "no")
    assert (await queue.stats()).dead == 1000
    async for tenant in queue.dead_letters.tenants():
        await queue.dead_letters.purge(tenant)
    assert await sizes(queue) == before
    assert await leftover_keys(queue) == []
    after = await queue._engine.command("DBSIZE")
    assert after - keys <= 1  # a bell may have rung


async def test_what_remains_is_documented_and_bounded() -> None:
    assert set(KEYS) >= REMAINS
    families = {kind for kind in REMAINS if KEYS[kind].of}
    # these expire, are one a pool, or go with a tenant's guarantee
    assert families == {"call", "seen", "service", "bell", "lock", "users", "uses"}


async def test_replay_records_expire(make_queue: MakeQueue) -> None:
    queue = await make_queue(visibility_timeout=0.1)
    await put(queue, "a", "m")
    await finish(queue, await queue.claim())
    pattern = queue._engine.calls.root + "call:*"
    declared = f"{queue._engine.session}d".encode()
    for name in await queue._engine.command("KEYS", pattern):
        ttl = await queue._engine.command("PTTL", name)
        assert 0 < ttl <= (120_000 if declared in name else 61_000), name


async def test_blocked_tenants_that_leave_leave_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org"), Limit("tenant", default=1)])
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n}", metadata={"org": "x"}) for n in range(60)])
    while leases := await queue.claim(10):
        await finish(queue, leases)
    assert await leftover_keys(queue) == []


async def test_virtual_time_returns_to_zero_when_a_pool_is_idle(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", *(f"m{n}" for n in range(50)))
    for _ in range(5):
        await finish(queue, await queue.claim(10))
    assert await raw(queue, "HLEN", "vtime") == 0
    await put(queue, "b", "n")
    assert await claimed(queue) == ["n"]
    assert await raw(queue, "HLEN", "vtime") == 0


async def test_everything_at_once_and_then_nothing(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(
        limits=[Limit("tenant", default=2), Limit("org", default=3, key="org")],
        retry=RetryPolicy(3, max_crashes=2, initial=1, maximum=1, jitter=False),
    )
    await queue.enqueue_many(
        [
            NewMessage(
                n, tenant=f"t{n % 7}", queue=f"q{n % 3}", pool=f"p{n % 2}", metadata={"org": f"o{n % 4}"}
            )
            for n in range(200)
        ]
    )
    for turn in range(400):
        leases = await queue.claim(9, pools=("p0", "p1"))
        if not leases and (await queue.stats()).delayed == 0:
            break
        for number, lease in enumerate(leases):
            await (lease.complete, lease.release, lease.fail, lease.complete)[(turn + number) % 4]()
        clock.advance(1)
        if turn % 5 == 0:
            await queue.claim(3, pools=("p0",))
            clock.advance(30)
            await queue.reclaim()
    async for tenant in queue.dead_letters.tenants():
        await queue.dead_letters.purge(tenant)
    stats = await queue.stats()
    assert stats.totals.enqueued == 200 == stats.totals.completed + stats.totals.purged
    assert await leftover_keys(queue) == []


async def test_tasks_and_connections_of_a_client_end_with_it(make_queue: MakeQueue, server: str) -> None:
    watcher = await make_queue()
    base = (await watcher._engine.command("INFO", "clients"))["connected_clients"]
    before = len(asyncio.all_tasks())
    queue: FairQueue[int] = FairQueue(server, watcher.name)
    await asyncio.gather(*(queue.claim(wait=0.05) for _ in range(20)))
    await queue.close()

    async def gone() -> bool:
        return (await watcher._engine.command("INFO", "clients"))["connected_clients"] <= base

    await eventually(gone, "the client's connections to be closed")
    assert len(asyncio.all_tasks()) <= before
