"""The worker processes of a replay, as seen by the demo: started, killed, ended."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import cast

from fairqueue.demo.worker_process import READY, WorkerOrder
from fairqueue.errors import FairQueueError

START_S = 15.0
"""A worker process that is not connected after this many seconds is not going to be."""

STOP_S = 8.0
"""A worker process that still runs this many seconds after it was told to drain is killed."""


class Crew:
    """Worker processes that end with the ``async with`` block, whatever happens in it.

    Example:
        >>> async with Crew(order_for, directory) as crew:       # doctest: +SKIP
        ...     await crew.start("worker-1")
        ...     crew.kill("worker-1")
    """

    def __init__(self, order_for: Callable[[str], WorkerOrder], errors: Path) -> None:
        """``order_for`` gives the order of a process by its name; ``errors`` is where their stderr is kept."""
        self._order_for = order_for
        self._errors = errors
        self._processes: dict[str, Process] = {}
        self._killed: set[str] = set()

    async def __aenter__(self) -> Crew:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.stop())

    @property
    def alive(self) -> list[str]:
        """The names of the processes that run."""
        return [name for name, process in self._processes.items() if process.returncode is None]

    async def start(self, name: str) -> None:
        """Start one worker process and return when it is connected.

        Raises:
            FairQueueError: it ended, or did not connect in time; the text has the end of its stderr.
        """
        log = self._errors / f"{name}.stderr"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairqueue.demo.worker_process",
                self._order_for(name).to_json(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers in order
            )
        self._processes[name] = process
        with contextlib.suppress(TimeoutError):
            output = cast("asyncio.StreamReader", process.stdout)
            if await asyncio.wait_for(output.readline(), START_S) == READY:
                return
        raise FairQueueError(f"expected {name} to connect within {START_S:g} s, got: {_last_words(log)}")

    def pid(self, name: str) -> int:
        """The process id of that process."""
        return self._processes[name].pid

    def kill(self, name: str) -> int:
        """Send SIGKILL (``kill -9``) to that process; its pid."""
        self._killed.add(name)
        self._processes[name].kill()
        return self.pid(name)

    def check(self) -> None:
        """Raise :class:`FairQueueError` if a process that nobody killed on purpose has ended."""
        for name in self._processes.keys() - set(self.alive) - self._killed:
            words = _last_words(self._errors / f"{name}.stderr")
            raise FairQueueError(f"expected {name} to run until the end of the replay, got: {words}")

    async def stop(self) -> None:
        """Tell all processes to drain, and return when they have ended; a second call does nothing."""
        await asyncio.gather(*(self._stop(process) for process in self._processes.values()))

    async def _stop(self, process: Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def _last_words(log: Path) -> str:
    text = log.read_text(errors="replace").strip()
    return text.splitlines()[-1] if text else "nothing on its stderr"
