"""Every public operation, with a queue to do it on and the answer in plain values, for the faults at every exchange."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fairqueue import FairQueue, Lease, Limit, Message, NewMessage, Worker
from fairqueue._engine.keys import key
from fairqueue.claiming import claim_options
from fairqueue.dead_letters import DeadLetters
from fairqueue.lease import failure
from fairqueue.limits_control import LimitsControl
from fairqueue.settlement import Settlement
from fairqueue.tenants import Tenants
from fairqueue.testing import ManualClock, faults
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

LIMITS = [Limit("tenant", default=2), Limit("org", default=4, key="org")]
SEVERAL_CALLS = 510  # messages that go in two
EXTENDED_OFTEN = {"visibility_timeout": 1}
Act = Callable[["Scene"], Awaitable[Any]]


@dataclass
class Scene:
    """A queue with work in every state; ``queue`` is reached through the proxy, ``direct`` is not."""

    queue: Any  # a FairQueue, or a SyncFairQueue that can be awaited
    direct: FairQueue[Any]
    clock: ManualClock
    proxy: Proxy
    leases: list[Any] = field(default_factory=list)
    """What the queue's user holds."""
    expired: bool = False
    """Leases have expired: a second run is no fault."""

    @property
    def inside(self) -> FairQueue[Any]:
        """The asyncio queue of either flavour."""
        bare = getattr(self.queue, "_bare", None)
        found: FairQueue[Any] = bare._queue if bare is not None else self.queue
        return found


async def prepared(scene: Scene) -> Scene:
    """Three in flight, two dead, one delayed, and others ready, some of them blocked."""
    await scene.direct.enqueue_many([NewMessage(id, tenant="d", id=id) for id in ("d1", "d2")])
    for lease in await scene.direct.claim(2):
        await lease.dead_letter("no use")
    messages = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("a", "a4"), ("b", "b1"), ("b", "b2"), ("b", "b3")]
    await scene.direct.enqueue_many(
        [NewMessage(id, tenant=tenant, id=id, metadata={"org": "o"}) for tenant, id in messages]
    )
    await scene.direct.enqueue("c1", tenant="c", id="c1", delay=60)
    scene.leases = await scene.queue.claim(3)
    return scene


@dataclass(frozen=True)
class Operation:
    """Public calls (``covers``) and how to make them; ``gives_less``: cut short it may hand over what it has."""

    covers: tuple[str, ...]
    act: Act
    gives_less: bool = False
    only_async: bool = False
    repairs: bool = False
    """Cut short it leaves what it was to repair; another pass does the rest."""
    surely: int | None = None
    """Requests that it sends whatever the time; None: as many as without a fault. 0: only those of ``background`` are tried."""
    background: tuple[str, ...] = ()
    """Requests that are sent at moments of their own, by name: the first of each meets every fault too."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the queue that it is done on."""

    @property
    def name(self) -> str:
        return self.act.__name__


OPERATIONS: list[Operation] = []


def covers(*names: str, **options: Any) -> Callable[[Act], Act]:
    """Puts the function on the list of operations."""

    def add(act: Act) -> Act:
        OPERATIONS.append(Operation(names, act, **options))
        return act

    return add


def ids(leases: list[Any]) -> list[tuple[str, int]]:
    return [(lease.message.id, lease.message.attempt) for lease in leases]


# --- connecting and producing ------------------------------------------------------------------------------------


@covers("FairQueue.connect", "FairQueue.close")
async def close_and_connect(scene: Scene) -> Any:
    await scene.queue.close()
    await scene.queue.connect()


@covers("FairQueue.enqueue")
async def enqueue(scene: Scene) -> Any:
    sent = await scene.queue.enqueue("new", tenant="a", id="new", metadata={"org": "o"})
    again = await scene.queue.enqueue("other", tenant="a", id="a1")
    return sent, again


@covers("FairQueue.enqueue_many")
async def enqueue_many(scene: Scene) -> Any:
    return await scene.queue.enqueue_many(
        [NewMessage(n, tenant=f"t{n % 3}", id=f"n{n}", delay=n % 2 and 60) for n in range(6)]
    )


