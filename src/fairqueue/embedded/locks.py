"""File locks that end with their process, however it ends, and do not leak into its forks."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from fairqueue.embedded.watcher import is_current, open_lock_file, try_lock

__all__ = ["FileLock", "is_locked"]


class FileLock:
    """A lock on one file, among processes and among objects of one process.

    A flock belongs to the open file, and a fork shares the open files of its parent: unattended, a forked child
    that never heard of us would hold the lock for as long as it lives. So a fork closes its copies, and giving
    back unlocks before it closes, which works even if a copy got away.

    >>> lock = FileLock(Path("data/clients.lock"))
    >>> lock.take(exclusive=False)
    True
    >>> lock.release()
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, *, exclusive: bool) -> bool:
        """Take the lock if that is possible right now; made if missing, OSError if the file cannot be opened."""
        self._open()
        assert self._descriptor is not None  # noqa: S101 - _open has just set it
        try:
            taken = try_lock(self._descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        except BaseException:
            self.release()
            raise
        # Whoever tidies up may delete the file between our open and our lock: then we hold a lock on nothing.
        if taken and is_current(self._descriptor, str(self._path)):
            return True
        self.release()
        return False

    @property
    def held(self) -> bool:
        """Whether we hold the lock, and on the file that is there now."""
        return self._descriptor is not None and is_current(self._descriptor, str(self._path))

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        with _forks.mutex:
            descriptor, self._descriptor = self._descriptor, None
            _forks.opened.discard(self)
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _open(self) -> None:
        self.release()
        # One step for a fork in another thread: a descriptor it copies is always one it will close.
        with _forks.mutex:
            self._descriptor = open_lock_file(str(self._path))
            _forks.opened.add(self)

    def _forget(self) -> None:
        """Close a fork's copy; never unlock it, that would take the lock from the parent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class _Forks:
    """The locks open in this process, and what a fork does about them."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.opened: set[FileLock] = set()
        os.register_at_fork(
            before=lambda: self.mutex.acquire(),  # noqa: PLW0108 - the mutex of that moment, not of now
            after_in_parent=lambda: self.mutex.release(),  # noqa: PLW0108
            after_in_child=self._in_child,
        )

    def _in_child(self) -> None:
        opened, self.opened = self.opened, set()
        self.mutex = threading.RLock()
        for lock in opened:
            lock._forget()  # noqa: SLF001 - the two are one mechanism


_forks = _Forks()


def is_locked(path: Path) -> bool:
    """Whether a process holds the file exclusively; OSError if it cannot be opened.

    Looks with a shared lock, so that those who look at the same moment do not take each other for the holder.
    """
    lock = FileLock(path)
    if not lock.take(exclusive=False):
        return True
    lock.release()
    return False
