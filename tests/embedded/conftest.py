"""Actors that are ended, and servers that are ended, by their process numbers, whatever a test did."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from fairqueue.embedded import EmbeddedServer, start_sync
from fairqueue.embedded.directory import DataDirectory
from fairqueue.embedded.locks import is_locked
from fairqueue.embedded.sockets import accepts, find_socket
from tests.embedded.wire import info
from tests.support.pids import gone
from tests.support.waiting import eventually_sync

ROOT = Path(__file__).parents[2]
SHORT = timedelta(seconds=0.2)


class Actor:
    """Another process that uses a server; it starts it when told to `go`."""

    def __init__(self, path: Path | str, idle: float = SHORT.total_seconds()) -> None:
        self.url = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.embedded.actor_main", str(path), str(idle)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._hear() == "awake"

    def go(self) -> Actor:
        self.say("go")
        self.url = self.heard()
        return self

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def heard(self) -> str:
        said = self._hear()
        assert said, f"the actor ended with {self._process.wait(60)}"
        return said

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.say(line)
        return self.heard()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(60)
        self._close_pipes()

    def leave(self) -> None:
        """End in the ordinary way, without a close."""
        self._close_pipes()
        assert self._process.wait(60) == 0

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid


@pytest.fixture
def data() -> Iterator[Path]:
    """A path for data, not made yet; what runs there at the end of the test is ended."""
    parent = Path(tempfile.mkdtemp(prefix="fq-")).resolve()
    path = parent / "data"
    yield path
    end_what_runs_in(path)
    shutil.rmtree(parent)


@pytest.fixture
def actor() -> Iterator[Callable[..., Actor]]:
    """Makes actors; those that are left are killed."""
    made: list[Actor] = []

    def make(path: Path | str, idle: float = SHORT.total_seconds()) -> Actor:
        made.append(Actor(path, idle))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture
def claim(data: Path) -> Iterator[Callable[..., EmbeddedServer]]:
    """Makes claims of this process, on `data` unless told otherwise; all are closed."""
    made: list[EmbeddedServer] = []

    def make(path: Path | None = data, idle: timedelta = SHORT) -> EmbeddedServer:
        made.append(start_sync(path, idle=idle))
        return made[-1]

    yield make
    for each in made:
        each.close()


def end_what_runs_in(path: Path) -> None:
    directory = DataDirectory(path, private=False)
    if not directory.watcher_lock.exists():
        return
    watcher = directory.watcher_process()
    if is_locked(directory.watcher_lock) and watcher:
        with suppress(ProcessLookupError):
            os.kill(watcher, signal.SIGCONT)
            os.kill(watcher, signal.SIGTERM)
    eventually_sync(lambda: ended(directory), f"the server in {path} to end")


def ended(directory: DataDirectory) -> bool:
    """Neither a server nor a watcher is there."""
    if not directory.watcher_lock.exists():
        return True
    return not is_locked(directory.watcher_lock) and not accepts(find_socket(directory))


def server_pid(url: str) -> int:
    return int(info(url, "process_id"))


def watcher_pid(server: EmbeddedServer) -> int:
    """The watcher's number; it writes it just after it has let go of its starter."""
    return eventually_sync(server.directory.watcher_process, "the watcher to note its process number")


def kill(pid: int) -> None:
    """kill -9, and wait until the process has let go of everything."""
    os.kill(pid, signal.SIGKILL)
    eventually_sync(lambda: gone(pid), f"process {pid} to end")