@covers("FairQueue.enqueue_many")
async def enqueue_many_in_several_calls(scene: Scene) -> Any:
    return await scene.queue.enqueue_many(
        [NewMessage(n, tenant=f"t{n % 3}", id=f"n{n}") for n in range(SEVERAL_CALLS)]
    )


# --- consuming ---------------------------------------------------------------------------------------------------


@covers("FairQueue.claim", gives_less=True)
async def claim(scene: Scene) -> Any:
    leases = await scene.queue.claim(5)
    scene.leases += leases
    return ids(leases)


@covers("FairQueue.claim", gives_less=True)
async def claim_from_another_pool(scene: Scene) -> Any:
    await scene.direct.enqueue("p", tenant="p", id="p", pool="other")
    leases = await scene.queue.claim(5, pools=("none", "other"), consumer="somebody")
    scene.leases += leases
    return ids(leases)


@covers("FairQueue.claim", gives_less=True)
async def claim_and_wait(scene: Scene) -> Any:
    """It waits for longer than a bell's connection takes to be found dead (seven seconds), on a slow machine too."""
    before = scene.proxy.count("BLPOP")
    claiming = asyncio.ensure_future(scene.queue.claim(1, wait=60, pools=("quiet",)))
    await eventually(
        lambda: claiming.done() or scene.proxy.count("BLPOP") > before, "the claim to wait", deadline=60
    )
    await scene.direct.enqueue("q", tenant="q", id="q", pool="quiet")
    leases = await claiming
    scene.leases += leases
    return ids(leases)


@covers("FairQueue.claim", surely=2)
async def claim_and_wait_in_vain(scene: Scene) -> Any:
    """It looks, and waits for the bell; how often it looks again is a matter of time."""
    return await scene.queue.claim(1, wait=1, pools=("empty",))


@covers("FairQueue.complete_many")
async def complete_many(scene: Scene) -> Any:
    return await scene.queue.complete_many(scene.leases)


@covers("FairQueue.fail_many")
async def fail_many(scene: Scene) -> Any:
    return await scene.queue.fail_many(scene.leases, "no")


@covers("FairQueue.release_many")
async def release_many(scene: Scene) -> Any:
    return await scene.queue.release_many(scene.leases)


@covers("FairQueue.extend_many")
async def extend_many(scene: Scene) -> Any:
    scene.clock.advance(5)
    return await scene.queue.extend_many(scene.leases), [lease.deadline for lease in scene.leases]


@covers("Lease.extend")
async def extend(scene: Scene) -> Any:
    scene.clock.advance(5)
    return await scene.leases[0].extend()


@covers("Lease.complete")
async def complete(scene: Scene) -> Any:
    return await scene.leases[0].complete()


@covers("Lease.fail")
async def fail(scene: Scene) -> Any:
    return await scene.leases[0].fail("no")


@covers("Lease.release")
async def release(scene: Scene) -> Any:
    return await scene.leases[0].release(delay=60)


@covers("Lease.dead_letter")
async def dead_letter(scene: Scene) -> Any:
    return await scene.leases[0].dead_letter("no use")


@covers("Lease.keep_alive", background=("extend",), options=EXTENDED_OFTEN)
async def keep_alive(scene: Scene) -> Any:
    lease, given = scene.leases[0], scene.leases[0].deadline
    scene.clock.advance(0.5)
    async with lease.keep_alive():
        await eventually(lambda: lease.deadline > given, "an extend to be answered")
        return await lease.complete(), lease.deadline - given


@covers("Lease.complete", "FairQueue.claim", gives_less=True, only_async=True)
async def settle_and_claim_in_one_round_trip(scene: Scene) -> Any:
    """As a worker does."""
    options = claim_options(scene.inside._engine, 3, None, ["default"])
    first, second, third = scene.leases
    requests = [
        (first, Settlement("complete")),
        (second, failure("no", 0)),
        (third, Settlement("release")),
    ]
    outcomes, leases = await scene.inside._consumer.exchange(requests, options)
    scene.leases += leases
    return outcomes, ids(leases)


