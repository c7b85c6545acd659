"""The watcher: the parent of one embedded server, ends it when nobody uses it any more.

It runs as a script of its own (``python -P -s -S watcher.py DIRECTORY SOCKET IDLE KIND COMMAND...``), detached from
whoever started it, and imports no more than it needs: it has to be up in milliseconds and to stay small for weeks.
The starter imports the names both sides share from here.

Who is alive is read from locks alone, because the kernel gives those back however a process ends:

- the watcher holds ``watcher.lock`` exclusively as long as it lives: locked means "this server is watched";
- every client process holds ``clients.lock`` shared: the watcher can take it exclusively only when nobody is
  there, and keeps it while it ends the server, so a client that comes meanwhile waits and then starts anew.
"""

# pathlib alone would take as long to import as all the rest:
# ruff: noqa: PTH115, PTH116, PTH118, PTH120

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import time

START_LOCK = "start.lock"
CLIENTS_LOCK = "clients.lock"
WATCHER_LOCK = "watcher.lock"
SOCKET_POINTER = "socket-directory"
LOG = "server.log"

PRIVATE = "private"
SHARED = "shared"

ANOTHER_WATCHES = 3
"""Exit code: another watcher has this directory."""

LONGEST_TICK = 1.0
END_PATIENCE = 5.0
LOOK_PATIENCE = 0.25


def open_lock_file(path: str) -> int:
    """Open a lock file, made if need be; a child that runs another program does not inherit it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def try_lock(descriptor: int, kind: int) -> bool:
    """Take a flock if that is possible right now."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_current(descriptor: int, path: str) -> bool:
    """Whether the open file is still the one of that path: a lock on a deleted file keeps nobody out."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def process_namespace() -> str:
    """What a process number means here: the same number in another container is another process."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "-"


class Watcher:
    """One server, its parent's view: launch it, wait until nobody needs it, end it, tidy up."""

    def __init__(self, directory: str, socket_path: str, idle: float, kind: str, lock: int) -> None:
        self._directory = directory
        self._socket_path = socket_path
        self._idle = idle
        self._private = kind == PRIVATE
        self._lock = lock
        self._clients = open_lock_file(CLIENTS_LOCK)
        self._log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._wake = _wake_on_signals()
        self._server = 0
        self._asked_to_end = False
        signal.signal(signal.SIGTERM, self._ask_to_end)
        signal.signal(signal.SIGINT, self._ask_to_end)

    def run(self, command: list[str]) -> None:
        """Be the parent of the server until one of the two ends."""
        try:
            self._server = _launch(command, self._log)
            finished = self._watch()
        except BaseException as error:
            self._note(f"the watcher ended with {error!r}")
            raise
        finally:
            self._end_server()
        # Still under the watcher's lock: nobody starts a server here meanwhile.
        if self._private and (finished or try_lock(self._clients, fcntl.LOCK_EX)):
            _remove_tree(self._directory)
        if finished:
            self._remove_socket_directory()

    def _watch(self) -> bool:
        """Return True when the server is to end, False when it has ended by itself or lost its directory."""
        quiet_since = time.monotonic()
        while not self._server_has_ended():
            if self._asked_to_end:
                return True
            if not is_current(self._lock, self._path(WATCHER_LOCK)):
                self._note("the directory was removed or moved: the server ends")
                return False
            if not is_current(self._clients, self._path(CLIENTS_LOCK)):
                self._clients = _reopen(self._clients, self._path(CLIENTS_LOCK))
            seen = self._last_client(quiet_since)
            if seen is None:
                return True
            quiet_since = seen
            self._pause(min(LONGEST_TICK, self._idle / 4))
        return False

    def _last_client(self, quiet_since: float) -> float | None:
        """When somebody was there last; None, and the lock is held on: nobody has been for long enough."""
        now = time.monotonic()
        if not try_lock(self._clients, fcntl.LOCK_EX):
            return now
        if now - quiet_since >= self._idle:
            # A program that was given the socket's plain URL holds no lock: one that works counts by its commands.
            # An old connection does not count: a fork may have inherited it and never close it.
            silence = _shortest_silence(self._socket_path)
            if silence is None or silence >= self._idle:
                return None
            quiet_since = now - silence
        fcntl.flock(self._clients, fcntl.LOCK_UN)
        return quiet_since

    def _end_server(self) -> None:
        """End the server in an orderly way, by force if it takes too long; a private one has nothing to save."""
        if self._server_has_ended():
            return
        os.kill(self._server, signal.SIGKILL if self._private else signal.SIGTERM)
        ends = time.monotonic() + END_PATIENCE
        while not self._server_has_ended():
            if time.monotonic() > ends:
                self._note(f"the server did not end within {END_PATIENCE:g} s: killed")
                os.kill(self._server, signal.SIGKILL)
                ends = time.monotonic() + END_PATIENCE
            self._pause(LONGEST_TICK)

    def _server_has_ended(self) -> bool:
        if self._server:
            ended, status = os.waitpid(self._server, os.WNOHANG)
            if ended:
                self._server = 0
                self._note(f"the server ended, exit code {os.waitstatus_to_exitcode(status)}")
        return not self._server

    def _pause(self, seconds: float) -> None:
        """Sleep, but wake at once when the server ends or somebody asks for the end."""
        if select.select([self._wake], [], [], seconds)[0]:
            os.read(self._wake, 512)

    def _ask_to_end(self, _number: int, _frame: object) -> None:
        self._asked_to_end = True

    def _remove_socket_directory(self) -> None:
        """Remove the short directory that a long path needed."""
        short = os.path.dirname(self._socket_path)
        if short == self._directory:
            return
        for remove, path in (
            (os.unlink, self._socket_path),
            (os.rmdir, short),
            (os.unlink, self._path(SOCKET_POINTER)),
        ):
            try:
                remove(path)
            except OSError:
                continue

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _note(self, text: str) -> None:
        os.write(self._log, f"{os.getpid()}:W {time.strftime('%d %b %Y %H:%M:%S')} # {text}\n".encode())


