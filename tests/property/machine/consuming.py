"""Consumers: claims of every kind, all ways to end and to prolong a delivery, and a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from fairqueue import Lease, LeaseLostError, Message, Worker
from tests.property.machine.base import ALL_POOLS, VISIBILITY, Play, clients, pools, which
from tests.property.model import Held, Mid, instant
from tests.support.waiting import eventually

SHORT = 0.2
"""A visibility timeout whose quarters a test can wait for."""
SETTLES: dict[str, Callable[[Lease[Any], float], Awaitable[str]]] = {
    "complete": lambda lease, delay: lease.complete(),
    "fail": lambda lease, delay: lease.fail("no"),
    "release": lambda lease, delay: lease.release(delay),
    "dead_letter": lambda lease, delay: lease.dead_letter("enough"),
}
SETTLES_MANY: dict[str, Callable[[Any, list[Lease[Any]], float], Awaitable[list[str]]]] = {
    "complete": lambda queue, leases, delay: queue.complete_many(leases),
    "fail": lambda queue, leases, delay: queue.fail_many(leases, "no"),
    "release": lambda queue, leases, delay: queue.release_many(leases, delay),
}
delays = st.sampled_from([0, 0, 4])


async def outcome_of(settling: Awaitable[str]) -> str:
    try:
        return await settling
    except LeaseLostError:
        return "lost"


class Consuming(Play):
    """claim, extend, settle, keep_alive, Worker."""

    def taken(
        self, leases: list[Lease[Any]], pools: tuple[str, ...], client: int, visibility: float | None
    ) -> None:
        """What a claim gave is allowed; that it gave nothing means that there was nothing."""
        self.model.promote()
        for lease in leases:
            self.model.take(lease, pools, visibility or VISIBILITY, client)
            self.model.messages[lease.message.tenant, lease.message.id].consumer = None
        left = self.model.claimable(pools)
        assert leases or not left, (
            f"nothing was claimed although {[message.mid for message in left]} could be"
        )

    @rule(
        n=st.sampled_from([1, 1, 2, 3, 10]),
        pools=pools,
        visibility=st.sampled_from([None, None, None, SHORT, 10]),
        wait=st.sampled_from([0, 0, 0, 0.005]),
        client=clients,
    )
    def claim(
        self, n: int, pools: tuple[str, ...], visibility: float | None, wait: float, client: int
    ) -> None:
        queue = self.queues[client]
        leases = self.run(lambda: queue.claim(n, wait=wait, pools=pools, visibility_timeout=visibility))
        assert len(leases) <= n
        self.taken(leases, pools, client, visibility)

    @rule(name=st.sampled_from(["somebody", "é"]), client=clients)
    def claim_by_name(self, name: str, client: int) -> None:
        queue = self.queues[client]
        leases = self.run(lambda: queue.claim(2, consumer=name, pools=ALL_POOLS))
        self.taken(leases, ALL_POOLS, client, None)
        for lease in leases:
            self.model.messages[lease.message.tenant, lease.message.id].consumer = name

    @rule(client=clients)
    def somebody_waits_for_the_next_message(self, client: int) -> None:
        """A claim that waits is woken by an enqueue of the other client; a tenant of its own has room always."""
        claimer, producer = self.queues[client], self.queues[1 - client]
        id_ = self.fresh_id()

        async def both() -> list[Lease[Any]]:
            claiming = asyncio.ensure_future(claimer.claim(1, wait=60, pools=("waited",)))
            await asyncio.sleep(0)
            await producer.enqueue({}, tenant="W", id=id_, pool="waited")
            leases = await asyncio.wait_for(claiming, 60)
            await leases[0].complete()
            return leases

        (lease,) = self.run(both)
        assert lease.message.id == id_
        self.model.totals.update(["enqueued", "claimed", "completed"])
        self.model.promote()  # the claim looked at what is due in all pools

    # --- ends of deliveries ------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.deliveries)
    @rule(index=which, action=st.sampled_from(sorted(SETTLES)), delay=delays)
    def settle(self, index: int, action: str, delay: float) -> None:
        held = self.delivery(index)
        expected = self.model.settle(held, action, delay)
        assert self.run(lambda: outcome_of(SETTLES[action](held.lease, delay))) == expected
        assert held.lease.lost.is_set() == held.lost
        assert expected != "cancelled" or held.lease.cancelled.is_set()

    @precondition(lambda self: self.model.deliveries)
    @rule(count=st.integers(1, 6), action=st.sampled_from(sorted(SETTLES_MANY)), delay=delays, client=clients)
    def settle_many(self, count: int, action: str, delay: float, client: int) -> None:
        """Those that another client claimed, too."""
        chosen = self.model.deliveries[-count:]
        expected = [self.model.settle(held, action, delay) for held in chosen]
        leases, queue = [held.lease for held in chosen], self.queues[client]
        assert self.run(lambda: SETTLES_MANY[action](queue, leases, delay)) == expected

    # --- longer deliveries -------------------------------------------------------------------------------------

    def extended(self, held: Held) -> bool:
        """Whether the model says that it is ours still."""
        return self.model.extend(held)

    @precondition(lambda self: self.model.deliveries)
    @rule(count=st.integers(1, 3), client=clients)
    def extend_many(self, count: int, client: int) -> None:
        chosen, queue = self.model.deliveries[-count:], self.queues[client]
        expected = ["extended" if self.extended(held) else "lost" for held in chosen]
        assert self.run(lambda: queue.extend_many([held.lease for held in chosen])) == expected
        for held, outcome in zip(chosen, expected, strict=True):
            assert outcome == "lost" or held.lease.deadline == instant(self.model.now + held.visibility)

    @precondition(lambda self: self.model.deliveries)
    @rule(index=which)
    def extend(self, index: int) -> None:
        held = self.delivery(index)
        lease, ours = held.lease, self.extended(held)
        try:
            deadline = self.run(lease.extend)
        except LeaseLostError:
            assert not ours
        else:
            assert ours
            assert deadline == instant(self.model.now + held.visibility)
            assert lease.cancelled.is_set() == self.model.messages[held.mid].cancelled

    @precondition(
        lambda self: any(held.visibility == SHORT and not held.asked for held in self.model.deliveries)
    )
    @rule(seconds=st.sampled_from([0.1, 0.3]))
    def keep_alive(self, seconds: float) -> None:
        """Extended behind our back, also after it expired, unless somebody took it back."""
        held = next(held for held in self.model.deliveries if held.visibility == SHORT and not held.asked)
        lease = held.lease

        async def kept() -> None:
            async with lease.keep_alive():
                until = instant(self.model.now + SHORT)
                await eventually(
                    lambda: lease.lost.is_set() or lease.deadline == until,
                    "the lease to be kept alive or lost",
                )

        held.begun = True
        self.clock.advance(seconds)
        self.model.now += seconds
        self.run(kept)
        assert lease.lost.is_set() != self.extended(held)

    # --- a worker ----------------------------------------------------------------------------------------------

    @precondition(
        lambda self: not self.model.rates
    )  # who of several gets the last token is not the model's affair
    @rule(concurrency=st.integers(1, 3), pools=pools, client=clients)
    def work(self, concurrency: int, pools: tuple[str, ...], client: int) -> None:
        """It completes all that anybody could get, each message once, at the attempt it is at."""
        expected = self.model.work_off(pools)
        ran: list[tuple[Mid, int]] = []

        async def handle(message: Message[Any]) -> None:
            ran.append(((message.tenant, message.id), message.attempt))

        async def until_done() -> None:
            worker = Worker(self.queues[client], handle, concurrency=concurrency, pools=pools, grace=5)
            running = asyncio.ensure_future(worker.run(signals=False))
            await eventually(lambda: running.done() or len(ran) >= len(expected), "the worker to do all")
            worker.stop()
            await running
            await self.queue.claim(
                1, pools=("nothing",)
            )  # what is due is promoted, though there was nothing to do

        self.run(until_done)
        assert dict(ran) == expected
        assert len(ran) == len(expected)
