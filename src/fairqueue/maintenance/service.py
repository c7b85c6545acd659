"""Runs the duties on their intervals: in every worker, or by ``fairqueue maintain`` without one."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable

from fairqueue._engine.engine import Engine
from fairqueue.errors import FairQueueError

from .doubt import Doubt
from .promoter import promote
from .reclaimer import reclaim
from .reconciler import reconcile

_log = logging.getLogger("fairqueue")
_PROMOTE_MS = 5_000  # claims promote on their way; this is for pools nobody claims from at the moment
_LATE = 1.0  # a sleep that took this much longer, or a pass that took this long: this process was frozen or starved


class Maintenance:
    """The loops of promote, reclaim and reconcile. Started and stopped any number of times, in any order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._owner = secrets.token_hex(8)
        self._tasks: list[asyncio.Task[None]] = []
        self._extend_interval = engine.options.visibility_ms / 1000 / 2  # twice the time between two extends
        self._doubt = Doubt(self._extend_interval)
        self._overbooked: dict[tuple[str, str], str] = {}  # of which it was told

    async def start(self) -> None:
        """Starts the loops whose interval is not 0; a second start does nothing."""
        if self._tasks:
            return
        options = self._engine.options
        duties: list[tuple[str, int, Callable[[], Awaitable[object]]]] = [
            ("promote", _PROMOTE_MS, lambda: promote(self._engine)),
            ("reclaim", options.reclaim_ms, self._reclaim),
            ("reconcile", options.reconcile_ms, self._reconcile),
        ]
        self._tasks = [
            asyncio.ensure_future(self._loop(name, interval / 1000, duty))
            for name, interval, duty in duties
            if interval > 0
        ]

    async def stop(self) -> None:
        """Ends them; a pass under way is cut between two of its steps. A second stop does nothing."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # a cancellation of the caller is not theirs

    async def _loop(self, name: str, interval: float, duty: Callable[[], Awaitable[object]]) -> None:
        pause = random.uniform(0, interval)  # a fleet started at once does not maintain at once
        while True:
            began = time.monotonic()
            await asyncio.sleep(pause)
            self._note_freeze(name, began + pause)
            began = time.monotonic()
            try:
                await duty()
            except FairQueueError as error:
                _log.warning("%s failed, trying again in %g s: %s", name, interval, error)
            except Exception:  # noqa: BLE001 - a duty that stopped for good would let leases expire unseen
                _log.exception("%s failed, trying again in %g s", name, interval)
            self._note_freeze(name, began)
            pause = interval
            if name == "reclaim" and self._doubt.left:
                pause = min(interval, self._doubt.left)

    def _note_freeze(self, name: str, due: float) -> None:
        """Frozen in a sleep or in the middle of a pass: then the leases of this process were not extended either."""
        if name == "reclaim" and time.monotonic() - due > _LATE:
            self._doubt.trouble()

    async def _reclaim(self) -> None:
        """After an outage leases look expired although their handlers run: they get one extend interval to say so."""
        await self._look()
        if self._doubt.left:
            return
        # A server that has just started was away, whether this client noticed or not. A test's clock knows no outages.
        hold_ms = 0 if self._engine.options.clock.now_ms() else int(self._extend_interval * 1000)
        report = await reclaim(self._engine, patience=0, hold_ms=hold_ms)
        self._doubt.judged()
        for tenant, id_ in report.reclaimed:
            _log.warning(
                "the lease of message %r of tenant %r expired: it is ready again",
                id_,
                tenant,
                extra={"tenant": tenant, "message_id": id_},
            )
        for tenant, id_ in report.dead:
            _log.error(
                "message %r of tenant %r is a dead letter now: its workers were lost too often",
                id_,
                tenant,
                extra={"tenant": tenant, "message_id": id_},
            )

    async def _look(self) -> None:
        """Notes what trouble there was. The first answer after an outage must not be that of a judgement."""
        await self._engine.connect()
        connection = self._engine.connection
        if connection.away:
            try:
                await connection.command("PING", patience=0)
            except FairQueueError:
                self._doubt.outage()
                raise
        if connection.lost_at is not None:
            self._doubt.trouble(connection.lost_at)

    async def _reconcile(self) -> None:
        """One client of the namespace at a time, once an interval: the lock is not given back, it expires."""
        ttl = max(1000, int(self._engine.options.reconcile_ms * 0.9))
        if not await self._engine.run(self._engine.calls.lock("reconcile", self._owner, ttl)):
            return
        report = await reconcile(self._engine)
        if report.freed or report.restored or report.rebuilt:
            _log.warning(
                "reconcile: %d leaked slots freed, %d slots or deadlines given back, %d groups rebuilt",
                len(report.freed),
                len(report.restored),
                len(report.rebuilt),
            )
        for (limit, id_), why in report.overbooked.items() - self._overbooked.items():
            _log.warning("%s %s: %s", limit, id_, why, extra={"limit": limit, "group": id_})
        self._overbooked = report.overbooked
