"""What happens in a run at an instant: a message comes, expires or is done, a pause begins, a token may be there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from fairqueue.lease import Lease
from fairqueue.new_message import HIGHEST_COST, LOWEST_COST, NewMessage
from fairqueue.simulate.meter import TenantMeter
from fairqueue.simulate.traffic import micros
from fairqueue.simulate.workload import Stream

__all__ = ["Arrival", "Expiry", "Finish", "Pausing", "Source", "Token", "Worker"]


@dataclass(slots=True)
class Source:
    """One stream of one tenant. It has draws of its own, so that a change elsewhere in the file leaves them be."""

    meter: TenantMeter
    stream: Stream
    number: int
    times: Iterator[int]
    runs: Random
    next_at: int | None = None
    count: int = 0

    def advance(self) -> int | None:
        """When its next message comes, if it has one."""
        self.next_at = next(self.times, None)
        return self.next_at

    def arrival(self, at: int) -> Arrival:
        """The message that comes at that instant."""
        seconds, cost = self.stream.run(self.runs), self.stream.cost
        if cost is None:
            cost = min(max(seconds, LOWEST_COST), HIGHEST_COST)
        self.count += 1
        self.meter.sent += 1
        return Arrival(self, f"{self.number}-{self.count}", at, micros(seconds), cost)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that comes, and waits until it starts."""

    source: Source
    id: str
    at: int
    run: int
    cost: float

    def message(self) -> NewMessage[None]:
        """To be enqueued."""
        stream = self.source.stream
        return NewMessage(
            None,
            tenant=self.source.meter.name,
            queue=stream.queue,
            id=self.id,
            metadata=stream.metadata,
            pool=stream.pool,
            priority=stream.priority,
            cost=self.cost,
            expires=stream.expires_s,
            on_expiry="drop",
        )


@dataclass(frozen=True, slots=True)
class Expiry:
    """From now on this message never starts."""

    arrival: Arrival


@dataclass(frozen=True, slots=True)
class Pausing:
    """A pause begins, or ends."""

    selectors: dict[str, str]
    begins: bool


@dataclass(frozen=True, slots=True)
class Token:
    """Somebody may have a token of a rate now."""


@dataclass(slots=True)
class Finish:
    """A handler ends."""

    lease: Lease[Any]
    worker: Worker
    meter: TenantMeter


@dataclass(slots=True)
class Worker:
    """A worker process: it claims what it can start at once."""

    name: str
    pools: tuple[str, ...]
    free: int
