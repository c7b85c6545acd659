"""A program under a copy of the package with one scheduler more: what it saw, as JSON. See test_fourth_scheduler.py.

It is run by its path and imports no tests: those refuse a copy.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from typing import Any

from fairqueue import FairQueue, Limit, NewMessage
from fairqueue.testing import ManualClock, assert_whole

COSTS = (0.5, 1, 3)
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 4.0}


async def serve(queue: FairQueue[Any], most: int, batch: int = 1) -> list[tuple[str, float]]:
    """Who was served, in order, and at what cost."""
    served: list[tuple[str, float]] = []
    while len(served) < most and (leases := await queue.claim(min(batch, most - len(served)))):
        served += [(lease.message.tenant, lease.message.cost) for lease in leases]
        await queue.complete_many(leases)
    return served


async def shares(queue: FairQueue[Any]) -> dict[str, float]:
    """What each was served for its weight, in cost units, while all have work."""
    rng = random.Random(1)
    for tenant, weight in WEIGHTS.items():
        await queue.tenants.set_weight(tenant, weight)
        await queue.enqueue_many(NewMessage(n, tenant=tenant, cost=rng.choice(COSTS)) for n in range(300))
    got: Counter[str] = Counter()
    for tenant, cost in await serve(queue, 350, 7):
        got[tenant] += cost  # type: ignore[assignment]
    return {tenant: got[tenant] / weight for tenant, weight in WEIGHTS.items()}


async def newcomer(queue: FairQueue[Any]) -> str:
    """The order from when one comes to three that are served already."""
    await serve(queue, 8)
    await queue.enqueue_many(NewMessage(n, tenant="new") for n in range(3))
    return "".join(tenant[0] for tenant, _ in await serve(queue, 60))


async def at_a_full_group(queue: FairQueue[Any]) -> dict[str, int]:
    """How often each of two was served where both wait for one slot, one of them given back now and then."""
    for tenant in "xy":
        await queue.enqueue_many(NewMessage(n, tenant=tenant, metadata={"org": "o"}) for n in range(60))
    got: Counter[str] = Counter()
    for turn in range(90):
        for lease in await queue.claim(3):
            if turn % 7 == 3:
                await lease.release()
            else:
                await lease.complete()
                got[lease.message.tenant] += 1
    return dict(got)


async def main(url: str, name: str) -> dict[str, Any]:
    limits = [Limit("tenant"), Limit("org", default=1, key="org")]
    async with FairQueue(
        url=url, name=name, scheduler="patient", limits=limits, clock=ManualClock(), reconcile_interval=0
    ) as queue:
        found = {"shares": await shares(queue), "newcomer": await newcomer(queue)}
        await serve(queue, 2_000, 50)
        found["full group"] = await at_a_full_group(queue)
        await assert_whole(queue)
        await serve(queue, 2_000, 50)
        await assert_whole(queue)
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
