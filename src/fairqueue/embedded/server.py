"""One process's claim on an embedded server: start, ensure, close."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from datetime import timedelta
from pathlib import Path

from fairqueue.embedded.directory import DataDirectory, explained
from fairqueue.embedded.locks import FileLock
from fairqueue.embedded.sockets import find_socket, url_of
from fairqueue.embedded.starter import await_answer, bring_up, end_private, is_served, wait_for
from fairqueue.errors import QueueUnavailableError

__all__ = ["DEFAULT_IDLE", "EmbeddedServer", "start", "start_sync"]

DEFAULT_IDLE = timedelta(seconds=10)
"""How long a server outlives its last client; the watcher looks once a second, so at most 11 s in all."""


async def start(path: Path | None, *, idle: timedelta = DEFAULT_IDLE) -> EmbeddedServer:
    """Do what `start_sync` does, in a thread: the event loop goes on."""
    return await asyncio.to_thread(start_sync, path, idle=idle)


def start_sync(path: Path | None, *, idle: timedelta = DEFAULT_IDLE) -> EmbeddedServer:
    """Return a claim on the server of that data directory, started if it does not run.

    Every process that gives the same path shares one server and one set of data; `None` makes a private,
    temporary server, which ends with the claim and leaves nothing. About 0.1 s for a start, a millisecond for
    a server that runs.

    Args:
        path: the data directory, made if missing, readable by its owner alone; a relative one is made absolute.
        idle: how long the server outlives its last client; that of the process which starts it counts.

    Raises:
        ConfigurationError: the path is a file, this user has no right on it, its data were written by a newer
            server, or there is no server for this machine.
        QueueUnavailableError: the server did not start; the text has the end of its log.

    >>> server = start_sync(Path(".fairqueue"))
    >>> server.url
    'unix:///srv/shop/.fairqueue/server.sock'
    >>> server.close()
    """
    server = EmbeddedServer(DataDirectory.at(path), idle)
    try:
        server.ensure()
        await_answer(server.directory)
    except BaseException:
        server.close()
        raise
    return server


class EmbeddedServer:
    """A claim on a server: as long as any process has one, the server is not ended. Made by `start`.

    Safe to use from several threads. A process that ends in whatever way, `kill -9` included, loses its claims.
    A fork has none until it calls `ensure`; closing in a fork does not touch the parent's.
    """

    def __init__(self, directory: DataDirectory, idle: timedelta) -> None:
        self.directory = directory
        self.url = ""
        self._idle = idle.total_seconds()
        self._claim = FileLock(directory.clients_lock)
        self._closed = False
        self._mutex = threading.Lock()
        self._drop = weakref.finalize(self, _drop_claim, directory, self._claim, os.getpid())
        _living.add(self)

    @property
    def path(self) -> Path:
        """The data directory, absolute."""
        return self.directory.path

    def ensure(self) -> str:
        """See that the server runs and return its URL, which may have changed.

        For a client that has lost its connection. Well under a millisecond when the server is fine. If it is
        gone, one of the processes that ask starts it again, in about 0.2 s and as long as its data take to load,
        at most 15 s: an event loop should call this in a thread.

        Raises:
            ConfigurationError: as `start_sync`.
            QueueUnavailableError: it did not start, or this claim was closed.
        """
        with self._mutex:
            if self._closed:
                raise QueueUnavailableError(f"this claim on the embedded server in {self.path} was closed")
            with explained(self.path):
                self._attach()
            return self.url

    def close(self) -> None:
        """Drop this claim: a shared server ends some seconds after its last client, a private one now.

        Done by itself when the object goes or the interpreter ends; a second call does nothing.
        """
        with self._mutex:
            self._closed = True
            self._drop()

    def _attach(self) -> None:
        try:
            self._hold_claim()
            if not is_served(self.directory):
                bring_up(self.directory, self._idle)
                await_answer(self.directory)
            self._note_url()
        except FileNotFoundError as error:
            raise QueueUnavailableError(
                f"{error.filename} was removed while a server started there"
            ) from error

    def _hold_claim(self) -> None:
        """Claim the server, before looking whether it runs: from here on nobody ends it for want of clients."""
        if self._claim.held:
            return
        self.directory.prepare()
        wait_for(
            lambda: self._claim.take(exclusive=False),
            lambda: f"expected the embedded server in {self.path}, which nobody used, to have ended",
        )

    def _note_url(self) -> None:
        path = find_socket(self.directory)
        if path is None:
            raise QueueUnavailableError(f"the socket of the embedded server in {self.path} has gone again")
        self.url = url_of(path)

    def _after_fork(self) -> None:
        """Another thread of the parent may have held the mutex; it does not exist here."""
        self._mutex = threading.Lock()


def _drop_claim(directory: DataDirectory, claim: FileLock, owner: int) -> None:
    claim.release()
    if directory.private and os.getpid() == owner:
        end_private(directory)


_living: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for server in list(_living):
        server._after_fork()  # noqa: SLF001 - the hook is a part of the class


os.register_at_fork(after_in_child=_after_fork_in_child)
