"""A worker beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fairqueue import FairQueue, Message, Worker


@asynccontextmanager
async def working(
    queue: FairQueue[Any], handler: Callable[[Message[Any]], Any], **options: Any
) -> AsyncIterator[Worker[Any]]:
    """Runs while the body does, and must not have ended by itself; drained afterwards."""
    worker = Worker(queue, handler, **options)
    running = asyncio.ensure_future(worker.run(signals=False))
    try:
        yield worker
        assert not running.done(), "the worker has given up"
    finally:
        worker.stop()
        await running
