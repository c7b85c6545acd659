"""``Worker``: claims what it can start, runs the handler, settles in batches, and keeps the queue whole meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic

from fairqueue.errors import (
    ConfigurationError,
    FairQueueError,
    QueueClosedError,
    QueueUnavailableError,
    SchemaMismatchError,
)
from fairqueue.lease import Lease, Settlement
from fairqueue.lease_keeper import LeaseKeeper
from fairqueue.maintenance.service import Maintenance
from fairqueue.message import P
from fairqueue.queue import MAX_CLAIM, FairQueue
from fairqueue.running import Handler, Runner, current_lease
from fairqueue.validation import duration_ms, expected, identifier, integer

__all__ = ["Handler", "Worker", "current_lease"]

_log = logging.getLogger("fairqueue")
_BEAT_SECONDS, _SILENCE_MS = 5.0, 60_000
_AWAY_PAUSE, _REFUSED_PAUSE = 0.5, 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker(Generic[P]):
    """Runs a handler for the messages of some pools.

    It claims only what it can start at once, sends the outcomes of finished messages and the next claim in one
    round trip, extends leases from a thread of its own, cancels async handlers whose lease was lost, and runs
    promote, reclaim and reconcile on the queue's intervals. While the server is away running handlers go on, and
    what they finished is settled when it is back.

    Args:
        queue: where messages come from; used from the event loop that runs the worker.
        handler: ``async def handle(message)``, or a plain function, which runs in a thread. Returning completes the
            message, raising fails it; ``raise Retry(...)``, ``Release(...)`` or ``DeadLetterNow(...)`` choose.
        concurrency: handlers running at once.
        pools: tried in this order.
        handler_timeout: the longest run (``timedelta`` or seconds): a coroutine is cancelled, a thread abandoned, the
            message failed. None: no limit.
        grace: how long ``stop()`` waits for running handlers before it cancels them and releases their messages.
        name: the worker's name in lists; drawn when None.

    Raises:
        ConfigurationError: a wrong option, or a handler that does not take one message.

    Example:
        >>> worker = Worker(queue, handle, concurrency=100)
        >>> await worker.run()
    """

    def __init__(
        self,
        queue: FairQueue[P],
        handler: Handler,
        concurrency: int = 100,
        pools: Sequence[str] = ("default",),
        handler_timeout: timedelta | float | None = None,
        grace: timedelta | float = 30,
        name: str | None = None,
    ) -> None:
        if not isinstance(queue, FairQueue):
            raise expected("queue", "a FairQueue", queue)
        self._queue = queue
        self._engine = queue.engine
        self._concurrency = integer("concurrency", concurrency, 1, 100_000)
        timeout = (
            None if handler_timeout is None else duration_ms("handler_timeout", handler_timeout, minimum_ms=1)
        )
        self._runner = Runner(handler, None if timeout is None else timeout / 1000)
        self._grace = duration_ms("grace", grace) / 1000
        self.name = (
            identifier("name", name)
            if name is not None
            else f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        )
        self._options = queue.claim_options(1, self.name, pools)
        self._keeper = LeaseKeeper(self._engine, self._options.visibility_ms)
        self._maintenance = Maintenance(self._engine)
        self._running: dict[asyncio.Task[None], Lease[P]] = {}
        self._finished: list[tuple[Lease[Any], Settlement]] = []
        self._called_off: set[asyncio.Task[None]] = (
            set()
        )  # handlers we cancelled: lost leases, the end of grace
        self._stop = threading.Event()
        self._hurry = False  # stopped twice: no grace
        self._changed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.exits_after = False
        """Set by whoever ends the process right after ``run()``: then messages of threads that still run are
        released too. Otherwise they stay leased until their lease expires, or they would run twice at once."""

    # --- life ------------------------------------------------------------------------------------------------

    def run(self, signals: bool = True) -> Coroutine[Any, Any, None]:
        """Works until ``stop()`` or, with ``signals`` and in the main thread, SIGTERM or SIGINT; then drains.

        A second signal cuts the grace short. Can be called again after it returned; a ``stop()`` from before the
        call does not count, one from after it does, even if the coroutine had no turn yet.

        Raises:
            FairQueueError: it runs already. QueueUnavailableError: the server cannot be reached at the start.
            QueueClosedError: somebody closed the queue meanwhile. SchemaMismatchError: another version took over.
        """
        if self._loop is None:
            self._stop.clear()
            self._hurry = False
        return self._run(signals)

    async def _run(self, signals: bool) -> None:
        if self._loop is not None:
            raise FairQueueError(f"worker {self.name!r} runs already: make another one")
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        try:
            with self._signals() if signals else contextlib.nullcontext():
                await self._queue.connect()
                await self._run_connected()
        finally:
            self._loop = None

    async def _run_connected(self) -> None:
        self._keeper.start()
        await self._maintenance.start()
        beats = asyncio.ensure_future(self._beat())
        try:
            while not self._stop.is_set():
                await self._turn()
            await self._drain()
        finally:
            beats.cancel()
            await self._maintenance.stop()
            await self._abandon()
            self._keeper.stop()
            await self._say_goodbye()

    def run_sync(self, signals: bool = True) -> None:
        """``run()`` for a script: owns an event loop until it returns, and closes the queue."""

        async def work() -> None:
            try:
                await self.run(signals)
            finally:
                await self._queue.close()

        asyncio.run(work())

    def stop(self) -> None:
        """Asks the worker to drain: no more claims, ``grace`` for what runs, then the rest is released uncounted.

        Returns at once; safe from any thread; a second call cuts the grace short.
        """
        if self._stop.is_set():
            self._hurry = True
        self._stop.set()
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just closed: nothing runs any more
                loop.call_soon_threadsafe(self._wake)

    @contextlib.contextmanager
    def _signals(self) -> Any:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    # --- one turn --------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Settles what has finished, claims as many as can start, starts them; waits when there is nothing to do."""
        self._changed_event().clear()
        finished, self._finished = self._finished, []
        free = min(self._concurrency - len(self._running), MAX_CLAIM)
        try:
            started = await self._exchange(finished, free)
        except QueueUnavailableError as error:
            await self._server_away(finished, error)
            return
        except (ConfigurationError, QueueClosedError, SchemaMismatchError):
            self._finished[:0] = finished
            raise
        except FairQueueError as error:
            # One broken key of the namespace: the doctor names it; this worker must be there when it is mended.
            _log.error("the server refused a claim or settle, trying again: %s", error)
            self._finished[:0] = finished
            await asyncio.sleep(_REFUSED_PAUSE)
            return
        if not self._finished and started < free and not self._stop.is_set():
            await self._wait_for_work()
        elif free == 0 and not self._finished:
            await self._changed_event().wait()

    async def _exchange(self, finished: list[tuple[Lease[Any], Settlement]], free: int) -> int:
        consumer = self._queue.consumer
        if free > 0 and not self._stop.is_set():
            outcomes, leases = await consumer.exchange(finished, self._options.of(free))
        elif finished:
            outcomes, leases = await consumer.settle(finished), []
        else:
            return 0
        for (lease, _), outcome in zip(finished, outcomes, strict=True):
            self._settled(lease, outcome)
        for lease in leases:
            if self._stop.is_set():  # it came while the claim was under way
                self._finished.append((lease, Settlement("release")))
            else:
                self._start(lease)
        return len(leases)

    def _settled(self, lease: Lease[Any], outcome: str) -> None:
        self._keeper.drop(lease)
        if outcome == "lost":
            _log.warning(
                "message %r of tenant %r was finished after its lease was lost: it runs again",
                lease.message.id,
                lease.message.tenant,
            )

    async def _server_away(
        self, finished: list[tuple[Lease[Any], Settlement]], error: QueueUnavailableError
    ) -> None:
        """Handlers go on; what is finished is sent again, as the same calls, until the server answers."""
        _log.warning("the server is away, trying again: %s", error)
        self._finished[:0] = [one for one in finished if one[1].outcome is None]
        await asyncio.sleep(_AWAY_PAUSE)

    async def _wait_for_work(self) -> None:
        """Until the bell rings, a due time comes, a handler ends or the worker is stopped."""
        bell = asyncio.ensure_future(
            self._engine.bell(self._options.pools).wait(self._queue.consumer.idle_seconds())
        )
        changed = asyncio.ensure_future(self._changed_event().wait())
        try:
            await asyncio.wait([bell, changed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in (bell, changed):
                waiter.cancel()
            await asyncio.wait([bell, changed])

    def _changed_event(self) -> asyncio.Event:
        if self._changed is None:
            raise RuntimeError("the worker does not run")
        return self._changed

    def _wake(self) -> None:
        self._changed_event().set()

    # --- handlers --------------------------------------------------------------------------------------------

    def _start(self, lease: Lease[P]) -> None:
        task = asyncio.ensure_future(self._work(lease))
        self._running[task] = lease
        self._keeper.keep(lease, lambda: self._lease_lost(task))
        task.add_done_callback(self._ended)

    async def _work(self, lease: Lease[P]) -> None:
        settlement = await self._runner.run(lease)
        if settlement is None:  # it was never started
            self._keeper.drop(lease)
            return
        if lease.settlement is not None:
            settlement = lease.settlement  # the handler has settled it itself
        # Done work whose lease was lost still ends the message if nobody has taken it since.
        if not lease.lost.is_set() or settlement.action == "complete":
            self._finished.append((lease, settlement))

    def _ended(self, task: asyncio.Task[None]) -> None:
        lease = self._running.pop(task)
        ours = task in self._called_off
        self._called_off.discard(task)
        if task.cancelled() and not ours:
            # a cancel scope that leaks, say: released uncounted it would come back at once, for ever
            self._finished.append((lease, lease.failure("the handler's task was cancelled from inside")))
        elif task.cancelled() and not lease.lost.is_set():
            self._finished.append((lease, Settlement("release")))
        elif not task.cancelled() and (error := task.exception()) is not None:
            self._finished.append((lease, lease.failure(error)))
        self._wake()

    def _call_off(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            self._called_off.add(task)
            task.cancel()

    def _lease_lost(self, task: asyncio.Task[None]) -> None:
        """Called in the keeper's thread: somebody else has the message. A thread sees ``current_lease().lost``."""
        loop = self._loop
        if loop is not None and self._runner.is_async:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._call_off, task)

    # --- ending ----------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Leases are kept alive and outcomes settled until the last handler has ended or the grace is over."""
        give_up = time.monotonic() + self._grace
        while (self._running or self._finished) and time.monotonic() < give_up and not self._hurry:
            self._changed_event().clear()
            await self._settle_finished()
            if self._running:
                with contextlib.suppress(TimeoutError):
                    left = min(give_up, time.monotonic() + 1) - time.monotonic()
                    await asyncio.wait_for(self._changed_event().wait(), max(left, 0))

    async def _settle_finished(self) -> None:
        finished, self._finished = self._finished, []
        try:
            await self._exchange(finished, 0)
        except QueueUnavailableError as error:
            await self._server_away(finished, error)

    async def _abandon(self) -> None:
        """What still runs: coroutines are cancelled, awaited, then released; threads only if the process ends."""
        threads = not self._runner.is_async
        leases = dict(self._running)
        if threads and not self.exits_after:
            for task, lease in leases.items():
                task.remove_done_callback(self._ended)
                self._running.pop(task)
                task.cancel()
                _log.warning(
                    "message %r of tenant %r still runs in a thread: its lease will expire",
                    lease.message.id,
                    lease.message.tenant,
                )
        else:
            for task in leases:
                self._call_off(task)
        if leases:
            await asyncio.wait(leases, timeout=10)
            await asyncio.sleep(0)  # done callbacks: cancelled ones ask for their release
        with contextlib.suppress(FairQueueError):
            await self._settle_finished()

    # --- sign of life ----------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        started_at = int(time.time() * 1000)
        while True:
            info = {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "pools": list(self._options.pools),
                "concurrency": self._concurrency,
                "running": len(self._running),
                "version": _version(),
                "started_at": started_at,
            }
            with contextlib.suppress(FairQueueError):
                await self._engine.run(self._engine.calls.beat(self.name, json.dumps(info), _SILENCE_MS))
            await asyncio.sleep(_BEAT_SECONDS)

    async def _say_goodbye(self) -> None:
        with contextlib.suppress(FairQueueError):
            await self._engine.run(self._engine.calls.beat(self.name, "", _SILENCE_MS), patience=0.5)


def _version() -> str:
    try:
        return version("fairqueue")
    except PackageNotFoundError:
        return "unknown"
