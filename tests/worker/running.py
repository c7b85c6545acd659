"""A worker that runs for the length of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fairqueue import FairQueue, Worker
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
