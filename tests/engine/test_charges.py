"""What a delivery is charged: its cost, or the time that it took; and nothing where it never began."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, Limit, NewMessage, Worker
from fairqueue.lease import held as kept_with
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.shares import serve
from tests.engine.test_weights import backlog, weigh
from tests.engine.tools import raw
from tests.support.waiting import eventually, eventually_sync

Took = Callable[[str], float]
"""Seconds that a message of this tenant takes."""


class Clocked:
    """Claims by time, and settles after so many seconds each, as a worker does with ``charge="time"``."""

    def __init__(self, queue: FairQueue[Any], took: Took) -> None:
        self.queue, self.took = queue, took
        self.used: dict[str, float] = defaultdict(float)

    async def work(self, seconds: float, batch: int = 20) -> dict[str, float]:
        """Until so many seconds were used; the part of each tenant."""
        before, until = dict(self.used), sum(self.used.values()) + seconds
        while sum(self.used.values()) < until:
            leases = await self.claim(batch)
            assert leases
            for lease in leases:
                self.run(lease)
            await self.queue.complete_many(leases)
        used = {tenant: self.used[tenant] - before.get(tenant, 0) for tenant in self.used}
        return {tenant: used[tenant] / sum(used.values()) for tenant in used}

    async def claim(self, n: int) -> list[Lease[Any]]:
        engine = self.queue._engine
        stream = engine.claim_streams.take(("default",))
        claimed = await engine.run(engine.calls.claim(stream, n, 30_000, "me", ("default",), by_time=True))
        engine.claim_streams.answered(stream, n, len(claimed.messages))
        return await self.queue._consumer._claimer._hand_over.leases(claimed, "me", 30_000, 0)

    def run(self, lease: Lease[Any]) -> None:
        tenant = lease.message.tenant
        seconds = self.took(tenant)
        self.used[tenant] += seconds
        at = iter([0.0, seconds])
        kept_with(lease).begin(lambda: next(at))
        kept_with(lease).end()


SECONDS = {"slow": 0.1, "quick": 0.001}


@pytest.mark.parametrize("limits", [[], [Limit("org", default=20, key="org")]])
async def test_worker_time_is_shared_whatever_a_message_takes(
    make_queue: MakeQueue, limits: list[Limit]
) -> None:
    """100 ms and 1 ms a message: 50:50 within 5 %, in the pool and at one full group."""
    queue = await make_queue(limits=limits)
    await queue.enqueue_many(backlog("quick", 7000, org="o"))
    await queue.enqueue_many(backlog("slow", 120, org="o"))
    worker = Clocked(queue, SECONDS.__getitem__)
    await worker.work(2)  # until the queue knows what they take
    shares = await worker.work(7, batch=60)
    assert abs(shares["slow"] - 0.5) <= 0.025


async def test_time_is_shared_by_weight(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await weigh(queue, slow=3)
    await queue.enqueue_many(backlog("quick", 3000))
    await queue.enqueue_many(backlog("slow", 120))
    worker = Clocked(queue, SECONDS.__getitem__)
    await worker.work(2)
    shares = await worker.work(8, batch=60)
    assert abs(shares["slow"] - 0.75) <= 0.025


async def test_time_is_shared_where_it_varies(make_queue: MakeQueue) -> None:
    """A message that was faster than estimated gives its tenant back what one that was slower takes."""
    rng = random.Random(3)
    queue = await make_queue()
    for tenant in ("even", "uneven"):
        await queue.enqueue_many(backlog(tenant, 2500))
    worker = Clocked(queue, lambda tenant: 0.05 if tenant == "even" else rng.expovariate(1 / 0.05))
    await worker.work(5, batch=5)
    shares = await worker.work(120, batch=5)
    assert abs(shares["even"] - 0.5) <= 0.025


async def test_lanes_of_a_tenant_share_time_too(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for name, count in (("x", 60), ("y", 600)):
        await queue.enqueue_many(NewMessage(name, tenant="a", queue=name) for _ in range(count))
    used: Counter[str] = Counter()
    worker = Clocked(queue, lambda _: 0.0)
    while used.total() < 6000:
        leases = await worker.claim(5)
        for lease in leases:
            milliseconds = 100 if lease.message.queue == "x" else 10
            used[lease.message.queue] += milliseconds
            worker.took = lambda _, ms=milliseconds: ms / 1000  # type: ignore[misc]
            worker.run(lease)
        await queue.complete_many(leases)
    assert abs(used["x"] / used.total() - 0.5) <= 0.06


async def test_who_left_brings_no_credit(make_queue: MakeQueue) -> None:
    """Charged a second each, and quick: while it is away it saves up nothing."""
    queue = await make_queue()
    await queue.enqueue_many(backlog("gone", 20))
    await queue.enqueue_many(backlog("there", 100))
    worker = Clocked(queue, lambda _: 0.001)
    leases = await worker.claim(40)
    for lease in leases:
        worker.run(lease)
    await queue.complete_many(leases)
    await serve(queue, 20)
    await queue.enqueue_many(backlog("gone", 40))
    served = [tenant for tenant, _ in await serve(queue, 40)]
    assert abs(served.count("gone") - 20) <= 2


async def test_what_a_long_message_took_is_owed_although_its_tenant_had_left(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(backlog("there", 100))
    await queue.enqueue_many(backlog("long", 1))
    worker = Clocked(queue, lambda tenant: 30.0 if tenant == "long" else 1.0)
    leases = await worker.claim(2)
    await serve(queue, 5)
    for lease in leases:
        worker.run(lease)
    await queue.complete_many(leases)
    await queue.enqueue_many(backlog("long", 10))
    served = [tenant for tenant, _ in await serve(queue, 30)]
    assert served.index("long") >= 20
    assert served.index("long") <= 26


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_worker_measures_what_its_handlers_take(
    make_queue: MakeQueue, clock: ManualClock, is_async: bool
) -> None:
    queue, loop = await make_queue(), asyncio.get_running_loop()
    await queue.enqueue_many(backlog("quick", 220))
    await queue.enqueue_many(backlog("slow", 30))
    used: Counter[str] = Counter()

    def handle(message: Any) -> None:
        milliseconds = 100 if message.tenant == "slow" else 10
        clock.advance(milliseconds / 1000)
        used[message.tenant] += milliseconds
        if used.total() >= 4000:
            loop.call_soon_threadsafe(worker.stop)

    async def handle_in_the_loop(message: Any) -> None:
        handle(message)

    worker = Worker(queue, handle_in_the_loop if is_async else handle, concurrency=1, charge="time")
    await worker.run(signals=False)
    assert abs(used["slow"] / used.total() - 0.5) <= 0.05


async def test_what_the_event_loop_is_late_by_is_not_charged(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """A plain handler has ended in its thread while the loop, which is busy with other work, does not come to it."""
    queue = await make_queue()
    await queue.enqueue_many(backlog("a", 1))
    await queue.enqueue("keeps the tenant's counters", tenant="a", delay=3600)
    loop, is_busy = asyncio.get_running_loop(), threading.Event()

    def busy() -> None:
        is_busy.set()
        eventually_sync(lambda: worker._runner._threads._idle, "the handler's thread to be free again")
        clock.advance(60)
        worker.stop()

    def handle(_: Any) -> None:
        loop.call_soon_threadsafe(busy)
        assert is_busy.wait(60)
        clock.advance(0.01)

    worker = Worker(queue, handle, charge="time")
    await worker.run(signals=False)
    assert await raw(queue, "HGET", "tenant", "a", args=("mean_us",)) == b"10000"


async def test_by_cost_nothing_is_measured(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue_many(backlog("a", 3))
    await queue.enqueue("keeps the tenant's counters", tenant="a", delay=3600)
    ran = []

    async def handle(message: Any) -> None:
        clock.advance(5)
        ran.append(message.id)

    worker = Worker(queue, handle)
    running = asyncio.ensure_future(worker.run(signals=False))
    await eventually(lambda: len(ran) == 3, "all to run")
    worker.stop()
    await running
    assert await raw(queue, "HGET", "tenant", "a", args=("mean_us",)) is None


# ---------------------------------------------------------------- what never began


async def test_what_never_began_is_not_charged(make_queue: MakeQueue) -> None:
    """Fifty were claimed ahead and given back: their tenant is as far as it was."""
    queue = await make_queue()
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 100))
    ahead = await queue.claim(100)
    of_a = [lease for lease in ahead if lease.message.tenant == "a"]
    await queue.release_many(of_a)
    await queue.complete_many([lease for lease in ahead if lease.message.tenant == "b"])
    assert [tenant for tenant, _ in await serve(queue, 50)] == ["a"] * 50
    served = [tenant for tenant, _ in await serve(queue, 50)]
    assert abs(served.count("a") - served.count("b")) <= 2


async def test_what_had_begun_stays_charged(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 20))
    for lease in await queue.claim(10):
        async with lease.keep_alive():
            pass
        await (lease.release() if lease.message.tenant == "a" else lease.complete())
    served = [tenant for tenant, _ in await serve(queue, 10)]
    assert abs(served.count("a") - 5) <= 1


async def test_what_never_began_and_comes_later_is_not_charged(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 100))
    for lease in await queue.claim(40):
        await (lease.release(delay=5) if lease.message.tenant == "a" else lease.complete())
    assert [tenant for tenant, _ in await serve(queue, 20)] == ["a"] * 20
    clock.advance(5)
    served = [tenant for tenant, _ in await serve(queue, 40)]
    assert abs(served.count("a") - 20) <= 2


@pytest.mark.parametrize("batch", [1, 10])
async def test_who_puts_off_all_of_a_tenant_holds_up_the_others_for_a_hundred(
    make_queue: MakeQueue, batch: int
) -> None:
    """As one does whose "a" cannot be reached: none of its messages was given back before."""
    queue = await make_queue()
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 400))
    met: Counter[str] = Counter()
    while met.total() < 300:
        for lease in await queue.claim(batch):
            met[lease.message.tenant] += 1
            await (lease.release(delay=60) if lease.message.tenant == "a" else lease.complete())
    assert abs(met["a"] - met["b"] - 100) <= 2 + batch


async def test_what_has_run_lets_a_tenant_put_off_more(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 400))
    for _ in range(2):
        leases = [lease for lease in await queue.claim(200) if lease.message.tenant == "a"]
        for lease in leases[:90]:
            await lease.release(delay=60)
        await queue.complete_many(leases[90:])
    assert [tenant for tenant, _ in await serve(queue, 100)].count("a") >= 94  # of the 95 it is behind


@pytest.mark.parametrize("limits", [[], [Limit("org", default=1, key="org")]])
async def test_claim_and_release_in_a_loop_holds_up_nobody(
    make_queue: MakeQueue, limits: list[Limit]
) -> None:
    """What comes back is charged nothing once a message; who gives the same one back again and again meets the others."""
    queue = await make_queue(limits=limits)
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 5, org="o"))
    met: Counter[str] = Counter()
    for _ in range(12):
        (lease,) = await queue.claim()
        met[lease.message.tenant] += 1
        await lease.release()
    assert min(met["a"], met["b"]) >= 4
