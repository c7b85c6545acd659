"""P: many tenants, many keys, and what is left of them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, Limit, NewMessage, RetryPolicy
from tests.conftest import MakeQueue
from tests.engine.tools import commands
from tests.faults.scale import sized
from tests.support.fixtures import MakeServer
from tests.support.processes import Server
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually

# --- P1 ----------------------------------------------------------------------------------------------------------

TENANTS = sized(10_000)


@pytest.mark.case("P1")
async def test_a_million_keys_of_others_are_never_looked_at(
    make_queue: MakeQueue, make_server: MakeServer
) -> None:
    """10,000 tenants with 5 messages each. The same commands are sent whatever else the server stores, and
    none of them walks through its keys. What little more each costs in a larger table is the benchmark's."""
    own = make_server(appendonly="no", enable_debug_command="yes")
    queue = await make_queue(url=own.url, limits=[Limit("tenant", default=5)])
    await queue.enqueue(0, tenant="first")
    await queue.complete_many(await queue.claim())  # what a minute's first claim begins is there
    alone = await costs(queue)
    for n in range(10):
        own.command("DEBUG", "POPULATE", 100_000, f"other{n}", 1)
    assert own.command("DBSIZE") > 1_000_000
    among_others = await costs(queue)
    used = own.command("INFO", "commandstats")
    assert {"cmdstat_keys", "cmdstat_scan"}.isdisjoint(used)
    assert among_others == alone
    assert alone["a tenant's stats"] < 30


