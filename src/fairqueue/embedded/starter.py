"""Bringing a server up: one process at a time does it, under the start lock; all the others find it done.

What the starter finds, and what it does about it:

================  ============  ==================================================================
socket accepts    watcher lock
================  ============  ==================================================================
yes               held          done
no                held          it is starting or ending: wait; much too long: kill the watcher
yes               free          its watcher was killed: end the orphan, then start a new one
no                free          start one; the second time around it has failed: tell with its log
================  ============  ==================================================================
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fairqueue.embedded import watcher
from fairqueue.embedded.binary import claim_data, server_binary
from fairqueue.embedded.directory import DataDirectory
from fairqueue.embedded.locks import FileLock, is_locked
from fairqueue.embedded.sockets import accepts, answers, choose_socket, find_socket, server_process
from fairqueue.errors import QueueUnavailableError

__all__ = ["await_answer", "bring_up", "end_private", "is_served", "wait_for"]

PATIENCE = 15.0
"""Seconds within which a start succeeds or is given up."""

WEDGED_AFTER = 8.0
"""Seconds a watcher may have no server before it counts as frozen; ending one in order takes it up to 5."""

ORPHAN_PATIENCE = 3.0


def is_served(directory: DataDirectory) -> bool:
    """Whether a server runs there and its watcher too; takes a fraction of a millisecond."""
    return accepts(find_socket(directory)) and is_locked(directory.watcher_lock)


def bring_up(directory: DataDirectory, idle: float) -> None:
    """See that a server runs; the caller holds the clients' lock, so that nobody ends it meanwhile.

    Raises:
        ConfigurationError: the data are those of a newer server, or there is no server program.
        QueueUnavailableError: it did not start; the text has the end of its log.
    """
    lock = FileLock(directory.start_lock)
    wait_for(
        lambda: is_served(directory) or lock.take(exclusive=True),
        lambda: f"expected another process to have started the embedded server in {directory.path}",
    )
    try:
        _Start(directory, idle).run()
    finally:
        lock.release()


def await_answer(directory: DataDirectory) -> None:
    """Wait until the server serves commands; one with much data may still be loading them afterwards.

    Raises:
        QueueUnavailableError: it ended instead: its data are damaged, say. The text has the end of its log.
    """
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        path = find_socket(directory)
        if path is not None and answers(path):
            return
        if not is_served(directory):
            raise _did_not_start(directory, 0)
        time.sleep(0.005)


def wait_for(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait until something other processes do is done; QueueUnavailableError after `PATIENCE`."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > ends:
            raise QueueUnavailableError(f"{what()} within {PATIENCE:g} s")
        time.sleep(0.005)


class _Start:
    """One starter's way through the table above."""

    def __init__(self, directory: DataDirectory, idle: float) -> None:
        self._directory = directory
        self._idle = idle
        self._started = False
        self._log_start = 0
        self._began = time.monotonic()
        self._waiting_since = self._began

    def run(self) -> None:
        while not self._step():
            if time.monotonic() - self._began > PATIENCE:
                raise _did_not_start(self._directory, self._log_start)
            time.sleep(0.002)

    def _step(self) -> bool:
        """Look once and act; True when the server is up."""
        # The lock first: a server seen after its watcher was seen cannot be an older one's leftover.
        watched = is_locked(self._directory.watcher_lock)
        path = find_socket(self._directory)
        if path is not None and accepts(path):
            if not watched:
                _end_orphan(path)
            return watched
        if watched:
            self._thaw()
        elif self._started:
            raise _did_not_start(self._directory, self._log_start)
        else:
            self._start_watcher()
        return False

    def _thaw(self) -> None:
        """Kill a watcher that has been without a server for too long: it must have been frozen."""
        if time.monotonic() - self._waiting_since < WEDGED_AFTER:
            return
        process = self._directory.watcher_process()
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _start_watcher(self) -> None:
        binary = server_binary()
        claim_data(self._directory, binary)
        self._log_start = self._directory.bound_log()
        # A number left by an earlier watcher must not be taken for that of the next one.
        os.truncate(self._directory.watcher_lock, 0)
        path = choose_socket(self._directory)
        self._waiting_since = time.monotonic()
        self._started = _run_watcher(
            [
                *_watcher_command(),
                *self._watcher_arguments(path),
                *_server_command(binary, self._directory, path),
            ]
        )

    def _watcher_arguments(self, path: Path) -> list[str]:
        kind = watcher.PRIVATE if self._directory.private else watcher.SHARED
        return [str(self._directory.path), str(path), str(self._idle), kind]


