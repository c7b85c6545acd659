"""Running one handler: coroutine or thread, its timeout, and what its end means for the message."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fairqueue.errors import ConfigurationError, FairQueueError, LeaseLostError, QueueClosedError
from fairqueue.lease import Lease, failure, held
from fairqueue.message import Message, named
from fairqueue.outcomes import DeadLetterNow, Release, Retry
from fairqueue.settlement import Settlement, described
from fairqueue.validation import callable_, shown

T = TypeVar("T")
Handler = Callable[[Message[Any]], Awaitable[Any] | Any]

_log = logging.getLogger("fairqueue")
_ASK_AGAIN = 0.5  # seconds until a server that is away is asked once more whether a message is still ours
_NO_THREAD_MS = 1000  # until a message that this process could not begin may be delivered again
_current: contextvars.ContextVar[Lease[Any]] = contextvars.ContextVar("fairqueue_lease")


def current_lease() -> Lease[Any]:
    """The lease of the message that the calling handler works on, in its coroutine or thread.

    Raises:
        LookupError: not called from a handler.

    Example:
        >>> current_lease().lost.is_set()  # True: somebody else has the message now
        False
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError(
            "current_lease() is for handlers: nothing that a worker called is running here (a thread or an executor "
            "of your own needs contextvars.copy_context().run(...))"
        ) from None


def taking_one_message(handler: Handler) -> Handler:
    """The handler, if it can be called with a message; one whose signature cannot be read is believed.

    Raises:
        ConfigurationError: it cannot: every message would fail, and end among the dead letters.
    """
    callable_("handler", handler)
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # of some functions written in C
        return handler
    try:
        signature.bind(object())
    except TypeError as error:
        raise ConfigurationError(
            f"expected handler to take one message, got {shown(handler)} with {signature}: {error}"
        ) from None
    return handler


