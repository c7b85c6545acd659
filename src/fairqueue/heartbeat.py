"""A worker's sign of life: by it others list the worker, and forget it when it has been silent for a minute."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fairqueue._engine.engine import Engine
from fairqueue.errors import FairQueueError

__all__ = ["Heartbeat"]

_SECONDS, _SILENCE_MS = 5.0, 60_000
_GOODBYE_SECONDS = 0.5


class Heartbeat:
    """Beats from ``start()`` to ``stop()``.

    Args:
        engine: the worker's.
        name: the worker's name in lists.
        describe: what may change from beat to beat.
    """

    def __init__(self, engine: Engine, name: str, describe: Callable[[], dict[str, Any]]) -> None:
        self._engine, self._name, self._describe = engine, name, describe
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Beats at once, and then every few seconds; a second start does nothing."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._beat())

    def stop(self) -> None:
        """No more beats. A second stop, or one before the start, does nothing."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def say_goodbye(self) -> None:
        """Lists do not show the worker any more."""
        with contextlib.suppress(FairQueueError):
            await self._say("", _GOODBYE_SECONDS)

    async def _beat(self) -> None:
        constant = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": _version(),
        }
        began = time.monotonic()
        while True:
            with contextlib.suppress(
                Exception
            ):  # or a worker that works would be missing in all lists for good
                await self._say(json.dumps(constant | self._describe() | {"up_ms": _ms_since(began)}))
            await asyncio.sleep(_SECONDS)

    async def _say(self, info: str, patience: float | None = None) -> None:
        await self._engine.run(self._engine.calls.beat(self._name, info, _SILENCE_MS), patience)


def _ms_since(instant: float) -> int:
    """For how long, not since when: this machine's wall clock may be wrong, the reader counts back from the server's."""
    return int((time.monotonic() - instant) * 1000)


def _version() -> str:
    try:
        return version("fairqueue")
    except PackageNotFoundError:
        return "unknown"
