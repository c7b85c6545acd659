"""The embedded server: a real Valkey on a unix socket in a directory, shared by every process that uses the path.

=================  ==========================================================================================
server.py          EmbeddedServer: one process's claim on a server; start, ensure, close
starter.py         brings a server up, or replaces one that is broken; one process at a time does it
watcher.py         the detached parent of a server: ends it when nobody uses it any more
directory.py       the data directory: what its files are, who may use it
sockets.py         where the socket is, whether it accepts, whether the server behind it answers
locks.py           file locks that end with their process and do not leak into forks
binary.py          the server program, its version, and whether that version may read the data
=================  ==========================================================================================
"""

from __future__ import annotations

from fairqueue.embedded.server import EmbeddedServer, start, start_sync

__all__ = ["EmbeddedServer", "start", "start_sync"]
