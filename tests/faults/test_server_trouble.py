"""The server is killed and comes back with what its append-only file has, fails over, fills up, or has its keys damaged.

What the cases J and R under tests/faults/cases and tests/worker/test_outages.py hold is not repeated here: scripts that
vanish, LOADING, READONLY, MISCONF, a policy that evicts, and an outage longer than the leases.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairqueue import (
    FairQueue,
    FairQueueError,
    Limit,
    Message,
    NewMessage,
    QueueFullError,
    RetryPolicy,
)
from fairqueue.testing import ManualClock, assert_whole, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import one, put, ready_order
from tests.faults.conftest import Injected
from tests.faults.record import each_ran_once, none_lost
from tests.support.fixtures import MakeServer
from tests.support.processes import Server
from tests.support.proxy import Proxy
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually
from tests.support.working import working

LIMITS = [Limit("tenant", default=3), Limit("org", default=6, key="org")]
TENANTS = ("a", "b", "c")


async def emptied(queue: FairQueue[Any]) -> bool:
    stats = await queue.stats()
    return stats.ready == stats.delayed == stats.in_flight == 0


# --- restarts with an append-only file ---------------------------------------------------------------------------


async def fsync_of(queue: FairQueue[Any]) -> str:
    """What the server says that it does; that it does so rests on its word."""
    _, value = await queue._engine.command("CONFIG", "GET", "appendfsync")
    return str(value.decode())


async def test_what_was_acknowledged_is_in_the_file_and_the_file_alone_brings_it_back(
    make_queue: MakeQueue, make_server: MakeServer, injected: Injected
) -> None:
    """``always``: a power cut right after an answer leaves the file as long as it was then, not a byte more."""
    own = make_server(appendfsync="always")
    queue = await make_queue(url=own.url)
    assert await fsync_of(queue) == "always"
    (log,) = (own.directory / "appendonlydir").glob("*.incr.aof")
    ids, lengths = [f"m{n:02}" for n in range(30)], []
    for id_ in ids:
        await put(queue, "a", id_)
        lengths.append(log.stat().st_size)
    assert lengths == sorted(set(lengths))
    for last in (29, 17, 4):
        await asyncio.to_thread(own.kill)
        os.truncate(log, lengths[last])
        injected.faults += 1
        await asyncio.to_thread(own.start)
        assert await ready_order(queue, "a") == ids[: last + 1]
        await assert_whole(queue)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fsync", ["always", "no"])
async def test_a_server_killed_again_and_again_loses_nothing_acknowledged(
    make_queue: MakeQueue, make_server: MakeServer, injected: Injected, fsync: str
) -> None:
    """The file is written before the answer, whether the disk is waited for or not; ``everysec`` may put that off."""
    own = make_server(appendfsync=fsync)
    queue = await make_queue(url=own.url, clock=None, limits=LIMITS)
    assert await fsync_of(queue) == fsync
    ran: Counter[str] = Counter()
    accepted: list[str] = []
    rng = random.Random(4)

    async def handle(message: Message[Any]) -> None:
        ran[message.id] += 1
        await asyncio.sleep(rng.uniform(0, 0.01))

    async def produce(tenant: str) -> None:
        for n in range(150):
            sent = await queue.enqueue(n, tenant=tenant, id=f"{tenant}{n}", metadata={"org": "o"})
            accepted.append(sent.id)

    async with working(queue, handle):
        producing = asyncio.gather(*(produce(tenant) for tenant in TENANTS))
        for _ in range(6):
            seen = len(accepted)
            await eventually(
                lambda seen=seen: producing.done() or len(accepted) > seen + 20, "some to be sent"
            )  # type: ignore[misc]
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.start)
            injected.faults += 1
        await producing
        await eventually(lambda: emptied(queue), "all to be completed")
    each_ran_once(ran, accepted)
    assert set(ran) == set(accepted)
    totals = (await queue.stats()).totals
    assert (totals.enqueued, totals.completed, totals.reclaimed) == (450, 450, 0)


@dataclass
class Disk:
    """What is on the disk for sure when the power fails: what the append-only file had a second ago."""

    log: Path
    sizes: list[tuple[float, int]] = field(default_factory=list)

    async def watched(self) -> None:
        while True:
            self.sizes.append((time.monotonic(), self.log.stat().st_size))
            await asyncio.sleep(0.01)

    def power_fails(self, at: float) -> int:
        """The server was killed then; the kernel, which would have kept the last second, goes too. How many bytes go."""
        written, certain = self.log.stat().st_size, self.certain(at)
        os.truncate(self.log, certain)
        return written - certain

    def certain(self, at: float) -> int:
        """Bytes that are there whatever happens."""
        return max((size for seen, size in self.sizes if seen <= at - 1), default=0)

    def is_being_written(self) -> bool:
        """On a crowded machine a second may pass in which nobody gets to write."""
        return self.certain(time.monotonic()) < self.log.stat().st_size


async def test_a_power_cut_takes_no_more_than_the_last_second_and_leaves_nothing_half_done(
    make_queue: MakeQueue, make_server: MakeServer, injected: Injected
) -> None:
    """``everysec``: a flush every second is asked for, and may be put off while the disk is busy with the last one."""
    own = make_server(appendfsync="everysec")
    queue = await make_queue(
        url=own.url, clock=None, limits=LIMITS, visibility_timeout=1, reclaim_interval=0.5
    )
    acknowledged: dict[str, float] = {}
    found: set[str] = set()

    async def produce() -> None:
        for n in itertools.count():
            sent = await queue.enqueue(
                n, tenant=TENANTS[n % 3], id=f"m{n}", metadata={"org": "o"}, pool=("default", "kept")[n % 2]
            )
            acknowledged[sent.id] = time.monotonic()

    async def handle(message: Message[Any]) -> None:
        found.add(message.id)

    (log,) = (own.directory / "appendonlydir").glob("*.incr.aof")
    watch, cuts = Stopwatch(), list[tuple[float, float]]()
    with watch.looking():
        async with working(queue, handle):
            producing = asyncio.ensure_future(produce())
            for _ in range(4):
                disk, began, enough = Disk(log), time.monotonic(), len(acknowledged) + 100
                watched = asyncio.ensure_future(disk.watched())
                await eventually(
                    lambda began=began, enough=enough, disk=disk: (
                        time.monotonic() > began + 1.5
                        and len(acknowledged) > enough
                        and disk.is_being_written()
                    ),
                    "more than a second of work, some of it in the last one",
                )  # type: ignore[misc]
                await asyncio.to_thread(own.kill)
                killed = time.monotonic()
                watched.cancel()
                assert disk.power_fails(killed) > 0, "the cut took nothing"
                injected.faults += 1
                await asyncio.to_thread(own.start)
                cuts.append((killed, time.monotonic()))
            producing.cancel()
            await asyncio.wait([producing])
    await drain(queue, handle, pools=("default", "kept"))
    lost = acknowledged.keys() - found
    assert lost, "the cuts took nothing that was acknowledged"
    for each in lost:
        sent = acknowledged[each]
        killed = min(killed for killed, back in cuts if sent < back)
        watch.check(1, f"{each} to be on the disk", sent, max(sent, killed))
    await assert_whole(queue)


async def recorded_run(own: Server, name: str) -> None:
    """Every kind of transition, on a clock that is turned."""
    clock = ManualClock()
    retry = RetryPolicy.fixed(1, max_attempts=2)
    async with FairQueue[Any](own.url, name, limits=LIMITS, clock=clock, retry=retry) as queue:
        for step in range(4):
            new = [NewMessage(n, tenant=TENANTS[n % 3], id=f"s{step}m{n}", metadata={"org": "o"}, delay=n % 5 and 2)
                   for n in range(12)]  # fmt: skip
            await queue.enqueue_many(new)
            leases = await queue.claim(6)
            await queue.extend_many(leases)
            for lease, way in zip(leases, ("complete", "fail", "release", "dead"), strict=False):
                await (lease.dead_letter("no use") if way == "dead" else getattr(lease, way)())
            await queue.limits.set("tenant", "a", step)
            clock.advance(35)
            await queue.reclaim()
            await queue.reconcile()
            await queue.dead_letters.redrive_all("a")
            await queue.dead_letters.purge("b")
        await queue.complete_many(await queue.claim(5))


def offsets(size: int, many: int) -> Iterator[int]:
    """Evenly spread, each a few bytes off by chance, and the last bytes one by one."""
    rng = random.Random(7)
    for n in range(many):
        yield min(size, n * size // many + rng.randrange(50))
    yield from range(size - 6, size + 1)


@pytest.mark.timeout(300)
async def test_a_file_that_ends_anywhere_has_no_half_transition(
    make_server: MakeServer, injected: Injected
) -> None:
    """A power cut takes the end of the file, wherever the disk had come to."""
    own = make_server(appendfsync="no")
    await recorded_run(own, "cut")
    own.kill()
    (log,) = (own.directory / "appendonlydir").glob("*.incr.aof")
    whole = log.read_bytes()
    before, loaded, problems = -1, 0, []
    for offset in offsets(len(whole), 120):
        log.write_bytes(whole[:offset])
        await asyncio.to_thread(own.start)
        try:
            found = await whole_and_drained(own)
            assert found >= before, "a longer file has less"
        except (AssertionError, FairQueueError) as error:
            problems.append(f"cut at byte {offset} of {len(whole)}: {error}")
        else:
            before, loaded = found, loaded + 1
        own.kill()
    injected.faults = loaded + len(problems)
    assert not problems, "\n".join(problems)
    assert before == 48, "the whole file has all messages"


async def whole_and_drained(own: Server) -> int:
    """Nothing is half done, and what is there runs to its end; how many messages it ever had."""
    clock = ManualClock()
    clock.advance(3600)
    async with FairQueue[Any](own.url, "cut", limits=LIMITS, clock=clock) as queue:
        await assert_whole(queue)
        await queue.reclaim()
        await queue.limits.reset("tenant", "a")
        for _ in range(4):
            await drain(queue, batch=10)
            clock.advance(4000)
        for tenant in TENANTS:
            await queue.dead_letters.purge(tenant)
        await assert_whole(queue)
        stats = await queue.stats()
        assert (stats.ready, stats.delayed, stats.in_flight, stats.dead) == (0, 0, 0, 0)
        totals = stats.totals
        none_lost(["one that is counted"] * (totals.enqueued - totals.completed - totals.purged))
        assert totals.enqueued == totals.completed + totals.purged
        return totals.enqueued


# --- a replica takes over ----------------------------------------------------------------------------------------


@pytest.fixture
def steady() -> Iterator[Callable[[Server], Proxy]]:
    """Makes an address that stays the same whichever server is behind it, as a name or a load balancer would."""
    made: list[Proxy] = []

    def make(server: Server) -> Proxy:
        made.append(Proxy(server.url).__enter__())
        return made[-1]

    yield make
    for proxy in made:
        proxy.__exit__(None, None, None)


async def test_a_replica_that_is_promoted_goes_on_where_its_primary_was(
    make_server: MakeServer, steady: Callable[[Server], Proxy], make_queue: MakeQueue, injected: Injected
) -> None:
    """Clients reach it before it is told to lead: it refuses writes, they wait, and no running handler is doubled."""
    primary, replica = make_server(), make_server()
    replica.command("REPLICAOF", "127.0.0.1", str(primary.port))
    await eventually(lambda: replica.command("INFO", "replication")["master_link_status"] == "up", "a copy")
    address = steady(primary)
    queue = await make_queue(url=address.url, clock=None, visibility_timeout=2, limits=LIMITS)
    go_on = asyncio.Event()
    attempts: Counter[str] = Counter()

    async def handle(message: Message[Any]) -> None:
        attempts[message.id] += 1
        if message.payload == "long":
            await go_on.wait()

    async with working(queue, handle):
        await queue.enqueue("long", tenant="a", id="long")
        await eventually(lambda: attempts["long"] == 1, "the long one to run")
        await put(queue, "b", *(f"before{n}" for n in range(20)))
        await eventually(lambda: len(attempts) == 21, "the short ones to run")
        await eventually(lambda: primary.command("WAIT", 1, 100) == 1, "the replica to have it all")
        primary.kill()
        injected.faults += 1
        address._upstream = urlsplit(replica.url)
        address.cut()
        sending = asyncio.ensure_future(put(queue, "b", *(f"after{n}" for n in range(20))))
        await eventually(lambda: refused_writes(replica) > 0, "the replica to refuse a write")
        assert not sending.done()
        replica.command("REPLICAOF", "NO", "ONE")
        await sending
        await eventually(lambda: len(attempts) == 41, "what was sent meanwhile to run")
        began = asyncio.get_running_loop().time()

        async def long_enough() -> bool:
            await queue.reclaim()
            return asyncio.get_running_loop().time() - began > 2.5

        await eventually(long_enough, "longer than the leases to pass")
        go_on.set()
        await eventually(lambda: emptied(queue), "all to be completed")
    each_ran_once(attempts, ["long", *(f"{when}{n}" for when in ("before", "after") for n in range(20))])
    assert (await queue.stats()).totals.completed == 41


def refused_writes(server: Server) -> int:
    return int(server.command("INFO", "errorstats").get("errorstat_READONLY", {}).get("count", 0))


# --- full --------------------------------------------------------------------------------------------------------


async def test_a_server_that_fills_up_under_load_is_drained_and_takes_more(
    make_queue: MakeQueue, make_server: MakeServer, injected: Injected
) -> None:
    own = make_server(appendonly="no", maxmemory_policy="noeviction")
    queue = await make_queue(url=own.url, clock=None, limits=LIMITS)
    await queue._engine.connection.load_scripts()  # they would take the room that is for messages
    used = int(own.command("INFO", "memory")["used_memory"])
    own.command("CONFIG", "SET", "maxmemory", str(used + 3_000_000))
    ran: Counter[str] = Counter()
    accepted: list[str] = []
    open_gate = asyncio.Event()

    async def handle(message: Message[Any]) -> None:
        await open_gate.wait()
        ran[message.id] += 1

    async def fill() -> None:
        for n in range(10_000):
            sent = await queue.enqueue("x" * 2000, tenant=TENANTS[n % 3], id=f"m{n}")
            accepted.append(sent.id)

    async with working(queue, handle):
        with pytest.raises(QueueFullError):
            await fill()
        assert len(accepted) > 100
        injected.faults += 1
        with pytest.raises(QueueFullError):
            await queue.enqueue_many([NewMessage("x" * 2000, tenant="new") for _ in range(50)])
        assert (await queue.stats("new")).ready == 0
        open_gate.set()
        await eventually(lambda: emptied(queue), "the backlog to drain")
        await put(queue, "a", "after")
        await eventually(lambda: ran["after"] == 1, "it to take more")
    each_ran_once(ran, [*accepted, "after"])
    assert set(ran) == {*accepted, "after"}


# --- keys damaged under load -------------------------------------------------------------------------------------

DAMAGES = ["slots", "lane", "deadline", "lease", "slot", "body", "header"]
ITSELF = ("body", "header")  # what is gone then is the message
UNDER_LOAD = 240


async def damage(queue: FairQueue[Any], kind: str, rng: random.Random) -> str | None:
    """Breaks something that is there now: the id of the message that was hit, "" if it was none; None: nothing is."""
    tenant = rng.choice(TENANTS)
    if kind == "slots":
        await faults.wrong_type(queue, "slots", "tenant", tenant)
        return ""
    if kind == "lane":
        await faults.wrong_type(queue, "lane", tenant, "default")
        return ""
    state = "in_flight" if kind in ("deadline", "lease", "slot") else None
    items, _ = await queue.messages(tenant, state=state, limit=50)
    if not items:
        return None
    hit = rng.choice(items).message.id
    try:
        await faults.delete(queue, kind, tenant, hit)
    except FairQueueError:
        return None  # it had ended by then
    return hit


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", DAMAGES)
async def test_a_key_damaged_under_load_costs_at_most_its_own_message(
    make_queue: MakeQueue, injected: Injected, kind: str
) -> None:
    """Workers go on; one reconcile and one audit later all is whole, and what was not hit ran once.

    Handlers that start shortly before the damage go on when it is done: however fast the workers are, something is
    in flight to be damaged.
    """
    rng = random.Random(DAMAGES.index(kind))
    queue = await make_queue(clock=None, limits=LIMITS, retry=RetryPolicy.fixed(0.05))
    ran: Counter[str] = Counter()
    hit: set[str] = set()
    go_on = asyncio.Event()
    go_on.set()

    async def handle(message: Message[Any]) -> None:
        ran[message.id] += 1
        await asyncio.sleep(rng.uniform(0, 0.01))
        await go_on.wait()

    async def damaged() -> bool:
        broken = await damage(queue, kind, rng)
        hit.add(broken or "")
        return broken is not None

    async with working(queue, handle, concurrency=12):
        for n in range(UNDER_LOAD):
            await queue.enqueue(n, tenant=TENANTS[n % 3], id=f"m{n}", metadata={"org": "o"})
            if n % 20 == 4:
                go_on.clear()
            if n % 20 == 10:
                await eventually(damaged, f"a {kind} to be there and damaged")
                injected.faults += 1
                go_on.set()
            if n % 20 == 15:
                await queue.reconcile()
        await queue.reconcile()
        await queue.audit(fix=True)
        await eventually(lambda: emptied(queue), "all to be completed")
    others = sorted({f"m{n}" for n in range(UNDER_LOAD)} - hit)
    dead = {item.message.id for tenant in TENANTS for item in (await queue.dead_letters.list(tenant))[0]}
    assert dead <= (hit if kind == "body" else set())
    assert injected.faults == UNDER_LOAD / 20
    each_ran_once(ran, others if kind in ITSELF else [f"m{n}" for n in range(UNDER_LOAD)])
    for tenant in TENANTS:
        await queue.dead_letters.purge(tenant)
    await queue.audit(fix=True)


async def test_one_claims_what_is_left_of_a_lane_that_was_deleted(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await put(queue, "a", "m1", "m2")
    for name in await faults._lanes(queue, "a", "default"):
        await queue._engine.command("DEL", queue._engine.calls.root + "lane:" + name)
    await queue.audit(fix=True)
    lease = await one(queue)
    assert (lease.message.id, await lease.complete()) == ("m1", "done")
    assert [message.id for message in await drain(queue)] == ["m2"]
