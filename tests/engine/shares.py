"""Who was served how much, and how far apart any two were over any interval."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

from fairqueue import FairQueue, Lease, Message, NewMessage

Served = list[tuple[str, float]]
"""Who was served, in order, and at what cost."""


def widest_gap(served: Served, names: Iterable[str]) -> float:
    """The largest difference in service between any two of ``names`` over any interval of ``served``."""
    widest = 0.0
    for one, other in combinations(sorted(names), 2):
        ahead = low = high = 0.0
        for name, cost in served:
            ahead += cost * ((name == one) - (name == other))
            low, high = min(low, ahead), max(high, ahead)
        widest = max(widest, high - low)
    return widest


def while_all_have_work(served: Served, amounts: dict[str, int]) -> Served:
    """The part of ``served`` in which each of ``amounts`` still had messages left."""
    left = dict(amounts)
    for position, (name, _) in enumerate(served):
        left[name] -= 1
        if left[name] == 0:
            return served[: position + 1]
    return served


def in_order(leases: Iterable[Lease[Any]]) -> list[Lease[Any]]:
    """By the server's count of claims, whoever of many clients got them."""
    return sorted(leases, key=lambda lease: int(lease.token.split(".")[1], 16))


async def serve(
    queue: FairQueue[Any], most: int, batch: int = 1, by: Callable[[Message[Any]], str] = lambda m: m.tenant
) -> Served:
    """Claims and completes until ``most`` were served or nothing is claimable."""
    served: Served = []
    while len(served) < most and (leases := await queue.claim(min(batch, most - len(served)))):
        served += [(by(lease.message), lease.message.cost) for lease in leases]
        await queue.complete_many(leases)
    return served


async def serve_beside_own_limits(queue: FairQueue[Any], rng: random.Random) -> tuple[Served, list[str]]:
    """Of four tenants with few and many queues, whose messages cost very different amounts; while all have work.

    For a queue with a limit of 1 on each tenant and on their one org: each completion frees slots of both.
    """
    queues = {"a": 1, "b": 1, "c": 40, "d": 40}
    await queue.enqueue_many(
        NewMessage(n, tenant=tenant, queue=f"q{n % count}", metadata={"org": "o"}, cost=rng.choice([1, 1000]))
        for tenant, count in queues.items()
        for n in range(80)
    )
    served: Served = []
    while len(served) < 200:
        leases = await queue.claim(rng.choice([1, 1, 2, 5]))
        served += [(lease.message.tenant, lease.message.cost) for lease in leases]
        await queue.complete_many(leases)
    return while_all_have_work(served, dict.fromkeys(queues, 80)), list(queues)
