"""The operator: sets the rates, and then pauses and resumes, weighs and guarantees while all is under way.

The journal says of each order when it was answered, or is about to be given: what holds in between is certain.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from fairqueue import FairQueue
from tests.chaos import journal as lines
from tests.chaos import load
from tests.chaos.journal import Journal

Selectors = tuple[str | None, str | None, str | None]
"""Tenant, queue, pool; None: any."""

WEIGHTS = (0.2, 0.5, 1, 3)
MOST_PAUSES = 2
_PAUSE, _REST = (0.1, 0.8), (0.1, 0.5)


class Operator:
    """One process of it. A namesake may have been killed at anything: what it has left paused is resumed first."""

    def __init__(self, queue: FairQueue[Any], journal: Journal, rng: random.Random) -> None:
        self._queue, self._journal, self._rng = queue, journal, rng
        self._standing: list[Selectors] = []

    async def operate(self, stop: asyncio.Event) -> None:
        """Until it is asked to end; whatever is paused then is left to who comes next."""
        await self._set_rates()
        await self._resume_all()
        orders = [self._pause, self._pause, self._weigh, self._guarantee]
        while not stop.is_set():
            await self._rng.choice(orders)()
            await _pass(stop, self._rng.uniform(*_PAUSE))
            if self._standing and (len(self._standing) == MOST_PAUSES or self._rng.random() < 0.7):
                await self._resume(self._standing.pop(0))
            await _pass(stop, self._rng.uniform(*_REST))

    async def _set_rates(self) -> None:
        """The same each time: tokens that are there stay."""
        for group, rate in load.RATES.items():
            await self._queue.limits.set_rate(rate.limit, group, rate.n, per=1, burst=rate.burst)
            self._journal.write(lines.RATED, group=group)

    async def _resume_all(self) -> None:
        for pause in [pause async for pause in self._queue.pauses()]:
            await self._resume((pause.tenant, pause.queue, pause.pool))

    async def _pause(self) -> None:
        selectors = drawn(self._rng)
        await self._queue.pause(*selectors, by="chaos", reason="as planned")
        self._journal.write(lines.PAUSED, selectors=selectors)
        if selectors not in self._standing:
            self._standing.append(selectors)

    async def _resume(self, selectors: Selectors) -> None:
        self._journal.write(lines.RESUMING, selectors=selectors)
        await self._queue.resume(*selectors)

    async def _weigh(self) -> None:
        tenant, weight = self._rng.choice(load.TENANTS), self._rng.choice(WEIGHTS)
        await self._queue.tenants.set_weight(tenant, weight)
        self._journal.write(lines.SET, tenant=tenant, weight=weight)

    async def _guarantee(self) -> None:
        """Its limit stays what it is."""
        slots = self._rng.choice([None, 1, 2])
        await self._queue.limits.set("tenant", load.GUARANTEED, load.PER_TENANT, guaranteed=slots)
        self._journal.write(lines.SET, tenant=load.GUARANTEED, guaranteed=slots)


def drawn(rng: random.Random) -> Selectors:
    """What is paused: a tenant, a queue, a pool, or what has two of them."""
    tenant, queue, pool = rng.choice(load.TENANTS), rng.choice(["default", "other"]), rng.choice(load.POOLS)
    return rng.choice(
        [
            (tenant, None, None),
            (tenant, None, None),
            (None, queue, None),
            (None, None, pool),
            (tenant, queue, None),
        ]
    )


async def _pass(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
