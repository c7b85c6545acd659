"""Worker processes: their signals, their ends, and the supervisor that keeps several of them running.

A worker process drains at the first SIGTERM or SIGINT and cuts its grace short at the second. Under a supervisor each
is a child in a process group of its own, so that Ctrl-C in a terminal reaches the supervisor alone, which passes on
one signal. Supervisor and child share a socket, the lifeline: the child says on it when it is ready, and drains when it
closes, so that a supervisor that was killed leaves no orphans behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from fairqueue.errors import FairQueueError
from fairqueue.queue import FairQueue
from fairqueue.retry import RetryPolicy
from fairqueue.running import Handler, Runner
from fairqueue.validation import integer
from fairqueue.worker import Worker

__all__ = ["Lifeline", "Supervisor", "WorkerSettings", "run_worker", "stop_signals"]

_log = logging.getLogger("fairqueue")

DRAINED, FAILED, WRONG_USE = 0, 1, 2
"""How a worker process ends: every handler has ended or was released; it could not work; it can never work."""

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

LAST_STEPS = 20.0
"""Seconds that a worker may take beyond its grace to release, settle and say goodbye; then it is killed."""

EXIT_PATIENCE = 2.0
"""Seconds that threads and exit functions of the user's have to let the process go."""

STEADY = 60.0
"""A child that ran for so many seconds is no child that cannot start: the next pause is the shortest again."""

RESTARTS = RetryPolicy(initial=0.25, factor=2, maximum=30)


@contextlib.contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block SIGTERM and SIGINT call ``stop`` in the running event loop, each time one comes."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


# --- one worker process ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The options of a ``Worker``; see there."""

    concurrency: int = 100
    pools: tuple[str, ...] = ("default",)
    handler_timeout: timedelta | float | None = None
    grace: float = 30
    name: str | None = None


class Lifeline:
    """A child's end of the socket that it shares with its supervisor.

    Args:
        descriptor: the number the supervisor passed on.
        patience: seconds after the supervisor's end in which this process has to end too, come what may.
    """

    def __init__(self, descriptor: int, patience: float) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._patience = patience
        self.stopping = threading.Event()
        threading.Thread(target=self._watch, name="fairqueue-lifeline", daemon=True).start()

    def say_ready(self) -> None:
        """Tells the supervisor that messages are being handled."""
        with contextlib.suppress(OSError):  # it has gone: the watcher sees that too
            self._socket.send(b"r")

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while self._socket.recv(1):
                pass
        if not self.stopping.is_set():  # a second signal would cut the grace short
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self._patience)
        # A handler that blocks the event loop for ever hears no signal, and its lease would be extended for ever.
        _leave(FAILED)


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
    )
    worker.exits_after = True
    loop = asyncio.Runner()
    try:
        loop.run(_work(queue, worker, lifeline))
    except BaseException:
        _leave_within(EXIT_PATIENCE, FAILED)  # the loop is not closed: that would wait for its threads
        raise
    if isinstance(counted, _Counted) and counted.busy:
        _leave(DRAINED)
    _leave_within(EXIT_PATIENCE, DRAINED)
    loop.close()
    return DRAINED


async def _work(queue: FairQueue[Any], worker: Worker[Any], lifeline: Lifeline | None) -> None:
    def stop() -> None:
        _log.info("worker %s drains", worker.name)
        if lifeline is not None:
            lifeline.stopping.set()
        worker.stop()

    try:
        await queue.connect()
        running = asyncio.ensure_future(worker.run(signals=False))
        await asyncio.sleep(0)  # run() has begun: it forgets no stop() from here on
        with stop_signals(stop):
            if lifeline is not None:
                lifeline.say_ready()
            _log.info("worker %s is ready", worker.name)
            await running
        _log.info("worker %s has drained", worker.name)
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


