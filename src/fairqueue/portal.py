"""A background event loop for programs without one: each call is run there, and waited for here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """Runs coroutines in one event loop in a daemon thread, started at the first call and anew after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        _portals.add(self)

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the coroutine that ``work`` makes; an interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work(), self._running())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

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
        self._lock, self._loop, self._thread = threading.Lock(), None, None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=loop.run_forever, name="fairqueue-sync", daemon=True)
                self._thread.start()
                self._loop = loop
            return self._loop

    def close(self) -> None:
        """Ends the thread; the next call starts another."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=5)
            if not thread.is_alive():
                loop.close()


_portals: weakref.WeakSet[Portal] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for portal in list(_portals):
        portal._after_fork()  # noqa: SLF001 - the hook is a part of the class


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