@covers("Worker.run", "Worker.stop", only_async=True, surely=1)
async def work(scene: Scene) -> Any:
    await scene.queue.complete_many(scene.leases)
    ran: list[tuple[str, int]] = []

    async def handle(message: Message[Any]) -> None:
        ran.append((message.id, message.attempt))

    worker = Worker(scene.queue, handle, concurrency=2, grace=5)
    running = asyncio.ensure_future(worker.run(signals=False))
    try:
        await eventually(lambda: running.done() or len(ran) >= 4, "four to be handled")
    finally:
        worker.stop()
        await running
    return sorted(ran)


MAINTAINED_OFTEN = EXTENDED_OFTEN | {"reclaim_interval": 0.1, "reconcile_interval": 0.1}
AGAIN_SOON = ("extend", "reclaim", "lock", "reconcile_leases", "reconcile_group", "tidy")


@covers(
    "Worker.run", "Worker.stop",
    only_async=True, surely=0, background=("beat", *AGAIN_SOON), options=MAINTAINED_OFTEN,
)  # fmt: skip
async def work_and_maintain(scene: Scene) -> Any:
    """The handlers run until all that a worker sends by itself was sent and, where it met a fault, sent again."""
    await scene.queue.complete_many(scene.leases)
    ran: list[tuple[str, int]] = []
    lock = key(scene.direct._engine.calls.root, "lock", "reconcile")

    async def sent() -> bool:
        await scene.direct._engine.command("DEL", lock)  # its time is the server's, a second at least
        return scene.proxy.count("beat") > 0 and all(scene.proxy.count(name) > 1 for name in AGAIN_SOON)

    async def handle(message: Message[Any]) -> None:
        ran.append((message.id, message.attempt))
        await eventually(sent, "each to be sent again", deadline=30)

    worker = Worker(scene.queue, handle, concurrency=2, grace=5)
    running = asyncio.ensure_future(worker.run(signals=False))
    try:
        await eventually(lambda: running.done() or len(ran) >= 4, "four to be handled")
    finally:
        worker.stop()
        await running
    return sorted(ran)


# --- control and reads -------------------------------------------------------------------------------------------


@covers("LimitsControl.set")
async def set_limit(scene: Scene) -> Any:
    await scene.queue.limits.set("org", "o", 6)


@covers("LimitsControl.reset")
async def reset_limit(scene: Scene) -> Any:
    await scene.queue.limits.reset("org", "o")


@covers("LimitsControl.set_backlog")
async def set_backlog(scene: Scene) -> Any:
    await scene.queue.limits.set_backlog("b", 9)


@covers("LimitsControl.set_rate")
async def set_rate(scene: Scene) -> Any:
    await scene.queue.limits.set_rate("org", "o", 1000, per=1, burst=50)


@covers("LimitsControl.get")
async def get_limit(scene: Scene) -> Any:
    return await scene.queue.limits.get("org", "o")


@covers("LimitsControl.list")
async def list_limits(scene: Scene) -> Any:
    return sorted([state.id async for state in scene.queue.limits.list("tenant")])


@covers("FairQueue.pause", "FairQueue.resume", "FairQueue.pauses")
async def pause_and_resume(scene: Scene) -> Any:
    paused = [await scene.queue.pause(tenant="a", by=by) for by in ("ops", "me")]
    blocked = await scene.direct.claim(5)
    scene.leases += blocked
    found = [(pause.tenant, pause.by, pause.since) async for pause in scene.queue.pauses()]
    return paused, ids(blocked), found, await scene.queue.resume(tenant="a")


@covers("FairQueue.cancel")
async def cancel(scene: Scene) -> Any:
    """Dead, delayed, ready, in flight, and none."""
    named = [("d", "d1"), ("c", "c1"), ("b", "b3"), ("a", "a1"), ("z", "none")]
    return [await scene.queue.cancel(*one) for one in named]


@covers("FairQueue.purge")
async def purge_what_waits(scene: Scene) -> Any:
    await scene.direct.enqueue_many(
        [NewMessage(n, tenant="a", id=f"p{n}", delay=n % 2 and 60) for n in range(60)]
    )
    return await scene.queue.purge("a")


