"""What each script is made to do while one of its commands fails: a queue with work in every state, and the acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fairqueue import FairQueue, Lease, Limit, NewMessage
from fairqueue._engine.keys import join
from fairqueue.testing import ManualClock, drain, faults
from tests.engine.tools import raw

LIMITS = [Limit("tenant", default=2), Limit("org", default=3, key="org")]
TENANTS = ("a", "b", "c", "d")


@dataclass
class Scene:
    """A queue with work in every state, and what is known of it."""

    queue: FairQueue[Any]
    clock: ManualClock
    leases: list[Lease[Any]] = field(default_factory=list)
    accepted: set[tuple[str, str]] = field(default_factory=set)
    maybe: set[tuple[str, str]] = field(default_factory=set)  # an enqueue that raised may have stored it
    ended: set[tuple[str, str]] = field(default_factory=set)
    twice: list[tuple[str, str]] = field(default_factory=list)  # ran again after it was done

    async def add(self, tenant: str, *ids: str, **options: Any) -> None:
        messages = [NewMessage(id, tenant=tenant, id=id, metadata={"org": "o"}, **options) for id in ids]
        named = {(tenant, id) for id in ids}
        self.maybe |= named
        await self.queue.enqueue_many(messages)
        self.accepted |= named

    def end(self, *leases: Lease[Any]) -> None:
        self.ended |= {(lease.message.tenant, lease.message.id) for lease in leases}

    async def run(self, call: Any) -> Any:
        return await self.queue._engine.run(call)

    async def recover(self) -> None:
        """The maintenance passes, then everything that is left is worked off."""
        self.end(*(one for one in self.leases if (made := one._held.settlement) and made.outcome == "done"))
        await self.queue.reconcile()
        self.clock.advance(60)
        await self.queue.reclaim()
        await self.queue.reconcile()
        for _ in range(6):  # retries come due one after another
            for message in await drain(self.queue):
                named = (message.tenant, message.id)
                if named in self.ended:
                    self.twice.append(named)
                self.ended.add(named)
            self.clock.advance(4000)
        for tenant in TENANTS:
            items, _ = await self.queue.dead_letters.list(tenant)
            self.ended |= {(tenant, item.message.id) for item in items}
            await self.queue.dead_letters.purge(tenant)


async def prepared(queue: FairQueue[Any], clock: ManualClock) -> Scene:
    scene = Scene(queue, clock)
    await scene.add("a", "a1", "a2", "a3", "a4")
    await scene.add("b", "b1", "b2", queue="other")
    await scene.add("b", "b3")
    await scene.add("c", "later", delay=5)
    scene.leases = await queue.claim(3)
    return scene


Act = Callable[[Scene], Awaitable[Any]]

# --- transitions ---------------------------------------------------------------------------------------------------


async def enqueue(scene: Scene) -> None:
    await scene.add("d", "d1", "d2", queue="new")
    await scene.add("a", "a5", delay=3)


async def claim(scene: Scene) -> None:
    await scene.leases[0].complete()
    scene.end(scene.leases[0])
    scene.clock.advance(6)
    await scene.queue.claim(3)


async def complete(scene: Scene) -> None:
    scene.accepted -= {
        (lease.message.tenant, lease.message.id) for lease in scene.leases
    }  # may be gone, may be not
    await scene.queue.complete_many(scene.leases)


async def fail(scene: Scene) -> None:
    await scene.queue.fail_many(scene.leases, "no")


async def release(scene: Scene) -> None:
    await scene.queue.release_many(scene.leases)


async def dead_letter(scene: Scene) -> None:
    for lease in scene.leases:
        await lease.dead_letter("no")


async def extend(scene: Scene) -> None:
    await scene.queue.extend_many(scene.leases)


async def promote(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.run(scene.queue._engine.calls.promote(100))


async def redrive(scene: Scene) -> None:
    await dead_letter(scene)
    for tenant in ("a", "b"):
        await scene.queue.dead_letters.redrive_all(tenant)


async def purge(scene: Scene) -> None:
    await dead_letter(scene)
    scene.maybe |= scene.accepted
    scene.accepted -= {(lease.message.tenant, lease.message.id) for lease in scene.leases}
    for tenant in ("a", "b"):
        await scene.queue.dead_letters.purge(tenant)


async def set_limit(scene: Scene) -> None:
    await scene.queue.limits.set("org", "o", 10)


# --- settings ------------------------------------------------------------------------------------------------------


async def configure(scene: Scene) -> None:
    declared, engine = {"scheduler": "fifo", "max_crashes": "7"}, scene.queue._engine
    stream = engine.settle_streams.take()
    await scene.run(engine.calls.configure(stream, "me", declared, [("tenant", 3), ("org", None)]))


async def retag(scene: Scene) -> None:
    for cursor in ("ring0", "blocked0", "groups0", "pool0"):
        await scene.run(scene.queue._engine.calls.retag("default", cursor))


# --- maintenance ---------------------------------------------------------------------------------------------------


async def reclaim(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


async def damaged(scene: Scene) -> None:
    await faults.leak_slot(scene.queue, "org", "o", "ghost")
    lost = scene.leases[0].message
    await faults.delete(scene.queue, "slot", lost.tenant, lost.id)
    await faults.delete(scene.queue, "deadline", lost.tenant, lost.id)
    await faults.wrong_type(scene.queue, "slots", "tenant", "b")
    await raw(
        scene.queue, "HSET", "stopped", args=(join("a", "default", "default", "tenant", "a", "org", "o"), 1)
    )
    await raw(scene.queue, "SADD", "dead_tenants", args=("nobody",))
    await raw(scene.queue, "HSET", "vtime", args=(join("p", "nowhere"), 5))


async def reconcile(scene: Scene) -> None:
    await damaged(scene)
    await scene.queue.reconcile()


async def audit(scene: Scene) -> None:
    await dead_letter(scene)
    scene.leases.extend(await scene.queue.claim(1))
    await damaged(scene)
    await raw(scene.queue, "HSET", "body", args=(join("a", "none"), "0:1"))
    await raw(scene.queue, "ZADD", "dead", "a", args=(99, "none"))
    await raw(scene.queue, "HINCRBY", "totals", args=("r", 3))
    await scene.queue.audit(fix=True)


async def audit_when_empty(scene: Scene) -> None:
    """All work is done, and a key was left."""
    scene.clock.advance(6)
    leases, scene.leases = scene.leases, []
    while leases:
        scene.end(*leases)
        await scene.queue.complete_many(leases)
        leases = await scene.queue.claim(10)
    await raw(scene.queue, "HSET", "dirty", args=(join("tenant", "gone"), "dirty"))
    await scene.queue.audit(fix=True)


async def signs_of_life(scene: Scene) -> None:
    calls = scene.queue._engine.calls
    await scene.run(calls.beat("worker", '{"host": "h"}', 60_000))
    await scene.run(calls.lock("duty", "me", 1000))
    await scene.run(calls.ring_bell(["default"]))
    await scene.run(calls.lock("duty", "me", 0))
    await scene.run(calls.beat("worker", "", 60_000))


# --- reads ---------------------------------------------------------------------------------------------------------


async def look(scene: Scene) -> None:
    await scene.queue.get("a", "a1")
    await scene.queue.limits.get("org", "o")
    await scene.queue.stats("a")
    await scene.queue.stats()
    _ = [state async for state in scene.queue.queues("a")]


ACTS: dict[str, tuple[Act, ...]] = {
    "enqueue": (enqueue,),
    "claim": (claim,),
    "settle": (complete, fail, release, dead_letter),
    "extend": (extend,),
    "promote": (promote,),
    "redrive": (redrive,),
    "purge_dead": (purge,),
    "set_limit": (set_limit,),
    "configure": (configure,),
    "retag": (retag,),
    "reclaim": (reclaim,),
    **dict.fromkeys(
        ("reconcile_group", "reconcile_leases", "reconcile_open", "tidy", "recount"), (reconcile,)
    ),
    **dict.fromkeys(
        ("audit_types", "audit_numbers", "audit_heads", "audit_leases", "audit_orphans"), (audit,)
    ),
    **dict.fromkeys(("audit_group", "audit_pool", "audit_lane", "audit_dead", "pool_lanes"), (audit,)),
    "audit_clean": (audit_when_empty,),
    **dict.fromkeys(("beat", "lock", "ring_bell"), (signs_of_life,)),
    **dict.fromkeys(("get", "group_state", "tenant_state", "totals", "lanes", "pool_page"), (look,)),
}
"""By script: what makes it run. A script that several acts make run in another way each is there for each."""
