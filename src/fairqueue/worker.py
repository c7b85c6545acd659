"""``Worker``: claims what it can start, settles what has finished, and keeps the queue whole meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Generic, Literal

from fairqueue.claiming import MAX_CLAIM, claim_options
from fairqueue.deliveries import Deliveries
from fairqueue.errors import (
    ConfigurationError,
    FairQueueError,
    QueueClosedError,
    QueueUnavailableError,
    SchemaMismatchError,
)
from fairqueue.generics import P
from fairqueue.heartbeat import Heartbeat
from fairqueue.inside import consumer_of, engine_of
from fairqueue.lease import Lease
from fairqueue.lease_keeper import LeaseKeeper
from fairqueue.maintenance.service import Maintenance
from fairqueue.queue import FairQueue
from fairqueue.running import Handler, Runner
from fairqueue.settling import Request
from fairqueue.signals import stop_signals
from fairqueue.validation import choice, counted, duration_ms, expected, identifier, integer

Charge = Literal["cost", "time"]
__all__ = ["Worker"]

_log = logging.getLogger("fairqueue")
_AWAY_PAUSE, _REFUSED_PAUSE = 0.5, 1.0
_FATAL = (ConfigurationError, QueueClosedError, SchemaMismatchError)  # trying again would not help


class Worker(Generic[P]):
    """Runs a handler for the messages of some pools.

    It claims only what it can start at once, sends the outcomes of finished messages and the next claim in one
    round trip, extends leases from a thread of its own, cancels async handlers whose lease was lost, and runs
    promote, reclaim and reconcile on the queue's intervals. A message that one more crash would make a dead letter runs
    alone, when the others have ended: so a message that kills its worker takes none along that merely ran beside it.
    While the server is away running handlers go on, and
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
        charge: what a delivery charges its tenant: ``"cost"`` the message's cost, when it is claimed; ``"time"`` the seconds
            that its handler took. Those are known when it has ended; until then it is charged what the tenant's messages
            took of late (its cost, while nothing is known of them), and after a crash it stays charged that.

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
        charge: Charge = "cost",
    ) -> None:
        if not isinstance(queue, FairQueue):
            raise expected("queue", "a FairQueue", queue)
        self._queue = queue
        self._engine, self._consumer = engine_of(queue), consumer_of(queue)
        self._concurrency = integer("concurrency", concurrency, 1, 100_000)
        by_time = choice("charge", charge, ("cost", "time")) == "time"
        self._runner = Runner(handler, _seconds(handler_timeout), self._now if by_time else None)
        self._grace = duration_ms("grace", grace) / 1000
        self.name = _drawn_name() if name is None else identifier("name", name)
        self._options = replace(claim_options(self._engine, 1, self.name, pools), by_time=by_time)
        self._keeper = LeaseKeeper(self._engine, self._options.visibility_ms)
        self._deliveries: Deliveries[P] = Deliveries(
            self._runner, self._keeper, self._wake, patience=self._options.visibility_ms / 2000
        )
        self._maintenance = Maintenance(self._engine)
        self._heartbeat = Heartbeat(self._engine, self.name, self._describe)
        # One entry for each stop() so far: appending is safe from any thread, and from a signal handler.
        self._stops: list[None] = []
        self._stops_before = 0  # the run that is under way
        self._changed = asyncio.Event()  # a handler has ended, or the worker is to stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exits_after = False
        self._released: Callable[[], None] = lambda: None

    # --- life ------------------------------------------------------------------------------------------------

    def run(self, signals: bool = True) -> Coroutine[Any, Any, None]:
        """Works until ``stop()`` or, with ``signals`` and in the main thread, SIGTERM or SIGINT; then drains.

        A second signal cuts the grace short. Can be called again after it returned, and opens a queue that was
        closed meanwhile. A ``stop()`` from before the call does not count, one from after it does, even if the
        coroutine had no turn yet.

        Raises:
            FairQueueError: it runs already. QueueUnavailableError: the server cannot be reached at the start.
            QueueClosedError: somebody closed the queue meanwhile. SchemaMismatchError: another version took over.

        Example:
            >>> running = asyncio.create_task(worker.run(signals=False))
            >>> worker.stop()
            >>> await running
        """
        # Not ``async def``, of whose body nothing runs before the task's first turn: a stop() in between could not be
        # told from one before the call. The call itself changes nothing, it only notes which stops came before it.
        return self._run(signals, len(self._stops))

    async def _run(self, signals: bool, stops_before: int) -> None:
        if self._loop is not None:
            raise FairQueueError(f"worker {self.name!r} runs already: make another one")
        self._loop, self._stops_before = asyncio.get_running_loop(), stops_before
        self._changed = asyncio.Event()  # of this loop
        try:
            with stop_signals(self.stop) if signals else contextlib.nullcontext():
                await self._queue.connect()
                await self._run_connected()
        finally:
            self._loop = None

    async def _run_connected(self) -> None:
        self._deliveries.open()
        self._keeper.start()
        await self._maintenance.start()
        self._heartbeat.start()
        exits_after = False  # an error: nobody knows how long the process will be there
        try:
            while not self._stopping:
                await self._turn()
            await self._drain()
            exits_after = self._exits_after
        finally:
            await self._wind_up(exits_after)

    async def _wind_up(self, exits_after: bool) -> None:
        """Everything that was started ends. What others may take up from here on is given back last."""
        self._heartbeat.stop()
        await self._maintenance.stop()
        if exits_after:  # what lost claims may have taken, and wake-ups, go back too: there may be no later
            await self._engine.stop_listening()
            await self._consumer.close()
        await self._deliveries.abandon(exits_after)
        await self._heartbeat.say_goodbye()
        with contextlib.suppress(FairQueueError):
            await self._settle_finished()
        if exits_after:
            self._released()
        self._keeper.stop()

    def run_sync(self, signals: bool = True) -> None:
        """``run()`` for a script: owns an event loop until it returns, and closes the queue.

        Raises:
            What ``run()`` raises.

        Example:
            >>> Worker(FairQueue(), handle).run_sync()  # doctest: +SKIP
        """

        async def work() -> None:
            try:
                await self.run(signals)
            finally:
                await self._queue.close()

        asyncio.run(work())

    def stop(self) -> None:
        """Asks the worker to drain: no more claims, ``grace`` for what runs, then the rest is released uncounted.

        Returns at once; safe from any thread; a second call cuts the grace short.

        Example:
            >>> worker.stop()
        """
        self._stops.append(None)
        loop = self._loop
        if loop is not None:
            self._tell_of_stop(len(self._stops) - self._stops_before)
            with contextlib.suppress(RuntimeError):  # the loop has just closed: nothing runs any more
                loop.call_soon_threadsafe(self._wake)

    def _tell_of_stop(self, times: int) -> None:
        running = counted(len(self._deliveries.running), "handler")
        if times == 1:
            _log.info(
                "worker %s drains: %s still running, %g s to end in; a second signal or stop cuts that short",
                self.name,
                running,
                self._grace,
            )
        elif times == 2:
            _log.info("worker %s waits no longer: what is left of %s is released", self.name, running)

    @property
    def _stopping(self) -> bool:
        return len(self._stops) > self._stops_before

    @property
    def _hurrying(self) -> bool:
        """Stopped twice: no grace."""
        return len(self._stops) > self._stops_before + 1

    def _wake(self) -> None:
        self._changed.set()

    def _now(self) -> float:
        """Seconds by the queue's clock in tests, else by one that nobody sets."""
        manual = self._engine.options.clock.now_ms()
        return time.monotonic() if manual is None else manual / 1000

    def _describe(self) -> dict[str, Any]:
        return {
            "pools": list(self._options.pools),
            "concurrency": self._concurrency,
            "running": len(self._deliveries.running),
        }

    # --- one turn --------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Settles what has finished, claims as many as can start, starts them; waits when there is nothing to do."""
        self._changed.clear()
        finished = self._deliveries.take_finished()
        busy = self._concurrency if self._deliveries.secluded else len(self._deliveries.running)
        free = min(self._concurrency - busy, MAX_CLAIM)
        started = await self._try_to_exchange(finished, free)
        if started is None:
            return
        if not self._deliveries.finished and started < free and not self._stopping:
            await self._wait_for_work()
        elif free == 0 and not self._deliveries.finished:
            await self._changed.wait()

    async def _try_to_exchange(self, finished: list[Request], free: int) -> int | None:
        """How many were started; None if the server could not be used: what has finished is to be sent again."""
        try:
            return await self._exchange(finished, free)
        except QueueUnavailableError as error:
            await self._server_away(finished, error)
        except _FATAL:
            self._deliveries.put_back(finished)
            raise
        except FairQueueError as error:
            # One broken key of the namespace: the doctor names it; this worker must be there when it is mended, and a
            # drain has its whole grace for that.
            _log.error("the server refused a claim or settle, trying again: %s", error)
            self._deliveries.put_back(finished)
            await asyncio.sleep(_REFUSED_PAUSE)
        return None

    async def _exchange(self, finished: list[Request], free: int) -> int:
        """How many were started; what has finished is settled in the same round trip."""
        if free > 0 and not self._stopping:
            outcomes, leases = await self._consumer.exchange(finished, self._options.of(free))
        elif finished:
            outcomes, leases = await self._consumer.settle(finished), []
        else:
            return 0
        self._deliveries.settled(finished, outcomes)
        for came in leases:
            if self._stopping:  # it came while the claim was under way
                self._deliveries.refuse(came)
            else:
                self._deliveries.start(came, alone=self._on_last_chance(came))
        return len(leases)

    def _on_last_chance(self, lease: Lease[P]) -> bool:
        """One more crash, and the message is dead. Alone, it does not take those along that only ran beside a killer."""
        stored = self._engine.settings.stored.get("max_crashes", "")
        permitted = int(stored) if stored.isdecimal() else 0
        return 0 < lease.message.crashes == permitted - 1 and self._concurrency > 1

    async def _server_away(self, finished: list[Request], error: QueueUnavailableError) -> None:
        """Handlers go on; what is finished is sent again, as the same calls, until the server answers."""
        _log.warning("the server is still away, trying again: %s", error)
        self._deliveries.put_back([one for one in finished if one[1].outcome is None])
        await asyncio.sleep(_AWAY_PAUSE)

    async def _wait_for_work(self) -> None:
        """Until the bell rings, a due time comes, a handler ends or the worker is stopped."""
        bell = asyncio.ensure_future(
            self._engine.bell(self._options.pools).wait(self._consumer.idle_seconds())
        )
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([bell, changed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in (bell, changed):
                waiter.cancel()
            await asyncio.wait([bell, changed])

    # --- ending ----------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Leases are kept alive and outcomes settled until the last handler has ended or the grace is over."""
        deliveries, give_up = self._deliveries, time.monotonic() + self._grace
        deliveries.close()
        while (
            (deliveries.running or deliveries.finished) and time.monotonic() < give_up and not self._hurrying
        ):
            self._changed.clear()
            await self._settle_finished()
            if deliveries.running:
                with contextlib.suppress(TimeoutError):
                    left = min(give_up, time.monotonic() + 1) - time.monotonic()
                    await asyncio.wait_for(self._changed.wait(), max(left, 0))

    async def _settle_finished(self) -> None:
        await self._try_to_exchange(self._deliveries.take_finished(), 0)


def exits_after(worker: Worker[Any], released: Callable[[], None]) -> None:
    """For whoever ends the process right after ``run()``: messages of threads that still run are released too.

    Otherwise they stay leased until their lease expires, or they would run twice at once. ``released`` is called when
    they have been, as the very last step of a run: from then on others may have them, so it ends the process if threads
    still run.
    """
    worker._exits_after, worker._released = True, released  # noqa: SLF001 - the only way in


def drained(worker: Worker[Any]) -> str:
    """How the last run ended, for the log."""
    released = worker._deliveries.released  # noqa: SLF001 - the only way in
    return f"worker {worker.name} has drained, {counted(released, 'message')} released"


def _seconds(handler_timeout: timedelta | float | None) -> float | None:
    if handler_timeout is None:
        return None
    return duration_ms("handler_timeout", handler_timeout, minimum_ms=1) / 1000


def _drawn_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