@covers("FairQueue.fairness")
async def fairness(scene: Scene) -> Any:
    return [one.tenant for one in (await scene.queue.fairness(60)).tenants]


@covers("Tenants.get")
async def get_tenant(scene: Scene) -> Any:
    return await scene.queue.tenants.get("a")


@covers("Tenants.set_weight")
async def set_weight(scene: Scene) -> Any:
    await scene.queue.tenants.set_weight("a", 2)


@covers("Tenants.list")
async def list_tenants(scene: Scene) -> Any:
    return sorted([state.tenant async for state in scene.queue.tenants.list()])


@covers("DeadLetters.count")
async def count_dead(scene: Scene) -> Any:
    return await scene.queue.dead_letters.count("d")


@covers("DeadLetters.list")
async def list_dead(scene: Scene) -> Any:
    return await scene.queue.dead_letters.list("d")


@covers("DeadLetters.redrive")
async def redrive(scene: Scene) -> Any:
    return await scene.queue.dead_letters.redrive("d", "d1")


@covers("DeadLetters.redrive_all")
async def redrive_all(scene: Scene) -> Any:
    return await scene.queue.dead_letters.redrive_all("d")


@covers("DeadLetters.purge")
async def purge_one(scene: Scene) -> Any:
    return await scene.queue.dead_letters.purge("d", "d2")


@covers("DeadLetters.purge")
async def purge_all(scene: Scene) -> Any:
    return await scene.queue.dead_letters.purge("d")


@covers("DeadLetters.tenants")
async def list_dead_tenants(scene: Scene) -> Any:
    return [tenant async for tenant in scene.queue.dead_letters.tenants()]


@covers("FairQueue.stats")
async def stats(scene: Scene) -> Any:
    return await scene.queue.stats(), await scene.queue.stats("a")


@covers("FairQueue.get")
async def get(scene: Scene) -> Any:
    info = await scene.queue.get("a", "a1")
    return info.state, info.message.payload


@covers("FairQueue.explain")
async def explain(scene: Scene) -> Any:
    found = await scene.queue.explain("a", "a1")
    return found.state, [stop.kind for stop in found.stops]


@covers("FairQueue.messages")
async def messages(scene: Scene) -> Any:
    items, cursor = await scene.queue.messages("a")
    return [(item.message.id, item.state) for item in items], cursor


@covers("FairQueue.queues")
async def queues(scene: Scene) -> Any:
    return [state async for state in scene.queue.queues("a")]


@covers("FairQueue.workers")
async def workers(scene: Scene) -> Any:
    return [state async for state in scene.queue.workers()]


# --- maintenance -------------------------------------------------------------------------------------------------


@covers("FairQueue.reclaim", repairs=True)
async def reclaim(scene: Scene) -> Any:
    scene.clock.advance(31)
    scene.leases, scene.expired = [], True
    return await scene.queue.reclaim()


@covers("FairQueue.reconcile", repairs=True)
async def reconcile(scene: Scene) -> Any:
    await faults.leak_slot(scene.direct, "org", "o", "ghost")
    lost = scene.leases[0].message
    await faults.delete(scene.direct, "slot", lost.tenant, lost.id)
    await faults.delete(scene.direct, "deadline", lost.tenant, lost.id)
    await faults.wrong_type(scene.direct, "slots", "tenant", "b")
    return await scene.queue.reconcile()


@covers("FairQueue.audit", repairs=True)
async def audit(scene: Scene) -> Any:
    await faults.leak_slot(scene.direct, "org", "o", "ghost")
    return await scene.queue.audit(fix=True)


# --- the list ----------------------------------------------------------------------------------------------------

PUBLIC = (FairQueue, Lease, LimitsControl, Tenants, DeadLetters, Worker)
WITHOUT_EXCHANGE = {"Worker.run_sync": "Worker.run in an event loop of its own"}


def public_operations() -> set[str]:
    """Every public method of the classes that talk to the server."""
    return {
        f"{kind.__name__}.{name}"
        for kind in PUBLIC
        for name, member in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }
