"""One call into the loop, and back: who waits for it may be interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from fairqueue.errors import FairQueueError

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]
Undo = Callable[[T], Coroutine[Any, Any, object]]


class PortalCall(Generic[T]):
    """One call, on its way to the loop and back. The loop alone decides what came first, its end or the interrupt.

    Who waits holds nothing but bare locks: an interrupt between taking the lock of a future or an event and noting so
    would leave it taken, and the loop would wait for it for ever.

    Args:
        work: makes the coroutine.
        undo: gives a result back that nobody got.
        certain: it is done though whoever asked for it is interrupted.
    """

    def __init__(self, work: Work[T], undo: Undo[T] | None = None, certain: bool = False) -> None:
        self._work, self._undo, self._certain = work, undo, certain
        self._task: asyncio.Task[T] | None = None
        self._has_ended, self._given_up = False, False
        self._ended, self._over = threading.Lock(), threading.Lock()
        self._ended.acquire()
        self._over.acquire()

    # --- in the loop -----------------------------------------------------------------------------------------

    def begin(self, among: set[asyncio.Task[Any]]) -> None:
        """``among``: the tasks that end with the portal."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
            among.add(self._task)
            self._task.add_done_callback(among.discard)
            self._task.add_done_callback(self._end)

    async def _run(self) -> T:
        return await self._work()

    def _end(self, _: asyncio.Task[T]) -> None:
        self._has_ended = True
        self._ended.release()
        if self._given_up:
            self._give_back()

    def give_up(self, among: set[asyncio.Task[Any]], undoing: set[asyncio.Task[Any]]) -> None:
        """After ``begin``, if that was ever asked for: nobody waits for the answer any more."""
        self._given_up, self._undoing = True, undoing
        if self._certain:
            self.begin(among)
        elif self._task is not None:
            self._task.cancel()
        if self._task is None or self._has_ended:
            self._give_back()

    def _give_back(self) -> None:
        task = self._task
        if self._undo is None or task is None or task.cancelled() or task.exception() is not None:
            self._over.release()
            return
        undoing = asyncio.ensure_future(self._undone(self._undo, task.result()))
        self._undoing.add(undoing)
        undoing.add_done_callback(self._undoing.discard)

    async def _undone(self, undo: Undo[T], result: T) -> None:
        try:
            with contextlib.suppress(FairQueueError):  # the server is away, say: what was claimed will expire
                await undo(result)
        finally:
            self._over.release()

    # --- where it is waited for ------------------------------------------------------------------------------

    def result(self) -> T:
        """Waits for it; ``asyncio.CancelledError`` when the portal was closed."""
        self._ended.acquire()
        self._ended.release()
        assert self._task is not None  # noqa: S101 - it has ended
        return self._task.result()

    def raised(self, error: BaseException) -> bool:
        """The error is the call's own, and no interrupt of who waits for it."""
        task = self._task
        if task is None or not task.done():
            return False
        if task.cancelled():
            return isinstance(error, asyncio.CancelledError)
        return task.exception() is error

    def wait_until_over(self, seconds: float) -> None:
        """When it was given up: until it has ended and is given back."""
        self._over.acquire(timeout=seconds)