class Threads:
    """Daemon threads for plain functions: one that hangs for ever neither fills the pool nor stops the process."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], Callable[[], None]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = self._started = 0
        self._short = False

    async def reserve(self) -> bool:
        """Sees to a thread for the next ``run``. At a limit of the system it waits for one that comes free.

        False: there is none that could.
        """
        while not self._reserved():
            if not self._started:
                return False
            await asyncio.sleep(_ASK_AGAIN)
        return True

    def _reserved(self) -> bool:
        with self._lock:
            if self._idle:
                self._idle -= 1
                return True
            try:
                threading.Thread(target=self._serve, name="fairqueue-handler", daemon=True).start()
            except RuntimeError as error:
                if not self._short:
                    _log.warning("no further thread for handlers, messages wait for one: %s", error)
                self._short = True
                return False
            self._started, self._short = self._started + 1, False
            return True

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``, run in the reserved thread with the caller's context."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def do() -> Callable[[], None]:
            try:
                result = context.run(work)
            except BaseException as error:  # noqa: BLE001 - carried to the caller, whatever it is
                return functools.partial(_deliver, loop, answer, None, error)
            return functools.partial(_deliver, loop, answer, result, None)

        self._work.put(do)
        return await answer

    def _serve(self) -> None:
        while True:
            deliver = self._work.get()()
            with self._lock:
                self._idle += 1  # before the answer: who gets it may have the next work at once
            deliver()
            del deliver  # holds the result


def _deliver(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], result: Any, error: BaseException | None
) -> None:
    def put() -> None:
        if not answer.done():  # else abandoned: the result of a handler that was given up is refused
            if error is None:
                answer.set_result(result)
            elif isinstance(error, StopIteration):  # cannot travel in a future
                answer.set_exception(RuntimeError(f"the handler raised {error!r}"))
            else:
                answer.set_exception(error)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for an answer any more
        loop.call_soon_threadsafe(put)


def over(lease: Lease[Any]) -> bool:
    """Nothing is to be started for it any more."""
    return lease.lost.is_set() or lease.cancelled.is_set()


class _NotSure(Exception):  # noqa: N818 - not an error: the server is asked, and then it is tried again
    """By our own clock the lease may have expired while its handler waited for its turn."""


class Runner:
    """Runs the handler for leases. ``timeout`` seconds, or None, is the most one run may take.

    No handler starts under a lease that may have expired by our own clock: the process may have been frozen, the
    event loop blocked or the threads starved since it was claimed or extended. Then the server is asked first.

    ``clock``: the seconds by which runs are measured, if tenants are charged for them.
    """

    def __init__(
        self, handler: Handler, timeout: float | None, clock: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock
        self._handler = taking_one_message(handler)
        self._timeout = timeout
        self._threads = Threads()
        self.is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
        )

    async def run(self, lease: Lease[Any]) -> Settlement | None:
        """How the message is to be settled; None: it is not ours any more, and its handler was not started.

        A cancelled run raises: whoever cancelled knows why.
        """
        _current.set(lease)
        while await self._is_ours(lease):
            if lease.cancelled.is_set():
                return Settlement("release")  # which ends it
            # before its time runs: that no thread is to be had is no failure of the handler
            if not self.is_async and not await self._threads.reserve():
                return Settlement("release", _NO_THREAD_MS)
            with contextlib.suppress(_NotSure):
                return await self._run(lease)
        message = lease.message
        _log.warning(
            "message %r of tenant %r was lost before its handler started",
            message.id,
            message.tenant,
            extra=named(message),
        )
        return None

    async def _is_ours(self, lease: Lease[Any]) -> bool:
        """Extends a lease that may have expired. While the server is away nobody knows: the handler waits."""
        while not held(lease).sure_for() and not lease.lost.is_set():
            try:
                await lease.extend()
            except LeaseLostError:
                break
            except QueueClosedError:
                raise
            except FairQueueError as error:
                _log.warning(
                    "message %r waits: nobody knows whose it is: %s",
                    lease.message.id,
                    error,
                    extra=named(lease.message),
                )
                await asyncio.sleep(_ASK_AGAIN)
        return not lease.lost.is_set()

    async def _run(self, lease: Lease[Any]) -> Settlement:
        try:
            async with asyncio.timeout(self._timeout):
                await self._call(lease)
        except _NotSure:
            raise
        except Retry as signal:
            return self._asked_again(lease, signal)
        except Release as signal:
            return Settlement("release", signal.delay_ms)
        except DeadLetterNow as signal:
            return Settlement("dead", reason=signal.reason, text=signal.reason)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self.failed(lease, RuntimeError("the handler cancelled itself"))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything: that is a failed attempt
            return self.failed(lease, error)  # SystemExit too, or it would take the other messages along
        return Settlement("complete")

    async def _call(self, lease: Lease[Any]) -> None:
        try:
            if self.is_async:
                held(lease).begin(self._clock)
                await self._handler(lease.message)
                return
            result = await self._in_thread(lease)
            if inspect.isawaitable(result):  # a plain function that returns a coroutine
                await result
        finally:
            held(lease).end()

    async def _in_thread(self, lease: Lease[Any]) -> Any:
        given_up = threading.Event()

        def start() -> Any:
            """In the thread: it may have come to its turn long after it was asked for."""
            if given_up.is_set() or over(lease) or not held(lease).sure_for():
                raise _NotSure
            held(lease).begin(self._clock)
            result = None
            try:
                result = self._handler(lease.message)
            finally:
                if not inspect.isawaitable(result):
                    held(
                        lease
                    ).end()  # here: by when the event loop comes to it, other work has taken its time
            return result

        try:
            return await self._threads.run(start)
        finally:
            given_up.set()  # timed out or cancelled: the message is settled, or its lease expires, without it

    def _asked_again(self, lease: Lease[Any], signal: Retry) -> Settlement:
        """A failed attempt that the handler has chosen: told on one line, for there is nothing to trace."""
        message, reason = lease.message, signal.reason or "the handler asked for a retry"
        _log.info(
            "handler asked for a retry of message %r of tenant %r (attempt %d): %s",
            message.id,
            message.tenant,
            message.attempt,
            " ".join(reason.split()),
            extra=named(message),
        )
        return failure(reason, signal.delay_ms)

    def failed(self, lease: Lease[Any], error: BaseException) -> Settlement:
        """A failed attempt that nobody has chosen: told with its traceback."""
        message = lease.message
        if isinstance(error, TimeoutError) and self._timeout is not None and not error.args:
            error = TimeoutError(f"the handler took longer than {self._timeout:g} s")
        _log.warning(
            "handler failed for message %r of tenant %r (attempt %d): %s",
            message.id,
            message.tenant,
            message.attempt,
            described(error),
            exc_info=error,
            extra=named(message),
        )
        return failure(error)
