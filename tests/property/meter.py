"""Measures what each pair of tenants is served over every interval in which both compete, against the fairness bound."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fairqueue import NewMessage

TOLERANCE = 1e-9


def scaled(amounts: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Each divided by its tenant's weight."""
    return {tenant: amount / weights.get(tenant, 1) for tenant, amount in amounts.items()}


def largest_costs(messages: Iterable[NewMessage[float]]) -> dict[str, float]:
    """Of each tenant."""
    costs: dict[str, float] = {}
    for message in messages:
        costs[message.tenant] = max(costs.get(message.tenant, 0), message.cost)
    return costs


@dataclass
class _Span:
    """An interval that goes on: how far one is ahead of the other now, and the extremes so far, slack counted in."""

    ahead: float
    lowest: float
    highest: float


@dataclass
class Meter:
    """Watches pairs: over any interval they differ by ``c_i + c_j`` at most, each one's largest cost.

    The promise speaks of the largest cost of all; the theorem of start-time fair queueing of each one's own. Where tenants
    have weights all amounts are divided by them.

    Args:
        largest: the largest cost of each tenant.
    """

    largest: Mapping[str, float]
    widest: float = 0.0
    """The most by which two have differed so far beyond what may be promised, as a part of the bound."""
    _spans: dict[tuple[str, str], _Span] = field(default_factory=dict)

    def served(
        self,
        costs: Mapping[str, float],
        competing: Collection[str],
        promised: Mapping[str, float] | None = None,
    ) -> None:
        """So much was served to each while those competed.

        ``promised``: what each has not been served yet and nobody else can get: at this end of an interval the service
        may lag behind what was given away by so much.
        """
        for pair in itertools.combinations(sorted(self.largest), 2):
            if not set(pair) <= set(competing):
                self._spans.pop(pair, None)
                continue
            slack = sum((promised or {}).get(tenant, 0) for tenant in pair)
            span = self._spans.setdefault(pair, _Span(0, slack, -slack))
            span.ahead += costs.get(pair[0], 0) - costs.get(pair[1], 0)
            bound = self.largest[pair[0]] + self.largest[pair[1]] + TOLERANCE
            widest = max(span.ahead - slack - span.lowest, span.highest - span.ahead - slack)
            self.widest = max(self.widest, widest / bound)
            assert widest <= bound, f"{pair} differ by {widest} more than may be promised, bound {bound}"
            span.lowest = min(span.lowest, span.ahead + slack)
            span.highest = max(span.highest, span.ahead - slack)


@dataclass
class Hunger:
    """Watches each tenant that has claimable work all the time: between two of its turns each other one gets little.

    At most ``c_i + c_j``, whether that one has work all the time or comes and goes. So a tenant waits for the service
    of the sum of these over the others, and no longer: nobody starves.
    """

    largest: Mapping[str, float]
    _since: dict[str, dict[str, float]] = field(default_factory=dict)

    def served(self, tenant: str, cost: float, claimable: Collection[str]) -> None:
        """One message was served, while those had claimable work."""
        for hungry in self.largest:
            if hungry == tenant or hungry not in claimable:
                self._since.pop(hungry, None)
                continue
            got = self._since.setdefault(hungry, dict.fromkeys(self.largest, 0))
            got[tenant] += cost
            most = self.largest[hungry] + self.largest[tenant] + TOLERANCE
            assert got[tenant] <= most, f"{hungry} waits while {tenant} is served {got[tenant]}, bound {most}"
