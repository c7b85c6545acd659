"""A worker that runs for the length of a block."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fairqueue import FairQueue, Lease, Worker
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
        await asyncio.wait_for(task, 30)


async def all_done(queue: FairQueue[Any]) -> None:
    """Waits until no message is left but dead letters."""

    async def nothing_left() -> bool:
        stats = await queue.stats()
        return stats.ready + stats.delayed + stats.in_flight == 0

    await eventually(nothing_left, "every message to be done or dead")


async def steal(other: FairQueue[Any], worker: Worker[Any]) -> Lease[Any]:
    """Takes the worker's only message away: its lease expires as if no extend had arrived, and is claimed anew.

    All in one transaction. Between two commands the worker's next extend could revive the lease, and a worker with
    room for more would claim what was just reclaimed before `other` does.
    """
    (lease,) = worker._running.values()
    tenant, id = lease.message.tenant, lease.message.id
    calls, streams = other.engine.calls, other.engine.claim_streams
    options = other.claim_options(1, "thief", ("default",))
    stream = streams.take(options.pools)
    reclaim = calls.reclaim(1)
    claim = calls.claim(stream, options.n, options.visibility_ms, options.consumer, options.pools)
    connection = other.engine.connection
    async with (await connection._client()).pipeline(transaction=True) as transaction:
        transaction.execute_command("ZADD", f"{calls.root}deadlines", "1", f"{tenant}\x1f{id}")
        transaction.execute_command(*connection._words(reclaim))
        transaction.execute_command(*connection._words(claim))
        _, reclaimed, claimed = await transaction.execute()
    assert reclaim.decode(reclaimed) == (1, [(tenant, id)], [])
    answer = claim.decode(claimed)
    streams.answered(stream, options.n, len(answer.messages))
    (taken,) = await other.consumer._hand_over(answer, options, time.monotonic())
    return taken
