"""One worker process of the replay: ``python -m fairqueue.demo.worker_process '<JSON of a WorkerOrder>'``.

Its handler waits as long as the job ran (scaled), and writes down when it began and ended. It prints ``ready``
once it is connected, and drains when its standard input ends: so it ends with the demo, however that ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypedDict

from fairqueue import FairQueue, Message, Worker
from fairqueue.demo.journal import JournalWriter

READY = b"ready\n"


class JobPayload(TypedDict):
    """What a message of the demo carries: how long its handler waits."""

    run_s: float


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """All that a worker process needs to know."""

    process: str
    url: str
    name: str
    scheduler: Literal["fair", "fifo"]
    concurrency: int
    visibility_s: float
    reclaim_s: float
    journals: str

    def to_json(self) -> str:
        """The order as the process's argument."""
        return json.dumps(asdict(self))


async def work(order: WorkerOrder) -> None:
    """Handle messages until standard input ends, then drain."""
    queue: FairQueue[JobPayload] = FairQueue(
        order.url,
        name=order.name,
        scheduler=order.scheduler,
        visibility_timeout=order.visibility_s,
        reclaim_interval=order.reclaim_s,
    )
    async with queue:
        handle = _handler(JournalWriter(Path(order.journals), order.process))
        worker: Worker[JobPayload] = Worker(
            queue, handle, concurrency=order.concurrency, grace=order.visibility_s, name=order.process
        )
        stopper = asyncio.create_task(_stop_at_end_of_input(worker))
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        try:
            await worker.run()
        finally:
            stopper.cancel()


def _handler(journal: JournalWriter) -> Callable[[Message[JobPayload]], Awaitable[None]]:
    async def handle(message: Message[JobPayload]) -> None:
        journal.started(message.id, message.attempt)
        await asyncio.sleep(message.payload["run_s"])
        journal.ended(message.id, message.attempt)

    return handle


async def _stop_at_end_of_input(worker: Worker[JobPayload]) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while await reader.read(1024):
        pass
    worker.stop()


if __name__ == "__main__":
    asyncio.run(work(WorkerOrder(**json.loads(sys.argv[1]))))
