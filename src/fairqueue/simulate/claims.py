"""Claims and their ends as ``Worker`` makes them, by the clock of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fairqueue.claiming import claim_options
from fairqueue.errors import FairQueueError
from fairqueue.inside import consumer_of, engine_of
from fairqueue.lease import Lease, held
from fairqueue.queue import FairQueue

__all__ = ["Claims"]

MOST_AT_ONCE = 1000
"""Messages of one claim."""


class Claims:
    """What the workers of a run do with the queue.

    Args:
        queue: theirs.
        by_time: tenants are charged for the seconds that their messages ran, not for their cost.
        seconds: the run's clock.
    """

    def __init__(self, queue: FairQueue[Any], by_time: bool, seconds: Callable[[], float]) -> None:
        self._queue, self._by_time, self._seconds = queue, by_time, seconds
        self._consumer = consumer_of(queue)

    async def claim(self, room: int, worker: str, pools: Sequence[str]) -> list[Lease[Any]]:
        """At most ``room`` messages, whose handlers begin at once; fewer where nothing else may start."""
        options = claim_options(engine_of(self._queue), MOST_AT_ONCE, worker, pools)
        options = replace(options, by_time=self._by_time)
        leases: list[Lease[Any]] = []
        while len(leases) < room:
            asked = min(room - len(leases), MOST_AT_ONCE)
            came = await self._consumer.claim_now(options.of(asked))
            leases += came
            if len(came) < asked:
                break
        for lease in leases:
            held(lease).begin(self._seconds if self._by_time else None)
        return leases

    @property
    def next_due_ms(self) -> int | None:
        """How long after the last claim the queue has something that is due then."""
        return self._consumer.next_due_ms

    async def complete(self, leases: Sequence[Lease[Any]]) -> None:
        """Their handlers have ended."""
        for lease in leases:
            held(lease).end()
        outcomes = await self._queue.complete_many(leases)
        if set(outcomes) - {"done"}:
            raise FairQueueError(f"the private server lost what ran: {sorted(set(outcomes))}")
