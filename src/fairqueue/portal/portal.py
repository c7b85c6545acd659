"""``Portal``: the loop, its thread, and the calls that are in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from fairqueue.errors import FairQueueError, QueueClosedError

from .call import PortalCall, Undo, Work
from .thread import begin, serving, wait_for

T = TypeVar("T")

_AWAITED = 1.0  # seconds that an interrupt waits until its call is over: nobody may be there to do the rest


class Portal:
    """Runs coroutines in one event loop in a daemon thread, started at the first call and anew after a fork.

    Closed, it starts no other one until it is opened: a call that was forgotten would leave a thread behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._undoing: set[asyncio.Task[Any]] = set()
        self._before: threading.Thread | None = None  # of a loop that was closed
        self._closed = False
        _portals.add(self)

    def call(self, work: Work[T], undo: Undo[T] | None = None, *, certain: bool = False) -> T:
        """The result of the coroutine that ``work`` makes; an interrupt of the caller cancels it.

        ``undo`` gives a result back that came too late for the caller. What is ``certain`` is done in spite of the
        interrupt. Callers return what this returns, and nothing made of it: an interrupt after the last line here would
        lose it.

        Raises:
            QueueClosedError: the queue is closed, or another thread closed it meanwhile.
            FairQueueError: the caller is in the queue's own thread (a limit function, a codec) and would wait for
                itself. Else what the coroutine raises.
        """
        if threading.current_thread() is self._thread:
            raise FairQueueError(
                "expected a call from a thread of the application, got one from the queue's own"
            )
        call, loop = PortalCall(work, undo, certain), None
        try:
            with self._lock:  # not between the end of one loop and the start of the next
                if not self._closed:
                    loop = self._running()
                    loop.call_soon_threadsafe(call.begin, self._calls)
            if loop is not None:
                return call.result()
        except BaseException as error:
            if call.raised(error):
                if isinstance(error, asyncio.CancelledError):
                    raise QueueClosedError(
                        "the queue was closed in another thread while this call waited"
                    ) from None
            elif loop is not None:
                self._give_up(call, loop)
            raise
        raise QueueClosedError("the queue is closed: connect() it, or enter it again, to use it further")

    def _give_up(self, call: PortalCall[Any], loop: asyncio.AbstractEventLoop) -> None:
        """The caller was interrupted: the call is cancelled, and over when this returns, unless the server is away."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed, and ended it
            loop.call_soon_threadsafe(call.give_up, self._calls, self._undoing)
            call.wait_until_over(_AWAITED)

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
        self._lock, self._loop, self._thread, self._before = threading.Lock(), None, None, None
        self._calls, self._undoing = set(), set()

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop, started if there is none; the caller holds the lock."""
        if self._before is not None:
            wait_for(self._before)  # its close() was interrupted: two loops must not use one client
            self._before = None
        if self._loop is None or self._thread is None:
            loop = asyncio.new_event_loop()
            self._loop, self._thread = loop, serving(loop)
        begin(self._thread)
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
            end = PortalCall(lambda: self._end(farewell))
            try:
                loop.call_soon_threadsafe(end.begin, set())
                end.result()
            finally:
                self._loop, self._thread, self._before = None, None, thread
                with contextlib.suppress(RuntimeError):  # it is closed already
                    loop.call_soon_threadsafe(
                        end.begin, set()
                    )  # the interrupt may have come before it was told
                wait_for(thread)

    async def _end(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Only the calls are cancelled: what they have set going, a give-back say, the farewell waits for."""
        for call in self._calls:
            call.cancel()
        if others := self._calls | self._undoing:
            await asyncio.wait(others)
        try:
            await farewell()
        finally:
            loop = asyncio.get_running_loop()
            try:
                # Threads of its own do not end with the loop: they would stay as long as the process.
                await loop.shutdown_default_executor()
            finally:
                loop.call_soon(loop.stop)


_portals: weakref.WeakSet[Portal] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for portal in list(_portals):
        portal._after_fork()  # noqa: SLF001 - the hook is a part of the class


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
