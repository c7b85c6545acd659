"""The fair order in plain Python: an explanation for readers, an oracle for tests. The server's scripts do the same.

Start-time fair queueing (Goyal, Vin, Cheng, 1996), on two levels. Tenants take turns, and within a tenant its lanes do.
Whoever takes turns carries a tag: how much service it has had, divided by its weight, on a scale all of them share.

1. Serve the one with the smallest tag; equal tags go by name, as in the server's sorted sets.
2. Virtual time is the tag of the one being served. So it never goes back, and nobody who waits is behind it.
3. Being served moves the tag on by cost / weight: a heavier one moves less and is back sooner.
4. Entering, a tag becomes the larger of virtual time and the tag it left with. Virtual time: absence earns nothing.
   Its own tag: leaving and coming back does not shake off what was already served, or a tenant that drains and refills
   its queue would starve one that is always there.
5. A tag that virtual time has passed means nothing any more and is forgotten; when all is idle, everything is.

Two that both have work all along differ, over any interval, by no more than ``bound``: one message each.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["FairScheduler", "bound", "fairness_gap", "jain_index", "percentile"]

M = TypeVar("M")


@dataclass(slots=True)
class _Turns:
    """One level: who takes turns, and whose it is."""

    virtual_time: float = 0.0
    tags: dict[str, float] = field(default_factory=dict)
    ring: set[str] = field(default_factory=set)
    """Those with claimable work. Each has a tag; so may others, who left with one ahead of virtual time."""

    def enter(self, name: str) -> None:
        if name not in self.ring:
            self.tags[name] = max(self.virtual_time, self.tags.get(name, 0.0))
            self.ring.add(name)

    def leave(self, name: str) -> None:
        self.ring.discard(name)
        self._forget_passed()

    def first(self) -> str:
        return min(self.ring, key=lambda name: (self.tags[name], name))

    def serve(self, name: str, amount: float) -> None:
        self.virtual_time = self.tags[name]
        self.tags[name] += amount
        self._forget_passed()

    def rescale(self, name: str, factor: float) -> None:
        """What lies ahead of virtual time was charged at the old weight: make it what the new one charges."""
        if name in self.tags:
            self.tags[name] = self.virtual_time + (self.tags[name] - self.virtual_time) * factor

    def reset(self) -> None:
        self.virtual_time = 0.0
        self.tags.clear()

    def _forget_passed(self) -> None:
        passed = [
            name for name, tag in self.tags.items() if name not in self.ring and tag <= self.virtual_time
        ]
        for name in passed:
            del self.tags[name]


@dataclass(slots=True)
class _Tenant(Generic[M]):
    """A tenant's lanes: each a queue of (cost, message), and the turns between those not blocked."""

    turns: _Turns = field(default_factory=_Turns)
    lanes: dict[str, deque[tuple[float, M]]] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)

    def refresh(self, lane: str) -> None:
        """Let the lane take turns if it has work and is not blocked."""
        if self.lanes.get(lane) and lane not in self.blocked:
            self.turns.enter(lane)
        else:
            self.turns.leave(lane)

    def take(self) -> tuple[float, M]:
        lane = self.turns.first()
        cost, message = self.lanes[lane].popleft()
        self.turns.serve(lane, cost)
        if not self.lanes[lane]:
            del self.lanes[lane]
        self.refresh(lane)
        if not self.lanes:
            self.turns.reset()
        return cost, message


