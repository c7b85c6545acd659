"""The server's socket: where it is, whether it accepts, whether the server behind it answers."""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from fairqueue.embedded.directory import DataDirectory, write_whole
from fairqueue.errors import QueueUnavailableError

__all__ = ["accepts", "answers", "choose_socket", "find_socket", "server_process", "url_of"]

LONGEST_PATH = 103 if sys.platform == "darwin" else 107
"""Bytes of a unix socket's path: a limit of the kernel's address structure."""

PROBE_TIMEOUT = 1.0
BUSY_AFTER = 0.005

_NAME = "server.sock"


def find_socket(directory: DataDirectory) -> Path | None:
    """Return the path of the directory's socket, whether or not anyone listens; None if there is no place yet."""
    natural = directory.path / _NAME
    if _fits(natural):
        return natural
    try:
        named = os.fsdecode(directory.socket_pointer.read_bytes()).strip()
    except FileNotFoundError:
        return None
    short = Path(named)
    return short / _NAME if named and _is_private(short, directory) else None


def choose_socket(directory: DataDirectory) -> Path:
    """Return the path of the directory's socket, and make a place for it if its own path is too long.

    Only for who holds the start lock.
    """
    found = find_socket(directory)
    if found is not None:
        return found
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - mkdtemp makes a private one there
        short = _make_short_directory(Path(parent))
        if short is not None:
            write_whole(directory.socket_pointer, os.fsencode(short))
            return short / _NAME
    raise QueueUnavailableError(
        f"expected a directory for temporary files whose path is short enough for a socket, got "
        f"{tempfile.gettempdir()} (the path {directory.path} is too long itself)"
    )


def _make_short_directory(parent: Path) -> Path | None:
    if not _fits(parent / "fairqueue-12345678" / _NAME):
        return None
    try:
        return Path(tempfile.mkdtemp(prefix="fairqueue-", dir=parent))
    except OSError:
        return None


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= LONGEST_PATH


def _is_private(short: Path, directory: DataDirectory) -> bool:
    """Whether a short directory is ours: in a place where all may write, somebody else may have made it again."""
    try:
        found = short.lstat()
        owners = {os.geteuid(), directory.path.stat().st_uid}
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid in owners and not stat.S_IMODE(found.st_mode) & 0o077


def url_of(path: Path) -> str:
    """Return the URL of a socket; characters with a meaning in URLs are percent-encoded.

    >>> url_of(Path("/srv/a b/server.sock"))
    'unix:///srv/a%20b/server.sock'
    """
    return f"unix://{quote(os.fsencode(path))}"


def accepts(path: Path | None) -> bool:
    """Whether a process listens on the socket and is not about to end; in milliseconds, even if it is busy."""
    if path is None:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
            # A killed server accepts for some moments more and then resets: who has just lost it may come that early.
            probe.settimeout(BUSY_AFTER)
            probe.sendall(b"PING\r\n")
            return bool(probe.recv(1))
        except (
            BlockingIOError,
            TimeoutError,
        ):  # its queue of connections is full, or it has no time: it is there
            return True
        except OSError:
            return False


def answers(path: Path) -> bool:
    """Whether the server serves commands: False while it loads its data, is away or does not answer in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT)
        try:
            probe.connect(str(path))
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def server_process(connection: socket.socket) -> int | None:
    """Return the process number of who listens at the other end, in our own numbering; None if it has none here."""
    if sys.platform == "darwin":
        local_peer_process = 2
        return connection.getsockopt(0, local_peer_process) or None
    size = struct.calcsize("3i")
    number: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
    return number or None
