"""One worker process: it drains at the first SIGTERM or SIGINT and cuts its grace short at the second."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fairqueue.exits import DRAINED, EXIT_PATIENCE, FAILED, leave, leave_within
from fairqueue.lifeline import Lifeline
from fairqueue.queue import FairQueue
from fairqueue.running import Handler, Runner
from fairqueue.signals import stop_signals
from fairqueue.worker import Charge, Worker, drained, exits_after

__all__ = ["WorkerSettings", "run_worker"]

_log = logging.getLogger("fairqueue")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The options of a ``Worker``; see there."""

    concurrency: int = 100
    pools: tuple[str, ...] = ("default",)
    handler_timeout: timedelta | float | None = None
    grace: float = 30
    name: str | None = None
    charge: Charge = "cost"


def run_worker(
    queue: FairQueue[Any], handler: Handler, settings: WorkerSettings, lifeline: Lifeline | None = None
) -> int:
    """Works in this process until SIGTERM or SIGINT, drains, closes the queue and returns 0.

    The process is expected to end then: messages of threads that still run were released, so where there are such
    threads it ends here and now, and in any case ``EXIT_PATIENCE`` seconds later.

    Raises:
        ConfigurationError: a wrong option. FairQueueError: the server cannot be used.
    """
    counted = handler if Runner(handler, None).is_async else _Counted(handler)
    worker: Worker[Any] = Worker(
        queue,
        counted,
        settings.concurrency,
        settings.pools,
        settings.handler_timeout,
        settings.grace,
        settings.name,
        settings.charge,
    )

    def end_threads() -> None:
        """Others may have their messages from now on: not even the connections are closed before."""
        if isinstance(counted, _Counted) and counted.busy:
            _log.info(drained(worker))
            leave(DRAINED)

    exits_after(worker, end_threads)
    loop = asyncio.Runner()
    try:
        loop.run(_work(queue, worker, lifeline))
    except BaseException:
        leave_within(EXIT_PATIENCE, FAILED)  # the loop is not closed: that would wait for its threads
        raise
    end_threads()
    leave_within(EXIT_PATIENCE, DRAINED)
    loop.close()
    return DRAINED


async def _work(queue: FairQueue[Any], worker: Worker[Any], lifeline: Lifeline | None) -> None:
    def stop() -> None:
        if lifeline is not None:
            lifeline.stopping.set()
        worker.stop()

    try:
        await queue.connect()
        running = asyncio.ensure_future(worker.run(signals=False))
        with stop_signals(stop):
            if lifeline is not None:
                lifeline.say_ready()
            _log.info("worker %s is ready", worker.name)
            await running
        _log.info(drained(worker))
    finally:
        await queue.close()


class _Counted:
    """A plain handler that knows how many threads are inside it."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        self.busy = 0

    def __call__(self, message: Any) -> Any:
        with self._lock:
            self.busy += 1
        try:
            return self._handler(message)
        finally:
            with self._lock:
                self.busy -= 1
