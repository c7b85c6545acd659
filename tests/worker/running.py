"""A worker that runs for the length of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fairqueue import FairQueue, Lease, Worker
from fairqueue._engine.calls import Call
from fairqueue.claiming import claim_options
from tests.support.waiting import eventually


@asynccontextmanager
async def running(queue: FairQueue[Any], handler: Any, **options: Any) -> AsyncIterator[Worker[Any]]:
    """Stops it at the end of the block and waits until it has drained; what it raised is raised."""
    worker: Worker[Any] = Worker(queue, handler, **options)
    task = asyncio.ensure_future(worker.run(signals=False))
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(task, 60)


async def all_done(queue: FairQueue[Any]) -> None:
    """Waits until no message is left but dead letters."""

    async def nothing_left() -> bool:
        stats = await queue.stats()
        return stats.ready + stats.delayed + stats.in_flight == 0

    await eventually(nothing_left, "every message to be done or dead")


async def expire(other: FairQueue[Any], tenant: str, id: str, *then: Call[Any]) -> list[Any]:
    """The message's lease expires as if no extend had arrived, is reclaimed, and `then` happens; their replies.

    All in one transaction. Between two commands a running worker's next extend could revive the lease, and a worker
    with room for more would claim what was just reclaimed before anybody else does.
    """
    calls, connection = other._engine.calls, other._engine.connection
    reclaim = calls.reclaim(1)
    async with (await connection._client()).pipeline(transaction=True) as transaction:
        transaction.execute_command("ZADD", f"{calls.root}deadlines", "1", f"{tenant}\x1f{id}")
        for call in (reclaim, *then):
            transaction.execute_command(*connection._words(call))
        _, reclaimed, *answers = await transaction.execute()
    assert reclaim.decode(reclaimed) == (1, [(tenant, id)], [])
    return [call.decode(answer) for call, answer in zip(then, answers, strict=True)]


async def steal(other: FairQueue[Any], worker: Worker[Any]) -> Lease[Any]:
    """Takes the worker's only message away: its lease expires, and `other` has it before the worker can."""
    (lease,) = worker._deliveries.running.values()
    options, streams = claim_options(other._engine, 1, "thief", ("default",)), other._engine.claim_streams
    stream = streams.take(options.pools)
    claim = other._engine.calls.claim(
        stream, options.n, options.visibility_ms, options.consumer, options.pools
    )
    await expire(other, lease.message.tenant, lease.message.id, claim)
    streams.unanswered(stream, options.n, options.pools)
    (taken,) = await other.claim()  # a claim whose reply was lost is answered as the first time
    assert taken.message.id == lease.message.id
    return taken