async def costs(queue: FairQueue[Any]) -> dict[str, int]:
    """Numbers of commands the server ran, those inside scripts included."""
    await queue.enqueue_many(
        [NewMessage(n, tenant=f"t{t}", id=str(n)) for n in range(5) for t in range(TENANTS)]
    )
    counted = [await commands(queue)]
    leases: list[Lease[Any]] = []
    for _ in range(5 * TENANTS // 25):
        leases += await queue.claim(25)
    counted.append(await commands(queue))
    assert len(leases) == 5 * TENANTS
    await queue.reconcile()
    counted.append(await commands(queue))
    await queue.stats("t7")
    counted.append(await commands(queue))
    for start in range(0, len(leases), 500):
        await queue.complete_many(leases[start : start + 500])
    parts = ("claims", "reconcile", "a tenant's stats")
    spans = zip(parts, counted[:-1], counted[1:], strict=True)
    return {part: end - start for part, start, end in spans}


# --- P2 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("P2")
async def test_tenants_that_have_gone_leave_nothing(make_queue: MakeQueue, make_server: MakeServer) -> None:
    """20,000, half of which complete and half fail."""
    own = make_server(appendonly="no")
    limits = [Limit("tenant", default=1), Limit("org", default=None, key="org")]
    queue = await make_queue(url=own.url, limits=limits, retry=RetryPolicy.none())
    await pass_through(queue, 200)  # what the client and the server keep for themselves is there from now on
    sizes, memory = all_sizes(own), process_memory()
    await pass_through(queue, sized(20_000))
    assert all_sizes(own) == sizes
    assert process_memory() - memory < 20 * (1 << 20)


async def pass_through(queue: FairQueue[Any], tenants: int) -> None:
    """One message each; half are completed, half die and are purged. In between some wait at their limits."""
    for start in range(0, tenants, 100):
        named = [f"t{n}" for n in range(start, start + 100)]
        messages = [NewMessage(0, tenant=tenant, metadata={"org": tenant}) for tenant in named]
        await queue.enqueue_many([*messages, *(NewMessage(1, tenant=tenant) for tenant in named[:3])])
        first = await queue.claim(200)
        assert len(first) == 100
        assert set(await queue.complete_many(first[:50])) == {"done"}
        assert set(await queue.fail_many(first[50:], "no")) == {"dead"}
        await queue.complete_many(await queue.claim(200))
        gone = [queue.dead_letters.purge(lease.message.tenant) for lease in first[50:]]
        assert set(await asyncio.gather(*gone)) == {1}


LENGTHS = {"hash": "HLEN", "set": "SCARD", "zset": "ZCARD", "list": "LLEN", "string": "STRLEN"}


def all_sizes(own: Server) -> dict[bytes, int]:
    """How many entries each key has; of strings only that they are there. The bell is there or not, and so are the
    records of calls, as many as were under way at once, and of minutes. Those go by themselves."""
    sizes = {}
    for key in own.command("KEYS", "*"):
        if b":0}:call:" in key or b":0}:service:" in key:
            assert own.command("PTTL", key) != -1, key
        elif b"}:bell:" not in key:
            kind = own.command("TYPE", key).decode()
            sizes[key] = 0 if kind == "string" else int(own.command(LENGTHS[kind], key))
    return sizes


def process_memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# --- P3 ----------------------------------------------------------------------------------------------------------

WAIT = 5.0  # seconds that a consumer waits in a claim, for nothing
CLAIMS = 2  # of each consumer, one after the other: the 10 seconds of the case


@pytest.mark.case("P3")
async def test_nobody_is_busy_when_everybody_is_full(make_queue: MakeQueue, make_server: MakeServer) -> None:
    own = make_server(appendonly="no")
    limits = [Limit("tenant", default=1)]
    queue = await make_queue(url=own.url, limits=limits)
    tenants = [f"t{n}" for n in range(500)]
    await queue.enqueue_many([NewMessage(n, tenant=t, id=f"m{n}") for n in range(3) for t in tenants])
    running = {lease.message.tenant: lease for lease in await queue.claim(1000)}
    assert len(running) == 500
    consumers = Consumers([await make_queue(url=own.url) for _ in range(4)])
    try:
        before = await commands(queue), time.process_time(), server_time(own), time.monotonic()
        await eventually(lambda: min(consumers.in_vain) >= CLAIMS, "each to have waited for nothing, twice")
        after = await commands(queue), time.process_time(), server_time(own), time.monotonic()
        asked, ours, servers, took = (end - start for end, start in zip(after, before, strict=True))
        assert took > 0.9 * CLAIMS * WAIT
        assert asked < 200 * took, "commands, those inside scripts included"
        assert ours < 0.2 * took, "seconds of processor time of all four"
        assert servers < 0.2 * took
        assert not consumers.got

        spans, watch = [], Stopwatch()
        with watch.looking():
            for tenant in tenants[:9]:
                began = time.monotonic()
                await running.pop(tenant).complete()
                ((lease, at),) = await eventually(lambda: consumers.take(1), "the next one to start")
                assert (lease.message.tenant, lease.message.id) == (tenant, "m1")
                spans.append((began, at))
                running[tenant] = lease
        watch.check_each(0.2, "the next one to start", spans)
    finally:
        await consumers.stop()
    order: dict[str, list[int]] = {tenant: [0] for tenant in tenants}
    order |= {tenant: [0, 1] for tenant in tenants[:9]}
    while running:
        await queue.complete_many(list(running.values()))
        running = {lease.message.tenant: lease for lease in await queue.claim(1000)}
        for tenant, lease in running.items():
            order[tenant].append(lease.message.payload)
    assert set(map(tuple, order.values())) == {(0, 1, 2)}


def server_time(own: Server) -> float:
    cpu = own.command("INFO", "cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


class Consumers:
    """Each waits in a claim, again and again."""

    def __init__(self, queues: list[FairQueue[Any]]) -> None:
        self.got: list[tuple[Lease[Any], float]] = []
        self.in_vain = [0] * len(queues)
        self._tasks = [asyncio.ensure_future(self._consume(n, queue)) for n, queue in enumerate(queues)]

    async def _consume(self, number: int, queue: FairQueue[Any]) -> None:
        while True:
            leases = await queue.claim(1, wait=WAIT)
            self.in_vain[number] += not leases
            self.got += [(lease, time.monotonic()) for lease in leases]

    def take(self, n: int) -> list[tuple[Lease[Any], float]]:
        """What they got, when it is so many."""
        taken, self.got = (self.got, []) if len(self.got) >= n else ([], self.got)
        return taken

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
