"""The data directory of an embedded server: what its files are, and who may use it.

====================  =======================================================================================
``appendonlydir/``    the data, the server's own
``server.sock``       the server's socket, unless the path is too long for one
``socket-directory``  then: the path of the private short directory that has the socket
``server-version``    the newest server that wrote the data
``server.log``        what the server and its watcher say
``start.lock``        held by the one process that is bringing the server up
``clients.lock``      held, shared, by every process that uses the server
``watcher.lock``      held by the watcher; contains its process number
====================  =======================================================================================
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairqueue.embedded import watcher
from fairqueue.errors import ConfigurationError, QueueUnavailableError

__all__ = ["DataDirectory", "explained", "write_whole"]

LONGEST_LOG = 10 * 1024 * 1024
LONGEST_TAIL = 4096

_FAULTS_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM}
_OURS = {
    "appendonlydir",
    "server.sock",
    "server-version",
    "server-version.new",
    watcher.SOCKET_POINTER,
    f"{watcher.SOCKET_POINTER}.new",
    watcher.LOG,
    watcher.START_LOCK,
    watcher.CLIENTS_LOCK,
    watcher.WATCHER_LOCK,
}


@dataclass(frozen=True)
class DataDirectory:
    """An absolute path, and whether it is one object's private, temporary one."""

    path: Path
    private: bool

    @classmethod
    def at(cls, path: Path | None) -> DataDirectory:
        """Return the directory of that path, made if missing; None: a new private one.

        Raises:
            ConfigurationError: it is no directory, or this user has no right on it.
            QueueUnavailableError: the machine cannot make it now: no space left, say.
        """
        if path is None:
            with explained(Path(tempfile.gettempdir())):
                return cls(Path(tempfile.mkdtemp(prefix="fairqueue-")).resolve(), private=True)
        with explained(path):
            directory = cls(path.resolve(), private=False)
        directory.prepare()
        return directory

    def prepare(self) -> None:
        """Make the directory if it is missing and see that others stay out; errors as in `at`."""
        with explained(self.path):
            if self.private:
                if not self.path.is_dir():
                    raise QueueUnavailableError(
                        f"the private embedded server in {self.path} was ended for good"
                    )
                return
            if self.path.exists() and not self.path.is_dir():
                raise ConfigurationError(
                    f"expected the embedded path to be a directory, got the file {self.path}"
                )
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._keep_others_out()
            for lock in (self.start_lock, self.clients_lock, self.watcher_lock):
                os.close(watcher.open_lock_file(str(lock)))

    def _keep_others_out(self) -> None:
        """Close a directory that is ours alone; refuse one where others could swap our socket for theirs."""
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if not mode & 0o077:
            return
        if all(entry.name in _OURS for entry in self.path.iterdir()):
            self.path.chmod(0o700)
        elif mode & 0o022:
            raise ConfigurationError(
                f"expected the embedded path to be a directory that only its owner can write, "
                f"got {self.path} with mode {mode:04o} and other files in it"
            )

    @property
    def start_lock(self) -> Path:
        """Held by the one process that is bringing the server up."""
        return self.path / watcher.START_LOCK

    @property
    def clients_lock(self) -> Path:
        """Held, shared, by every process that uses the server."""
        return self.path / watcher.CLIENTS_LOCK

    @property
    def watcher_lock(self) -> Path:
        """Held by the watcher as long as it lives."""
        return self.path / watcher.WATCHER_LOCK

    @property
    def socket_pointer(self) -> Path:
        """Names the directory of the socket if this one's path is too long."""
        return self.path / watcher.SOCKET_POINTER

    @property
    def version_file(self) -> Path:
        """Names the newest server that wrote the data."""
        return self.path / "server-version"

    @property
    def log(self) -> Path:
        """What the server and its watcher say."""
        return self.path / watcher.LOG

    def bound_log(self) -> int:
        """Empty a log that has grown too long, and return the length it has now."""
        if not self.log.exists():
            return 0
        if self.log.stat().st_size > LONGEST_LOG:
            os.truncate(self.log, 0)
        return self.log.stat().st_size

    def log_since(self, start: int) -> str:
        """Return the end of what was logged after byte `start`."""
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(start, size - LONGEST_TAIL))
                return log.read().decode(errors="replace").strip()
        except OSError as error:
            return f"(cannot be read: {error})"

    def watcher_process(self) -> int | None:
        """Return the process number of the watcher that holds the lock, if it is one of our own process space."""
        number, _, namespace = self.watcher_lock.read_text().strip().partition(" ")
        return int(number) if number.isdigit() and namespace == watcher.process_namespace() else None


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the operating system says of a path into our errors, which name it."""
    try:
        yield
    except (ConfigurationError, QueueUnavailableError):
        raise
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # a zero byte is a ValueError, a loop of links the last
        reason = getattr(error, "strerror", None) or str(error)
        where = getattr(error, "filename", None) or path
        if getattr(error, "errno", None) in _FAULTS_OF_THE_MACHINE:
            raise QueueUnavailableError(f"cannot use the embedded path {path}: {reason}: {where}") from error
        raise ConfigurationError(
            f"expected the embedded path to be a directory this user can write, got {path} ({reason}: {where})"
        ) from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that a reader, and a crash, finds all of it or what was there before."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(mode=0o600)
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
