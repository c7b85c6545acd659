"""Claiming: the calls of one claim, until they have brought something or there is nothing.

A call that was not answered is repeated, by the next claim too: the server recognises it and answers as the first time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Generic, cast

from fairqueue._engine.calls import Call
from fairqueue._engine.engine import Engine
from fairqueue._engine.replies import Claimed
from fairqueue.config import SHORTEST_VISIBILITY_MS
from fairqueue.errors import FairQueueError
from fairqueue.generics import P
from fairqueue.handover import HandOver
from fairqueue.lease import Desk, Lease
from fairqueue.maintenance.reconciler import repair_groups
from fairqueue.settling import Batch, Settler
from fairqueue.tasks import Tasks
from fairqueue.validation import duration_ms, expected, identifier, integer

__all__ = ["MAX_CLAIM", "ClaimOptions", "Claimer", "claim_options"]

MAX_CLAIM: Final = 1000
_MAX_ROUNDS = 10_000  # of a claim that is told to look again: each round parks up to 200 lanes for good


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """How a claim is made: at most ``n`` from ``pools`` in the order given."""

    n: int
    pools: tuple[str, ...]
    consumer: str
    visibility_ms: int
    by_time: bool = False
    """Tenants are charged for the time their messages take."""

    def of(self, n: int) -> ClaimOptions:
        """The same for another number."""
        return replace(self, n=n)


def claim_options(
    engine: Engine,
    n: int,
    consumer: str | None,
    pools: Sequence[str],
    visibility_timeout: timedelta | float | None = None,
) -> ClaimOptions:
    """The checked arguments of a claim; None is what the queue was made with.

    Raises:
        ConfigurationError: a wrong argument.
    """
    if isinstance(pools, str) or not pools:
        raise expected("pools", "a list of at least one pool", pools)
    return ClaimOptions(
        n=integer("n", n, 1, MAX_CLAIM),
        pools=tuple(dict.fromkeys(identifier("pools", pool) for pool in pools)),
        consumer=engine.consumer_default if consumer is None else identifier("consumer", consumer),
        visibility_ms=engine.options.visibility_ms
        if visibility_timeout is None
        else duration_ms("visibility_timeout", visibility_timeout, minimum_ms=SHORTEST_VISIBILITY_MS),
    )


class Claimer(Generic[P]):
    """Sends claims and hands over what they bring.

    Args:
        engine: the client's.
        tasks: where repairs go on that a claim with leases does not wait for.
        settler: whose batches travel with a claim in one round trip.
        desk: where the leases are extended and settled.
    """

    def __init__(self, engine: Engine, tasks: Tasks, settler: Settler, desk: Desk) -> None:
        self._engine, self._tasks, self._settler = engine, tasks, settler
        self._hand_over: HandOver[P] = HandOver(engine, tasks, settler, desk)
        self._mending: set[str] = set()  # groups under repair beside the claims that found them
        self.unanswered: ClaimOptions | None = None
        """Of the last claim that was not answered: what it may have taken is given back at the end."""
        self.next_due_ms: int | None = None
        """How long after the last answer the next delayed message is due."""

    async def claim(self, options: ClaimOptions, batch: Batch | None) -> list[Lease[P]]:
        """One look at the pools; ``batch`` is settled in the same round trip as the first call."""
        mended: set[str] = set()
        leases: list[Lease[P]] = []
        for _ in range(_MAX_ROUNDS):
            try:
                claimed, came = await self._round(options.of(options.n - len(leases)), batch)
            except FairQueueError:
                if not leases:
                    raise
                break  # what came before the trouble is handed over
            batch = None
            leases += came
            dirty = set(claimed.dirty) - mended
            if leases:
                self._mend_aside(dirty)
            elif dirty:
                mended |= dirty
                await repair_groups(self._engine, dirty)
            elif not (claimed.again or claimed.messages):
                break
            if leases and (not claimed.again or len(leases) >= options.n):
                break
        return leases

    def _mend_aside(self, dirty: set[str]) -> None:
        """Repairs groups that kept others out while this claim got something; its leases need not wait for that.

        Left to a claim that gets nothing, who waits there would starve while others have work.
        """
        if new := dirty - self._mending:
            self._mending |= new
            self._tasks.start(repair_groups(self._engine, new)).add_done_callback(
                lambda _: self._mending.difference_update(new)
            )

    async def _round(self, options: ClaimOptions, batch: Batch | None) -> tuple[Claimed, list[Lease[P]]]:
        """One call, and the leases it brought."""
        await self._engine.connect()
        asked_at = time.monotonic()
        streams = self._engine.claim_streams
        stream = streams.take(options.pools)
        call = self._engine.calls.claim(
            stream, options.n, options.visibility_ms, options.consumer, options.pools,
            by_time=options.by_time,
        )  # fmt: skip
        try:
            claimed = await self._send(call, batch)
        except BaseException:
            streams.unanswered(stream, options.n, options.pools)
            self.unanswered = options
            raise
        streams.answered(stream, options.n, len(claimed.messages))
        self.next_due_ms = claimed.next_due_ms
        if claimed.revision != self._engine.settings.revision:
            with contextlib.suppress(
                FairQueueError
            ):  # the next claim tells again; these leases must not wait for it
                await self._engine.agreement.learn(patience=0)
        return claimed, await self._hand_over.leases(
            claimed, options.consumer, options.visibility_ms, asked_at
        )

    async def _send(self, claim: Call[Claimed], batch: Batch | None) -> Claimed:
        if batch is None:
            return await self._engine.connection.run(claim)
        async with batch.sending:
            if batch.answered:  # meanwhile, to somebody else: sent again it would count as a new call
                return await self._engine.connection.run(claim)
            settled, answer = await self._engine.connection.run_all([self._settler.call(batch), claim])
            await self._settler.received(batch, settled)
        if isinstance(answer, Exception):
            raise answer
        return cast("Claimed", answer)

    def forget(self) -> None:
        """After a fork: claims under way are the parent's."""
        self._mending, self.unanswered = set(), None
