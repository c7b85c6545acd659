"""A queue with work in every state, what is known of it, and what must hold after a fault."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairqueue import FairQueue, Lease, Limit, NewMessage
from fairqueue._engine.calls import Call, CallNumber, SettleRow, Stream
from fairqueue._engine.keys import US
from fairqueue._engine.scan import escaped, scan
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import ManualClock, drain
from tests.engine.tools import raw

LIMITS = [
    Limit("tenant", default=2),
    Limit("org", default=3, key="org"),
    Limit("room", default=1, key="room"),
]
Named = tuple[str, str]


@dataclass
class Scene:
    """A queue with work in every state, and what is known of it."""

    queue: FairQueue[Any]
    clock: ManualClock
    leases: list[Lease[Any]] = field(default_factory=list)
    accepted: set[Named] = field(default_factory=set)
    maybe: set[Named] = field(default_factory=set)  # an enqueue that raised may have stored it
    ended: set[Named] = field(default_factory=set)
    dead: set[Named] = field(default_factory=set)  # as dead letters, at the end
    condemned: set[Named] = field(default_factory=set)  # the act asks that they be so
    gone: set[Named] = field(default_factory=set)  # what may be gone: nobody counts on it
    twice: list[Named] = field(default_factory=list)  # ran again after it was done, or while its lease lived
    left_to_a_claim: bool = False  # maintenance left what the next claim healed
    call: Call[Any] | None = None  # one that has been made, for the act to repeat

    async def add(
        self, tenant: str, *ids: str, org: str | None = "o", room: str | None = None, **options: Any
    ) -> None:
        named = {"org": org, "room": room}
        metadata = {limit: of for limit, of in named.items() if of is not None}
        messages = [NewMessage(id, tenant=tenant, id=id, metadata=metadata, **options) for id in ids]
        self.maybe |= {(tenant, id) for id in ids}
        await self.queue.enqueue_many(messages)
        self.accepted |= {(tenant, id) for id in ids}

    async def take(self, n: int) -> Sequence[Lease[Any]]:
        """Claims n more, which this client then holds."""
        leases = await self.queue.claim(n)
        self.leases += leases
        return leases

    async def done(self, lease: Lease[Any]) -> None:
        """Completes one that this client holds."""
        self.leases.remove(lease)
        await lease.complete()
        self.end(lease)

    def end(self, *leases: Lease[Any]) -> None:
        self.ended |= {(lease.message.tenant, lease.message.id) for lease in leases}

    def give_up(self) -> list[Lease[Any]]:
        """The leases that this client holds, for it to end in a way that lets others claim the message."""
        leases, self.leases = self.leases, []
        return leases

    async def bury(self) -> None:
        """What this client holds is to be dead letters."""
        leases = self.give_up()
        self.condemned |= {(lease.message.tenant, lease.message.id) for lease in leases}
        for lease in leases:
            await lease.dead_letter("no")

    def may_be_gone(self, *named: Named) -> None:
        """A call that may have ended these is under way, or their records are destroyed by hand."""
        self.accepted -= set(named)
        self.gone |= set(named)

    async def run(self, call: Any) -> Any:
        return await self.queue._engine.run(call)

    async def living(self) -> set[Named]:
        """The messages whose lease lives: by what is stored, or because this client was given it."""
        return await self._stored_leases() | {
            (lease.message.tenant, lease.message.id)
            for lease in self.leases
            if lease.deadline.timestamp() * 1000 > self.clock.now_ms()
        }

    async def _stored_leases(self) -> set[Named]:
        """Of what is in flight, with its record, and not expired."""
        now, found = self.clock.now_ms(), set()
        for mid in await raw(self.queue, "ZRANGEBYSCORE", "deadlines", args=(f"({now}", "+inf")):
            lease, head = [await raw(self.queue, "HGET", kind, args=(mid,)) for kind in ("leases", "head")]
            if lease and head and head.startswith(b"f\x1f" + lease.partition(b"\x1f")[0] + b"\x1f"):
                found.add(_named(mid))
        return found

    async def claimed_by_another(self) -> bool:
        """Time has not moved: whoever else claims gets nothing that somebody holds. Whether there was anything."""
        living, calls = await self.living(), self.queue._engine.calls
        stream = Stream(secrets.token_hex(4), 1, CallNumber(1))
        claimed = await self.run(calls.claim(stream, 20, 30_000, "another", ("default",)))
        got = [(one.tenant, one.id, one.token) for one in claimed.messages]
        self.twice += sorted({(tenant, id_) for tenant, id_, _ in got} & living)
        rows = [SettleRow(*one, "complete") for one in got]
        outcomes = await self.run(calls.settle(replace(stream, number=2), rows, 60_000)) if rows else []
        self.ended |= {one[:2] for one, outcome in zip(got, outcomes, strict=True) if outcome == "done"}
        return bool(got)

    async def maintain(self) -> None:
        """The maintenance passes, when all leases have expired."""
        self.end(*(one for one in self.leases if (made := one._held.settlement) and made.outcome == "done"))
        await self.queue.reconcile()
        self.clock.advance(60)
        await self.queue.reclaim()
        await promote(self.queue._engine)
        await self.queue.reconcile()

    async def work_off(self) -> None:
        """Everything that is left is claimed and completed; what is dead is counted and purged."""
        for _ in range(6):  # retries come due one after another
            for message in await drain(self.queue, batch=5):
                named = (message.tenant, message.id)
                if named in self.ended:
                    self.twice.append(named)
                self.ended.add(named)
            async for tenant in self.queue.dead_letters.tenants():
                items, _ = await self.queue.dead_letters.list(tenant)
                self.dead |= {(tenant, item.message.id) for item in items}
                self.ended |= self.dead
                await self.queue.dead_letters.purge(tenant)
            await self.queue.reconcile()  # what a claim found damaged, or left as the last one
            if not await raw(self.queue, "EXISTS", "head"):
                return
            self.clock.advance(4000)


def _named(mid: bytes) -> Named:
    tenant, _, id_ = mid.decode().partition(US)
    return tenant, id_


Step = Callable[[Scene], Awaitable[Any]]


async def mend(scene: Scene) -> None:
    """Somebody removes what holds another type and is told by no other key: the doctor names it."""
    root = scene.queue._engine.calls.root
    for kind in ("lane", "dead", "served"):
        async for name in scan(scene.queue._engine, "SCAN", None, escaped(root + kind) + "*"):
            if await scene.queue._engine.command("TYPE", name) == b"string":
                await scene.queue._engine.command("DEL", name)


async def prepared(scene: Scene) -> None:
    """Three are held, which fills a tenant and the org; others wait for both; one is delayed."""
    await scene.add("a", "a1", "a2", "a3", "a4")
    await scene.add("b", "b1", "b2", queue="other")
    await scene.add("b", "b3")
    await scene.add("c", "later", delay=5)
    await scene.take(3)
