"""Ending and extending deliveries. A settle may be sent again as it was: it is answered as the first time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from fairqueue._engine.calls import ANY_REVISION, Call, SettleRow, Stream
from fairqueue._engine.engine import Engine
from fairqueue.clock import from_ms
from fairqueue.errors import FairQueueError, QueueUnavailableError, SettingsChangedError
from fairqueue.lease import Desk, Lease, held
from fairqueue.outcomes import Outcome
from fairqueue.settlement import Settlement

__all__ = ["Batch", "Request", "Settler", "answer", "extend_each", "settle_each"]

CHUNK = 500
Request = tuple[Lease[Any], Settlement]


@dataclass(slots=True)
class Batch:
    """One settle call, until it is answered."""

    stream: Stream
    items: list[Request]
    by_policy: list[Request]
    """Those of its fails whose wait is the retry policy's."""
    revision: str = ANY_REVISION
    """Of the settings that policy is from."""
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    answered: bool = False


class Settler:
    """Sends settles and extends, and notes at each lease what came of it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[int, Batch] = {}  # id(lease) -> the settle call it is in, until that is answered

    async def settle(self, requests: Sequence[Request]) -> list[Outcome]:
        """Ends deliveries, in as few calls as their number allows."""
        for batch in self.batches(requests):
            await self.send(batch)
        return [answer(*request) for request in requests]

    async def extend(self, leases: Sequence[Lease[Any]]) -> list[Outcome]:
        """Extends all to their full visibility timeout; one that is lost, or whose message is cancelled, is marked."""
        for (visibility_ms, consumer), group in _by_timeout(leases).items():
            named = [(lease.message.tenant, lease.message.id, lease.token) for lease in group]
            asked_at = time.monotonic()
            extended = await self._engine.run(self._engine.calls.extend(named, visibility_ms, consumer))
            for lease, (deadline, cancelled) in zip(group, extended, strict=True):
                if deadline is None:
                    lease.lost.set()
                    continue
                lease.deadline = from_ms(deadline)
                held(lease).renewed(asked_at)
                if cancelled:
                    lease.cancelled.set()
        return ["lost" if lease.lost.is_set() else "extended" for lease in leases]

    def batches(self, requests: Sequence[Request]) -> list[Batch]:
        """The calls to send: those still open for leases that were settled before, then one for what is new."""
        batches = {id(b): b for lease, _ in requests if (b := self._open.get(id(lease)))}
        fresh = []
        for lease, asked in requests:
            if held(lease).settlement is None:
                held(lease).settlement = asked
                fresh.append((lease, asked))
        for start in range(0, len(fresh), CHUNK):
            batch = self._batch(fresh[start : start + CHUNK])
            batches[id(batch)] = batch
            self._open.update((id(lease), batch) for lease, _ in batch.items)
        return list(batches.values())

    def _batch(self, items: list[Request]) -> Batch:
        by_policy = [(lease, asked) for lease, asked in items if asked.delay_ms is None]
        for lease, asked in items:
            asked.seconds = held(lease).seconds
        batch = Batch(self._engine.settle_streams.take(), items, by_policy)
        if by_policy:
            batch.revision = self._set_waits(batch)
        return batch

    def _set_waits(self, batch: Batch) -> str:
        """By the retry policy that this client knows; returns the revision of the settings it is from."""
        for lease, asked in batch.by_policy:
            asked.delay_ms = self._engine.retry.delay_ms(lease.message.attempt, asked.error)
        return self._engine.settings.revision

    async def send(self, batch: Batch) -> None:
        """One call, unless somebody who settled the same lease at the same time has sent it."""
        await self._engine.connect()
        async with batch.sending:
            if batch.answered:
                return
            (answered,) = await self._engine.connection.run_all([self.call(batch)])
            await self.received(batch, answered)

    async def received(self, batch: Batch, answered: list[str] | Exception) -> None:
        """Notes what the server said. Waits by a policy that is no longer in force are set anew and sent again, once.

        That second time by whatever policy: no end of a delivery hangs on settings that do not come to rest.
        """
        if isinstance(answered, SettingsChangedError):
            await self._learn()
            self._set_waits(batch)
            batch.revision = ANY_REVISION
            (answered,) = await self._engine.connection.run_all([self.call(batch)])
        self.note(batch, answered)

    async def _learn(self) -> None:
        try:
            await self._engine.agreement.learn()
        except QueueUnavailableError:
            raise
        except FairQueueError:
            pass  # unreadable, say: the waits stay as they are; another schema refuses the settle itself

    def call(self, batch: Batch) -> Call[list[str]]:
        """The call of a batch, the same each time."""
        rows = [
            SettleRow(
                lease.message.tenant,
                lease.message.id,
                lease.token,
                asked.action,
                asked.delay_ms or 0,
                asked.reason,
                asked.text,
                held(lease).begun,
                asked.seconds,
            )
            for lease, asked in batch.items
        ]
        ttl_ms = 2 * max(held(lease).visibility_ms for lease, _ in batch.items) + 60_000
        return self._engine.calls.settle(batch.stream, rows, ttl_ms, batch.revision)

    def note(self, batch: Batch, answered: list[str] | Exception) -> None:
        """What the server said: outcomes, or that it refused the call as a whole, which is raised."""
        batch.answered = True
        self._engine.settle_streams.answered(batch.stream)
        for lease, asked in batch.items:
            self._open.pop(id(lease), None)
            asked.error = None  # else the traceback, with all it refers to, would live as long as the lease
        if isinstance(answered, Exception):
            for lease, _ in batch.items:
                held(lease).settlement = None  # it may be asked again
            raise answered
        for (lease, asked), outcome in zip(batch.items, answered, strict=True):
            asked.outcome = cast("Outcome", outcome)
            if outcome == "lost":
                lease.lost.set()
            elif outcome == "cancelled":
                lease.cancelled.set()

    def forget(self) -> object:
        """After a fork: the calls under way are the parent's. Returns what must live on untouched."""
        inherited, self._open = self._open, {}
        return inherited


async def settle_each(requests: Sequence[Request]) -> list[Outcome]:
    """Each by the queue that gave it. Another one would be told that it is lost, and it would be given up where it lives."""
    for desk in _by_desk([lease for lease, _ in requests]):
        await desk.settle([request for request in requests if held(request[0]).desk is desk])
    return [answer(*request) for request in requests]


async def extend_each(leases: Sequence[Lease[Any]]) -> list[Outcome]:
    """Each to its full visibility timeout, by the queue that gave it."""
    for desk, own in _by_desk(leases).items():
        await desk.extend(own)
    return ["lost" if lease.lost.is_set() else "extended" for lease in leases]


def _by_desk(leases: Sequence[Lease[Any]]) -> dict[Desk, list[Lease[Any]]]:
    by_desk: dict[Desk, list[Lease[Any]]] = {}
    for lease in leases:
        by_desk.setdefault(held(lease).desk, []).append(lease)
    return by_desk


def answer(lease: Lease[Any], asked: Settlement) -> Outcome:
    """The outcome for who asked this of the lease; "lost" where it ended otherwise."""
    made = held(lease).settlement
    if made is None or made.outcome is None or made.action != asked.action:
        return "lost"
    return made.outcome


def _by_timeout(leases: Sequence[Lease[Any]]) -> dict[tuple[int, str], list[Lease[Any]]]:
    groups: dict[tuple[int, str], list[Lease[Any]]] = {}
    for lease in leases:
        groups.setdefault((held(lease).visibility_ms, held(lease).consumer), []).append(lease)
    return groups
