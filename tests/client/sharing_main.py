"""A process that sends to an embedded server until it is told to stop; it notes every message that was acknowledged."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from fairqueue import FairQueue


async def send(url: str, noted: Path) -> None:
    queue: FairQueue[Any] = FairQueue(url, "shared")
    await queue.connect()
    stopping = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
    with noted.open("a") as file:
        number = 0
        while not stopping.done():
            sent = await queue.enqueue(number, tenant=str(os.getpid()))
            file.write(f"{sent.id} {time.monotonic()}\n")
            file.flush()
            number += 1
            await asyncio.sleep(0.002)
    await queue.close()


if __name__ == "__main__":
    asyncio.run(send(sys.argv[1], Path(sys.argv[2])))
