"""Several worker processes, kept running.

Each is a child in a process group of its own, so that Ctrl-C in a terminal reaches the supervisor alone, which passes on
one signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence

from fairqueue.errors import FairQueueError
from fairqueue.exits import DRAINED, FAILED, LAST_STEPS, WRONG_USE
from fairqueue.retry import RetryPolicy
from fairqueue.signals import stop_signals
from fairqueue.validation import integer

__all__ = ["Supervisor"]

_log = logging.getLogger("fairqueue")

STEADY = 60.0
"""A child that ran for so many seconds is no child that cannot start: the next pause is the shortest again."""

RESTARTS = RetryPolicy(initial=0.25, factor=2, maximum=30)


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
            status = await self._tried(number)
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

    async def _tried(self, number: int) -> int:
        """The exit status of a child; one that cannot be started for a moment, in the middle of a deployment, has failed.

        The others are well and must not end with it.
        """
        try:
            return await self._child(number)
        except OSError as error:
            if not self._ready.is_set():
                raise FairQueueError(f"worker process {number} cannot be started: {error}") from error
            _log.error("worker process %d cannot be started: %s", number, error)
            return FAILED

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
                await asyncio.wait([listening])  # its socket is closed next

    async def _started(self, number: int, line: socket.socket) -> Process:
        command = [*self._command_for(number), "--lifeline", str(line.fileno())]
        return await asyncio.create_subprocess_exec(
            *command, pass_fds=[line.fileno()], process_group=0, env=self._environment
        )

    async def _hear(self, line: socket.socket) -> None:
        line.setblocking(False)
        with contextlib.suppress(OSError):
            if await asyncio.get_running_loop().sock_recv(line, 1):
                self._ready.set()

    def _gives_up(self, status: int) -> bool:
        """Starting another one would end the same way: none got ready yet, or none is left and this one says so itself.

        While others work, what this one says may be the handler's own status, or pass with the deployment.
        """
        if self._ready.is_set() and (status != WRONG_USE or self._children):
            return False
        if self._ready.is_set():
            _log.error("the last worker process ended, %s: no other one is started", _described(status))
        self._status = status if status > 0 else FAILED
        self._tell_all()
        return True

    def _note(self, status: int) -> None:
        """A child killed by our signal had not begun to work: it drained as well as one can."""
        if status not in (DRAINED, -signal.SIGTERM) and self._status == DRAINED:
            self._status = FAILED

    def _pass_on(self) -> None:
        if self._stopping.is_set():
            _log.info("told again: the worker processes wait no longer for their handlers")
        else:
            there = len(self._children)
            _log.info(
                "%s, %g s for running handlers; a second signal cuts that short",
                "1 worker process drains" if there == 1 else f"{there} worker processes drain",
                self._grace,
            )
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
