"""Extends the leases of running handlers from a thread of its own, with its own event loop and connection.

A handler that blocks the event loop, or holds the GIL for a while, keeps its message. Each extend goes to the full
visibility timeout. One is due every quarter of it: two in a row may be lost and the third still comes before the
deadline (every third of it, it would come just after).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from fairqueue._engine.calls import Extended
from fairqueue._engine.connection import Connection
from fairqueue._engine.engine import Engine
from fairqueue.clock import from_ms
from fairqueue.errors import FairQueueError
from fairqueue.lease import EXTENDS_PER_TIMEOUT, Lease, held

_log = logging.getLogger("fairqueue")

_SHORTEST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # seconds for an answer, whatever the visibility timeout
_CHUNK = 500


class LeaseKeeper:
    """Keeps leases alive from ``start()`` to ``stop()``.

    Args:
        engine: the worker's; its settings, clock and server are used, not its connection.
        visibility_ms: the visibility timeout of the leases it will be given.
    """

    def __init__(self, engine: Engine, visibility_ms: int) -> None:
        self._engine = engine
        self._visibility_ms = visibility_ms
        self._kept: dict[int, tuple[Lease[Any], Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._tick: Callable[[], object] = lambda: None

    @property
    def interval(self) -> float:
        """Seconds between two extends."""
        return self._visibility_ms / 1000 / EXTENDS_PER_TIMEOUT

    @property
    def _answer_time(self) -> float:
        """A connection that carries nothing any more is left while there is still time to use another one."""
        return min(_LONGEST_WAIT, max(_SHORTEST_WAIT, self.interval / 2))

    def start(self) -> None:
        """Starts the thread; a second start does nothing."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="fairqueue-leases", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread and lets all leases go. A second stop, or one before the start, does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            self._tick()
            thread.join(timeout=5)
        with self._lock:
            self._kept.clear()

    def keep(self, lease: Lease[Any], over: Callable[[], None]) -> None:
        """Extends the lease until ``drop``.

        ``over`` is called, in the keeper's thread, when it is no longer ours, and when its message is cancelled.
        """
        with self._lock:
            self._kept[id(lease)] = (lease, over)

    def drop(self, lease: Lease[Any]) -> None:
        """The lease is settled (or lost): no more extends."""
        with self._lock:
            self._kept.pop(id(lease), None)

    def _run(self) -> None:
        asyncio.run(self._keep_all())

    async def _keep_all(self) -> None:
        wake, loop = asyncio.Event(), asyncio.get_running_loop()
        self._tick = lambda: loop.call_soon_threadsafe(wake.set)
        connection = Connection(
            self._locate,
            self._engine.calls.root,
            _nothing,
            patience=self.interval,
            answer_time=self._answer_time,
            tells=False,
        )
        try:
            while not self._stop.is_set():
                try:
                    await asyncio.wait_for(wake.wait(), self.interval)
                except TimeoutError:
                    await self._try_to_extend_all(connection)
        finally:
            self._tick = lambda: None
            await connection.close(wait=0.5)

    async def _locate(self) -> str:
        return (
            self._engine.located()
        )  # may block, in a thread that does nothing else; a further one may not be had

    async def _try_to_extend_all(self, connection: Connection) -> None:
        """Whatever goes wrong: a keeper that stopped for good would let every lease expire, and nobody would see it."""
        try:
            await self._extend_all(connection)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("leases could not be extended, trying again")

    async def _extend_all(self, connection: Connection) -> None:
        with self._lock:
            kept = [(lease, over) for lease, over in self._kept.values() if not held(lease).settled]
        for start in range(0, len(kept), _CHUNK):
            chunk = kept[start : start + _CHUNK]
            named = [(lease.message.tenant, lease.message.id, lease.token) for lease, _ in chunk]
            call = self._engine.calls.extend(named, self._visibility_ms, held(chunk[0][0]).consumer)
            asked_at = time.monotonic()
            try:
                extended = await connection.run(call)
            except FairQueueError as error:
                _log.warning("leases could not be extended, trying again: %s", error)
                continue
            for (lease, over), found in zip(chunk, extended, strict=True):
                self._note(lease, over, found, asked_at)

    def _note(self, lease: Lease[Any], over: Callable[[], None], found: Extended, asked_at: float) -> None:
        if found.deadline is not None:
            lease.deadline = from_ms(found.deadline)
            held(lease).renewed(asked_at)
            if found.cancelled and not lease.cancelled.is_set():
                lease.cancelled.set()
                over()
            return
        with self._lock:
            if self._kept.pop(id(lease), None) is None or held(lease).settlement is not None:
                return  # settled while the extend was under way: not lost
        lease.lost.set()
        over()


async def _nothing() -> None:
    """The keeper never writes settings: a server that lost them gets them from the worker."""
