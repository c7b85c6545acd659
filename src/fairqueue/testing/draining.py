"""Claim and settle until nothing is claimable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fairqueue.generics import P
from fairqueue.inside import consumer_of
from fairqueue.message import Message
from fairqueue.queue import FairQueue
from fairqueue.running import Runner


async def drain(
    queue: FairQueue[P],
    handler: Callable[[Message[P]], Awaitable[Any] | Any] | None = None,
    *,
    batch: int = 1,
    pools: Sequence[str] = ("default",),
    most: int = 100_000,
) -> list[Message[P]]:
    """Runs the handler for every message that can be claimed now, one after another; returns what ran, in order.

    The handler decides as in a worker: returning completes, raising fails. Messages that wait for their time
    (delays, retries) stay: advance the clock and drain again. None completes everything.

    Raises:
        AssertionError: more than ``most`` deliveries: the queue does not drain.

    Example:
        >>> ran = await drain(queue, handle)
        >>> [message.id for message in ran]
        ['m1', 'm2']
    """
    runner = Runner(handler or _nothing, None)
    ran: list[Message[P]] = []
    while leases := await queue.claim(batch, pools=pools):
        for lease in leases:
            settlement = await runner.run(lease)
            if settlement is not None:
                ran.append(lease.message)
                await consumer_of(queue).settle([(lease, settlement)])
        if len(ran) > most:
            raise AssertionError(f"the queue does not drain: {len(ran)} deliveries")
    return ran


async def _nothing(message: Message[Any]) -> None:
    """The handler that completes everything."""