def _leave(status: int) -> None:
    """Ends the process now, without waiting for anybody."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _leave_within(seconds: float, status: int) -> None:
    """Ends the process by force unless it has ended by itself until then: threads of handlers may never end."""
    timer = threading.Timer(seconds, _leave, [status])
    timer.daemon = True
    timer.start()


# --- several of them ---------------------------------------------------------------------------------------------


class Supervisor:
    """Keeps several worker processes running.

    The first one is started alone: if it cannot get ready, none could, and its exit status is the answer.
    Afterwards a child that ends without having been told to is replaced, after a pause that grows while its
    successors keep ending.

    Args:
        command_for: the command of a child, by its number from 1; ``--lifeline DESCRIPTOR`` is added to it.
        processes: how many.
        grace: seconds that a child's handlers have to end in.
        environment: of the children; None: ours.

    Example:
        >>> Supervisor(lambda number: [sys.executable, "work.py"], 4, grace=30).run()  # doctest: +SKIP
        0
    """

    def __init__(
        self,
        command_for: Callable[[int], Sequence[str]],
        processes: int,
        grace: float,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._command_for = command_for
        self._numbers = range(1, integer("processes", processes, 1, 1024) + 1)
        self._grace = grace
        self._environment = environment
        self._children: dict[int, Process] = {}
        self._status = DRAINED
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()

    def run(self) -> int:
        """Runs until SIGTERM or SIGINT; 0 when every child has drained.

        A second signal is passed on too and cuts the children's grace short. One that is still there
        ``LAST_STEPS`` seconds after its grace is killed, and counts as failed.
        """
        return asyncio.run(self._run())

    async def _run(self) -> int:
        with stop_signals(self._pass_on):
            first = asyncio.ensure_future(self._keep(1))
            ready = asyncio.ensure_future(self._ready.wait())
            await asyncio.wait([first, ready], return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            others = self._numbers[1:] if self._ready.is_set() else []
            await asyncio.gather(first, *map(self._keep, others))
        return self._status

    async def _keep(self, number: int) -> None:
        """One place: a child in it until the end."""
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            status = await self._child(number)
            if self._stopping.is_set() or self._gives_up(status):
                self._note(status)
                return
            failures = 1 if time.monotonic() - began > STEADY else failures + 1
            pause = RESTARTS.delay_ms(failures) / 1000
            _log.warning(
                "worker process %d ended, %s: another one in %.1f s", number, _described(status), pause
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _child(self, number: int) -> int:
        """Starts a child and returns its exit status."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = await self._started(number, theirs)
            theirs.close()
            self._children[number] = process
            if self._stopping.is_set():  # the signal came while it was being started
                _send(process, signal.SIGTERM)
            listening = asyncio.ensure_future(self._hear(ours))
            try:
                return await process.wait()
            finally:
                del self._children[number]
                listening.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await listening  # its socket is closed next

    async def _started(self, number: int, line: socket.socket) -> Process:
        command = [*self._command_for(number), "--lifeline", str(line.fileno())]
        try:
            return await asyncio.create_subprocess_exec(
                *command, pass_fds=[line.fileno()], process_group=0, env=self._environment
            )
        except OSError as error:
            raise FairQueueError(f"worker process {number} cannot be started: {error}") from error

    async def _hear(self, line: socket.socket) -> None:
        line.setblocking(False)
        with contextlib.suppress(OSError):
            if await asyncio.get_running_loop().sock_recv(line, 1):
                self._ready.set()

    def _gives_up(self, status: int) -> bool:
        """Starting another one would end the same way: none got ready yet, or it says so itself."""
        if self._ready.is_set() and status != WRONG_USE:
            return False
        self._status = status if status > 0 else FAILED
        self._tell_all()
        return True

    def _note(self, status: int) -> None:
        """A child killed by our signal had not begun to work: it drained as well as one can."""
        if status not in (DRAINED, -signal.SIGTERM) and self._status == DRAINED:
            self._status = FAILED

    def _pass_on(self) -> None:
        _log.info("%s worker processes drain", len(self._children))
        self._tell_all()

    def _tell_all(self) -> None:
        if not self._stopping.is_set():
            asyncio.get_running_loop().call_later(self._grace + LAST_STEPS, self._kill_all)
        self._stopping.set()
        for process in self._children.values():
            _send(process, signal.SIGTERM)

    def _kill_all(self) -> None:
        for number, process in self._children.items():
            _log.error("worker process %d did not end within its grace: killed", number)
            _send(process, signal.SIGKILL)


def _send(process: Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        process.send_signal(number)


def _described(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