def main(arguments: list[str]) -> int:
    """Take the directory, let go of whoever started us, and watch."""
    directory, socket_path, idle, kind, *command = arguments
    os.umask(0o077)
    os.chdir(directory)
    lock = open_lock_file(WATCHER_LOCK)
    if not _take_for_good(lock):
        return ANOTHER_WATCHES
    _detach()
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()} {process_namespace()}\n".encode())
    Watcher(directory, socket_path, float(idle), kind, lock).run(command)
    return 0


def _take_for_good(lock: int) -> bool:
    """Take the watcher's lock; someone who only looks whether it is held may have it for a moment."""
    ends = time.monotonic() + LOOK_PATIENCE
    while not try_lock(lock, fcntl.LOCK_EX):
        if time.monotonic() > ends:
            return False
        time.sleep(0.001)
    return True


def _detach() -> None:
    """Leave the starter's family: it is not our parent, and no terminal of it can signal us.

    The lock is taken before: when the starter sees its child exit, either the lock is held or we have failed.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)


def _wake_on_signals() -> int:
    """Return a descriptor that becomes readable with every signal we care for."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # A thread that blocks signals may have started us, and the mask is inherited.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return readable


def _launch(command: list[str], log: int) -> int:
    """Start the server as our child and return its process number."""
    watcher = os.getpid()
    server = os.fork()
    if server:
        return server
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        _die_with(watcher)
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    except BaseException as error:  # noqa: BLE001 - whatever it is, this copy of the watcher must not go on
        os.write(2, f"cannot run {command[0]}: {error!r}\n".encode())
    finally:
        os._exit(127)


def _die_with(parent: int) -> None:
    """Have the kernel end us in an orderly way when our parent is killed; only Linux can.

    Orderly, because with `everysec` the server may hold back what it acknowledged while a sync is under way.
    """
    set_parent_death_signal = 1
    try:
        import ctypes  # noqa: PLC0415 - in the child alone: the watcher need not carry it

        ctypes.CDLL(None).prctl(set_parent_death_signal, ctypes.c_ulong(signal.SIGTERM))
    except (ImportError, OSError, AttributeError):
        return
    if os.getppid() != parent:  # it died before the call
        os._exit(127)


def _shortest_silence(socket_path: str) -> float | None:
    """Seconds since the last command of anyone connected, whole ones; None: nobody is, or the server is silent."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1)
            connection.connect(socket_path)
            connection.sendall(b"CLIENT LIST\r\n")
            listing = _read_bulk(connection)
    except OSError:
        return None
    silences = [
        float(field[5:])
        for line in listing.splitlines()
        if b" cmd=client|list " not in line
        for field in line.split()
        if field.startswith(b"idle=")
    ]
    return min(silences, default=None)


def _read_bulk(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        header = stream.readline()
        return stream.read(int(header[1:])) if header.startswith(b"$") else b""


def _reopen(descriptor: int, path: str) -> int:
    os.close(descriptor)
    return open_lock_file(path)


def _remove_tree(directory: str) -> None:
    import shutil  # noqa: PLC0415 - needed once at the very end, and slow to import

    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
