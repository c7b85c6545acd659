"""A background event loop for programs without one: each call is run there, and waited for here."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from fairqueue.errors import FairQueueError, QueueClosedError

T = TypeVar("T")


class Portal:
    """Runs coroutines in one event loop in a daemon thread, started at the first call and anew after a fork.

    Closed, it starts no other one until it is opened: a call that was forgotten would leave a thread behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: set[asyncio.Task[Any] | None] = set()
        self._closed = False
        _portals.add(self)

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the coroutine that ``work`` makes; an interrupt of the caller cancels it.

        Raises:
            QueueClosedError: the queue is closed, or another thread closed it meanwhile.
            FairQueueError: the caller is in the queue's own thread (a limit function, a codec) and would wait for
                itself. Else what the coroutine raises.
        """
        if threading.current_thread() is self._thread:
            raise FairQueueError(
                "expected a call from a thread of the application, got one from the queue's own"
            )
        with self._lock:  # not between the end of one loop and the start of the next
            if self._closed:
                raise QueueClosedError(
                    "the queue is closed: connect() it, or enter it again, to use it further"
                )
            future = asyncio.run_coroutine_threadsafe(self._noted(work), self._running())
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise QueueClosedError("the queue was closed in another thread while this call waited") from None
        except BaseException:
            future.cancel()
            raise

    async def _noted(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = asyncio.current_task()
        self._calls.add(task)
        try:
            return await work()
        finally:
            self._calls.discard(task)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items, fetched one at a time."""

        async def following() -> tuple[bool, T | None]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        while True:
            more, item = self.call(following)
            if not more:
                return
            yield item  # type: ignore[misc]

    def _after_fork(self) -> None:
        """The parent's thread is not here, and its lock may be held for ever."""
        if self._loop is not None:
            # Nothing that is collected here, at the latest when this process ends, may reach the loop's epoll: it is
            # shared with the parent, whose sockets would fall silent. A closed loop lets go of nothing; close()
            # itself would use the epoll. (uvloop minds its forks, and has no such attribute.)
            with contextlib.suppress(AttributeError):
                self._loop._closed = True  # type: ignore[attr-defined]  # noqa: SLF001
        self._lock, self._loop, self._thread, self._calls = threading.Lock(), None, None, set()

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop, started if there is none; the caller holds the lock."""
        if self._loop is None:
            loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=loop.run_forever, name="fairqueue-sync", daemon=True)
            self._thread.start()
            self._loop = loop
        return self._loop

    def open(self) -> None:
        """Takes calls again after ``close()``."""
        self._closed = False

    def close(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Ends calls of other threads, runs ``farewell`` and ends the thread."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            if loop is None or thread is None:
                return
            try:
                asyncio.run_coroutine_threadsafe(self._end(farewell), loop).result()
            finally:
                self._loop = self._thread = None
                loop.call_soon_threadsafe(loop.stop)
                thread.join(timeout=5)
                if not thread.is_alive():
                    loop.close()

    async def _end(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Only the calls are cancelled: what they have set going, a give-back say, the farewell waits for."""
        calls = {call for call in self._calls if call is not None}
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        try:
            await farewell()
        finally:
            # Threads of its own do not end with the loop: they would stay as long as the process.
            await asyncio.get_running_loop().shutdown_default_executor()


_portals: weakref.WeakSet[Portal] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for portal in list(_portals):
        portal._after_fork()  # noqa: SLF001 - the hook is a part of the class


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
