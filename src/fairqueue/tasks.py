"""What a client does behind its callers' backs: work that goes on when they are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_PATIENCE = 2.0  # seconds in which at least one of them has to end, or close() waits no longer


class Tasks:
    """Tasks that nobody else holds on to.

    Args:
        own: called before each start: after a fork the tasks here are the parent's.
    """

    def __init__(self, own: Callable[[], None]) -> None:
        self._own = own
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begins the work; it is kept, and its error seen, whether anybody waits for it or not."""
        self._own()
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def wait(self) -> None:
        """Until all have ended, those that they start included; gives up when none ends any more."""
        while self._tasks:
            done, _ = await asyncio.wait(set(self._tasks), timeout=_PATIENCE)
            if not done:
                return

    def forget(self) -> object:
        """After a fork: none is ours. Returns what must live on untouched."""
        inherited, self._tasks = self._tasks, set()
        return inherited
