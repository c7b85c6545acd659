"""The consuming half of a queue: claims that may wait, be cancelled or come late, and the end of it all at close."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic

from fairqueue._engine.engine import Engine
from fairqueue.claiming import Claimer, ClaimOptions
from fairqueue.errors import FairQueueError
from fairqueue.generics import P
from fairqueue.lease import Lease, held
from fairqueue.outcomes import Outcome
from fairqueue.settlement import Settlement
from fairqueue.settling import Request, Settler, answer
from fairqueue.tasks import Tasks

__all__ = ["IDLE_LOOK", "Consumer"]

IDLE_LOOK = 1.0  # seconds after which an idle waiter looks by itself, should a wake-up have been lost
_CLOSE_SECONDS = 1.0  # that close() may take to give back what lost claims took
_FRESHENINGS = 3  # of leases whose answer came late; a server that slow is the caller's to judge


class Consumer(Generic[P]):
    """Shared by ``FairQueue``, its leases and a worker: over claiming and settling, which it joins."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks = Tasks(engine.own)
        self._settler = Settler(engine)
        self._claimer: Claimer[P] = Claimer(engine, self._tasks, self._settler, self)
        self._giving_back = False
        engine.forget_parent = self._forget_parent

    def _forget_parent(self) -> object:
        self._claimer.forget()
        return self._settler.forget(), self._tasks.forget()

    # --- claiming --------------------------------------------------------------------------------------------

    async def claim(self, options: ClaimOptions, wait: float) -> list[Lease[P]]:
        """At most ``options.n`` leases; waits up to ``wait`` seconds for the first."""
        give_up = time.monotonic() + wait
        while True:
            leases = await self.claim_now(options)
            left = give_up - time.monotonic()
            if leases or left <= 0:
                return leases
            await self._engine.bell(options.pools).wait(min(left, self.idle_seconds()))

    @property
    def next_due_ms(self) -> int | None:
        """How long after the last claim the next message, or token of a rate, is due."""
        return self._claimer.next_due_ms

    def idle_seconds(self) -> float:
        """How long an idle claimer may wait for the bell: until the next due message, at most a second."""
        due = self._claimer.next_due_ms
        return IDLE_LOOK if due is None else min(IDLE_LOOK, max(due, 1) / 1000)

    async def claim_now(self, options: ClaimOptions) -> list[Lease[P]]:
        """One look. Cancelled, it gives back uncounted what it was about to hand over."""
        _, leases = await self.exchange([], options)
        return leases

    async def exchange(
        self, requests: Sequence[Request], options: ClaimOptions
    ) -> tuple[list[Outcome], list[Lease[P]]]:
        """Settles and claims, both in one round trip."""
        task = self._tasks.start(self._exchange(requests, options))
        try:
            outcomes, leases = await asyncio.shield(task)
            return outcomes, await self._still_ours(leases)
        except asyncio.CancelledError:
            self._tasks.start(self._give_back(task))
            raise

    async def _exchange(
        self, requests: Sequence[Request], options: ClaimOptions
    ) -> tuple[list[Outcome], list[Lease[P]]]:
        batches = self._settler.batches(requests)
        for batch in batches[1:]:
            await self._settler.send(batch)
        leases = await self._claimer.claim(options, batches[0] if batches else None)
        self._give_back_elsewhere(options)
        return [answer(*request) for request in requests], leases

    async def _still_ours(self, leases: list[Lease[P]]) -> list[Lease[P]]:
        """What was asked for long ago may have expired, and be somebody else's, before anybody read the answer.

        The process was frozen, say, or its event loop blocked. Nobody kept these leases alive meanwhile.
        """
        for _ in range(_FRESHENINGS):
            aged = [lease for lease in leases if not held(lease).sure_for(held(lease).visibility / 2)]
            if not aged:
                break
            try:
                await self.extend(aged)
            except FairQueueError:
                break  # away again: handed over, to be extended when it is back
            leases = [lease for lease in leases if not lease.lost.is_set()]
        return leases

    # --- giving back -----------------------------------------------------------------------------------------

    async def _give_back(self, task: asyncio.Task[tuple[list[Outcome], list[Lease[P]]]]) -> None:
        """The claimer was cancelled: what it would have got is released, uncounted."""
        with contextlib.suppress(FairQueueError, asyncio.CancelledError):
            _, leases = await task
            await self.settle([(lease, Settlement("release")) for lease in leases])

    def _give_back_elsewhere(self, options: ClaimOptions) -> None:
        """The server answers again; on the pools of a claim that was lost nobody may claim for long."""
        owing = self._engine.claim_streams.owing
        if owing and owing.pools != options.pools and not self._giving_back:
            self._giving_back = True
            self._tasks.start(self._give_back_owed(options)).add_done_callback(self._gave_back)

    def _gave_back(self, _task: asyncio.Task[None]) -> None:
        self._giving_back = False

    async def _give_back_owed(self, options: ClaimOptions) -> None:
        """Repeats the claims that were not answered, and releases what they had taken."""
        while stream := self._engine.claim_streams.owing:
            leases = await self.claim_now(replace(options, n=stream.owed, pools=stream.pools))
            await self.settle([(lease, Settlement("release")) for lease in leases])

    # --- extending and settling ------------------------------------------------------------------------------

    async def extend(self, leases: Sequence[Lease[Any]]) -> list[Outcome]:
        """Extends all to their full visibility timeout; a lost lease is marked."""
        return await self._settler.extend(leases)

    async def settle(self, requests: Sequence[Request]) -> list[Outcome]:
        """Ends deliveries; goes on when the caller is cancelled, so that a lease always knows its outcome."""
        return await asyncio.shield(self._tasks.start(self._settler.settle(list(requests))))

    async def close(self) -> None:
        """Lets what is under way end, and releases uncounted what a lost claim may have taken."""
        self._engine.own()
        await self._tasks.wait()
        if self._claimer.unanswered is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._give_back_owed(self._claimer.unanswered)
