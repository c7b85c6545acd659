"""One client of a server: the engine, and whether its queue is open."""

from __future__ import annotations

from fairqueue._engine.engine import Engine
from fairqueue.config import Options
from fairqueue.errors import QueueClosedError


class Client(Engine):
    """Connects on first use, like every engine; but one that was closed stays closed until it is opened.

    Connecting again by itself would hide a mistake: what was forgotten in a task would keep connections open that
    nobody closes, and a private embedded server would be another, empty one.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._closed = False

    async def open(self) -> None:
        """Connects, also after ``close()``."""
        self._closed = False
        await self.connect()

    async def connect(self) -> None:
        """Connects on first use.

        Raises:
            QueueClosedError: it was closed. Else what ``Engine.connect`` raises.
        """
        if self._closed:
            raise QueueClosedError("the queue is closed: connect() it, or enter it again, to use it further")
        await super().connect()

    async def close(self) -> None:
        """From now on nothing connects; what is under way ends."""
        self._closed = True
        await super().close()
