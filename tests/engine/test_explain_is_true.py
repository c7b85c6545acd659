"""Before each claim of a random life everything is explained: what it takes was stopped by nothing, and where it takes
nothing all was stopped by something."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import pytest

from fairqueue import ConfigurationError, Explanation, FairQueue, Lease, Limit, NewMessage
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue

TENANTS, QUEUES, ROOMS = "abc", ("x", "y"), ("r", "s", None)
LIMITS = [Limit("tenant", default=3), Limit("room", default=2, key="room")]
STEPS = 200
MOST_WAITING = 12


class Life:
    """Random steps, as tenants, workers and operators take them."""

    def __init__(self, queue: FairQueue[Any], clock: ManualClock, random: Random) -> None:
        self.queue, self.clock, self.random = queue, clock, random
        self.waiting: set[tuple[str, str]] = set()
        self.leases: list[Lease[Any]] = []
        self.sent = self.taken = self.foreseen = self.nothing = 0

    async def enqueue(self) -> None:
        if len(self.waiting) < MOST_WAITING:
            self.sent += 1
            room = self.random.choice(ROOMS)
            tenant, id_ = self.random.choice(TENANTS), f"m{self.sent}"
            message = NewMessage(
                1, tenant=tenant, id=id_, queue=self.random.choice(QUEUES),
                metadata={"room": room} if room else {}, priority=self.random.choice((0, 0, 3)),
                delay=self.random.choice((None, None, 3)), cost=self.random.choice((1, 1, 0.5, 3)),
                expires=self.random.choice((None, None, None, 9)), on_expiry="drop",
            )  # fmt: skip
            await self.queue.enqueue_many([message])
            self.waiting.add((tenant, id_))

    async def end(self) -> None:
        if self.leases:
            lease = self.leases.pop(self.random.randrange(len(self.leases)))
            if self.random.random() < 0.7:
                await lease.complete()
            else:
                await lease.release(delay=self.random.choice((0, 2)))
                self.waiting.add((lease.message.tenant, lease.message.id))

    async def limit(self) -> None:
        group = self.random.choice((("tenant", self.random.choice(TENANTS)), ("room", "r"), ("room", "s")))
        with contextlib.suppress(ConfigurationError):  # less than is guaranteed to those who use the room
            await self.queue.limits.set(*group, self.random.choice((0, 1, 2, 4, None)))

    async def guarantee(self) -> None:
        with contextlib.suppress(ConfigurationError):  # more would be guaranteed than a room has
            await self.queue.limits.set(
                "tenant", self.random.choice(TENANTS), 3, guaranteed=self.random.choice((None, 1, 2))
            )

    async def weigh(self) -> None:
        with contextlib.suppress(ConfigurationError):  # by "fifo" there are no weights
            await self.queue.tenants.set_weight(self.random.choice(TENANTS), self.random.choice((0.5, 1, 2)))

    async def rate(self) -> None:
        group = self.random.choice((("tenant", self.random.choice(TENANTS)), ("room", "r")))
        n, burst = self.random.choice((None, 1, 2)), self.random.choice((1, 2))
        await self.queue.limits.set_rate(*group, n, per=5, burst=burst)

    async def pause(self) -> None:
        selectors = self.random.choice(
            ({"tenant": "a"}, {"queue": "x"}, {"tenant": "b", "queue": "y"}, {"pool": "default"})
        )
        await (self.queue.resume if self.random.random() < 0.8 else self.queue.pause)(**selectors)

    async def tick(self) -> None:
        self.clock.advance(self.random.choice((0.5, 1, 4)))

    async def explained(self) -> dict[tuple[str, str], Explanation]:
        found = {}
        for tenant, id_ in sorted(self.waiting):
            if await self.queue.get(tenant, id_) is None:
                self.waiting.discard((tenant, id_))  # expired
            else:
                found[tenant, id_] = await self.queue.explain(tenant, id_)
        return found

    async def claim(self) -> None:
        told = await self.explained()
        next_ones = [name for name, one in told.items() if not one.stops and turn(one) == (0, 0, 0)]
        assert len(next_ones) <= 1, "one alone is next"
        leases = await self.queue.claim(1)
        for lease in leases:
            name = (lease.message.tenant, lease.message.id)
            self.check(told[name])
            if name in next_ones:
                self.foreseen += 1
            else:
                assert came_meanwhile(told), f"it was taken, and its turn had not come:\n{told[name]}"
            self.waiting.discard(name)
            self.taken += 1
        if not leases:
            wrong = [f"{name}\n{one}" for name, one in told.items() if not one.stops]
            assert not wrong, "nothing was taken, and these were said to be free:\n" + "\n".join(wrong)
            self.nothing += bool(told)
        self.leases += leases

    def check(self, before: Explanation) -> None:
        # Whoever a slot is promised to, and cannot use it, hands it on within the claim.
        lasting = [stop for stop in before.stops if not stop.promised or stop.held == stop.slots is not None]
        assert lasting == [], f"it was taken, and was said to be stopped:\n{before}"
        assert not before.position, f"it was taken, and was said to be behind others:\n{before}"


def turn(told: Explanation) -> tuple[int | None, int | None, int | None]:
    return told.position, told.lanes_ahead, told.tenants_ahead


def came_meanwhile(told: dict[tuple[str, str], Explanation]) -> bool:
    """Does the claim itself let somebody take turns: a message is due, a token came, or a promise is handed on?"""
    lasting = {name: [stop for stop in one.stops if not stop.promised] for name, one in told.items()}
    return any(not lasting[name] and one.lanes_ahead is None for name, one in told.items())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scheduler", ["fair", "fifo", "drr"])
async def test_what_is_told_is_what_a_claim_does(
    make_queue: MakeQueue, clock: ManualClock, scheduler: str, seed: int
) -> None:
    life = Life(
        await make_queue(limits=LIMITS, scheduler=scheduler, visibility_timeout=3600), clock, Random(seed)
    )
    steps = (
        [life.enqueue] * 4
        + [life.claim] * 5
        + [life.end] * 2
        + [life.limit, life.guarantee, life.weigh, life.rate, life.pause, life.tick]
    )
    for _ in range(STEPS):
        await life.random.choice(steps)()
    assert life.taken > 10
    assert life.foreseen > life.taken / 2
    assert life.nothing > 3