class FairScheduler(Generic[M]):
    """Hands out messages in the fair order; first in, first out inside a lane.

    >>> scheduler = FairScheduler()
    >>> for number in range(3):
    ...     scheduler.enqueue("busy", "default", 1, f"busy {number}")
    >>> scheduler.enqueue("quiet", "default", 1, "quiet 0")
    >>> [scheduler.next() for _ in range(5)]
    ['busy 0', 'quiet 0', 'busy 1', 'busy 2', None]

    Args:
        weights: tenant to weight, above 0; 1 for those not named.

    Costs and weights that are not positive and finite raise ``ValueError``.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights: dict[str, float] = {}
        self._turns = _Turns()
        self._tenants: dict[str, _Tenant[M]] = {}
        for tenant, weight in (weights or {}).items():
            self.set_weight(tenant, weight)

    def __len__(self) -> int:
        """How many messages wait, those of blocked lanes included."""
        return sum(len(lane) for tenant in self._tenants.values() for lane in tenant.lanes.values())

    def set_weight(self, tenant: str, weight: float) -> None:
        """Give the tenant another weight, from its next message on; what it was charged already is rescaled."""
        old = self._weights.get(tenant, 1.0)
        self._weights[tenant] = _positive("weight", weight)
        self._turns.rescale(tenant, old / weight)

    def enqueue(self, tenant: str, lane: str, cost: float, message: M) -> None:
        """Add a message at the end of a lane."""
        entry = (_positive("cost", cost), message)
        self._tenant(tenant).lanes.setdefault(lane, deque()).append(entry)
        self._refresh(tenant, lane)

    def block(self, tenant: str, lane: str) -> None:
        """Take a lane out of its turns, as a full limit group does; its messages wait."""
        self._tenant(tenant).blocked.add(lane)
        self._refresh(tenant, lane)

    def unblock(self, tenant: str, lane: str) -> None:
        """Let a blocked lane take turns again, with neither credit nor debt from the time it was blocked."""
        self._tenant(tenant).blocked.discard(lane)
        self._refresh(tenant, lane)

    def claimable(self, tenant: str) -> bool:
        """Whether the tenant has a message in a lane that is not blocked."""
        return tenant in self._turns.ring

    def next(self) -> M | None:
        """The next message in the fair order, charged to its tenant and lane; None: nothing is claimable."""
        if not self._turns.ring:
            return None
        tenant = self._turns.first()
        cost, message = self._tenants[tenant].take()
        self._turns.serve(tenant, cost / self._weights.get(tenant, 1.0))
        self._refresh(tenant)
        return message

    def _tenant(self, tenant: str) -> _Tenant[M]:
        return self._tenants.setdefault(tenant, _Tenant())

    def _refresh(self, tenant: str, lane: str | None = None) -> None:
        """After a change: let the lane and the tenant take turns or not, and forget what is idle."""
        state = self._tenants[tenant]
        if lane is not None:
            state.refresh(lane)
        if state.turns.ring:
            self._turns.enter(tenant)
        else:
            self._turns.leave(tenant)
        if not state.lanes and not state.blocked:
            del self._tenants[tenant]
        if not any(one.lanes for one in self._tenants.values()):
            self._turns.reset()


def _positive(what: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"expected {what} to be positive and finite, got {value!r}")
    return value


def bound(c_max: float, w_i: float = 1.0, w_j: float = 1.0) -> float:
    """How far two may differ in service divided by weight while both have work: one largest message each.

    >>> bound(c_max=1, w_i=1, w_j=4)
    1.25
    """
    return c_max / w_i + c_max / w_j


def fairness_gap(
    served: Mapping[str, float], weights: Mapping[str, float] | None = None, *, c_max: float | None = None
) -> float:
    """The largest difference between any two in service divided by weight; 0 for fewer than two.

    Args:
        served: cost units served to each over one interval in which all of them had work.
        weights: 1 for those not named.
        c_max: the largest cost. Given, each pair's difference is divided by its ``bound``: what is fair is at most 1.

    >>> fairness_gap({"acme": 10, "umbrella": 19}, {"umbrella": 2})
    0.5
    """
    named = weights or {}
    shares = [(units / named.get(name, 1.0), named.get(name, 1.0)) for name, units in served.items()]
    if c_max is None:
        return max((abs(one - other) for (one, _), (other, _) in combinations(shares, 2)), default=0.0)
    gaps = (abs(one - other) / bound(c_max, w_i, w_j) for (one, w_i), (other, w_j) in combinations(shares, 2))
    return max(gaps, default=0.0)


def percentile(values: Iterable[float], part: float) -> float:
    """The smallest of ``values`` that at least ``part`` (0 to 1) of them do not exceed: one that was measured.

    Raises ``ValueError`` for no values.

    >>> percentile([4, 1, 3, 2], 0.5)
    2
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("expected at least one value")
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def jain_index(values: Iterable[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one of n has everything; 1 for nothing at all.

    >>> jain_index([1, 1, 1, 1]), jain_index([4, 0, 0, 0])
    (1.0, 0.25)
    """
    numbers = list(values)
    if any(not 0 <= one < math.inf for one in numbers):
        raise ValueError("expected values to be finite and not negative")
    largest = max(numbers, default=0.0)
    if largest == 0:
        return 1.0
    scaled = [one / largest for one in numbers]  # squares of very large or very small numbers leave the range
    return math.fsum(scaled) ** 2 / (len(scaled) * math.fsum(one * one for one in scaled))
