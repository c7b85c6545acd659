"""The socket that a worker process shares with its supervisor.

The child says on it when it is ready, and drains when it closes: a supervisor that was killed leaves no orphans behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time

from fairqueue.exits import FAILED, leave

__all__ = ["Lifeline"]


class Lifeline:
    """A child's end of the socket that it shares with its supervisor.

    Args:
        descriptor: the number the supervisor passed on.
        patience: seconds after the supervisor's end in which this process has to end too, come what may.
    """

    def __init__(self, descriptor: int, patience: float) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._patience = patience
        self.stopping = threading.Event()
        threading.Thread(target=self._watch, name="fairqueue-lifeline", daemon=True).start()

    def say_ready(self) -> None:
        """Tells the supervisor that messages are being handled."""
        with contextlib.suppress(OSError):  # it has gone: the watcher sees that too
            self._socket.send(b"r")

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while self._socket.recv(1):
                pass
        if not self.stopping.is_set():  # a second signal would cut the grace short
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self._patience)
        # A handler that blocks the event loop for ever hears no signal, and its lease would be extended for ever.
        leave(FAILED)