def _run_watcher(command: list[str]) -> bool:
    """Start a watcher and wait until it has detached; False if another one has the directory."""
    try:
        child = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=_environment(),
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise QueueUnavailableError(
            f"the embedded server's watcher did not start within {PATIENCE:g} s"
        ) from error
    if child.returncode not in {0, watcher.ANOTHER_WATCHES}:
        said = child.stderr.decode(errors="replace")[-2000:]
        raise QueueUnavailableError(
            f"the embedded server's watcher did not start, exit code {child.returncode}: {said}"
        )
    return child.returncode == 0


def _watcher_command() -> list[str]:
    """Run the watcher with the standard library alone: no site-packages, nothing of the user's."""
    return [_python(), "-P", "-s", "-S", str(Path(watcher.__file__))]


def _python() -> str:
    """Return an interpreter; inside a server with an embedded Python `sys.executable` is that server."""
    candidates = [
        Path(sys.executable or "/"),
        Path(sys.prefix, "bin", "python3"),
        Path(sys.base_prefix, "bin", "python3"),
    ]
    for candidate in candidates:
        if candidate.name.startswith("python") and os.access(candidate, os.X_OK):
            return str(candidate)
    raise QueueUnavailableError(
        f"expected a Python interpreter to run the embedded server's watcher, got {candidates}"
    )


def _environment() -> dict[str, str]:
    """Return ours without what would change the interpreter, except where it finds its standard library."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") or name == "PYTHONHOME"
    }


def _server_command(binary: Path, directory: DataDirectory, path: Path) -> list[str]:
    # Relative to the directory itself, where the watcher runs it: a server whose directory was moved must not, when
    # it ends, remove the socket of the one that has taken its place.
    options = {
        "port": "0",
        "unixsocket": path.name if path.parent == directory.path else str(path),
        "unixsocketperm": "700",
        "dir": ".",
        "databases": "1",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "loglevel": "notice",
        "daemonize": "no",
    }
    return [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]


def _end_orphan(path: Path) -> None:
    """End a server whose watcher is gone, and return when it has let go of its data."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ORPHAN_PATIENCE)
        try:
            connection.connect(str(path))
            process = server_process(connection)
            if process is None:
                raise QueueUnavailableError(
                    f"expected the server on {path} to be a process of this machine or container"
                )
            for number in (signal.SIGTERM, signal.SIGKILL):
                os.kill(process, number)
                if _has_closed(connection):
                    return
        except (ConnectionError, FileNotFoundError, ProcessLookupError):
            return  # it was ending anyway


def _has_closed(connection: socket.socket) -> bool:
    """Whether the other end goes away in time: the kernel closes its side only when the process ends."""
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False


def _did_not_start(directory: DataDirectory, log_start: int) -> QueueUnavailableError:
    tail = directory.log_since(log_start) or "(nothing)"
    return QueueUnavailableError(
        f"the embedded server in {directory.path} did not start; the end of its log, {directory.log}:\n{tail}"
    )


def end_private(directory: DataDirectory) -> None:
    """End a private server and remove its directory; quick, and nothing happens when it is gone already."""
    with suppress(OSError):
        if is_locked(directory.watcher_lock):
            process = directory.watcher_process()
            if process is not None:
                os.kill(process, signal.SIGTERM)
            with suppress(QueueUnavailableError):
                wait_for(lambda: not is_locked(directory.watcher_lock), lambda: "expected the watcher to end")
        path = find_socket(directory)
        if path is not None and accepts(path):
            _end_orphan(path)
    shutil.rmtree(directory.path, ignore_errors=True)
