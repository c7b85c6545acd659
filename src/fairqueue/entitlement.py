"""The arithmetic of the fairness report: what each tenant was entitled to, from who was served what and who had work.

Time is cut into minutes. In each, the service that a pool gave is divided by max-min fairness among those who had work in
it: everybody gets in proportion to its weight, nobody more than it had work for, and what one does not need goes to the
others. What a tenant was served while it held less than it is guaranteed is due to it before that. A tenant that its own
limit or a pause kept out had, that minute, work for what it received and for no more. What was due earlier in the window and
was not served is not due a second time. What is due in several pools adds up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Account", "Usage", "Waiting", "accounts", "max_min", "together", "wait_within"]

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant was served in a pool in one minute: what it was charged, and how many messages waited how long, by bucket.

    ``charged`` is below 0 where more was given back than charged.
    """

    charged: float
    kept_out: bool
    since_ms: int
    """When the first of its messages that were served became ready."""
    longest_ms: int
    waits: Mapping[int, int] = field(default_factory=dict)
    promised: float = 0.0
    """What it was charged while it held less than it is guaranteed."""

    @property
    def starts(self) -> int:
        """How many messages started."""
        return sum(self.waits.values())


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a tenant has ready in a pool now, what it would be charged for that, and since when it is (ms).

    ``competes``: neither its own limit nor a pause keeps all of it out.
    """

    ready: int
    charge: float
    since_ms: int
    competes: bool


@dataclass(slots=True)
class Account:
    """One tenant over the window: what it was charged, and milliseconds."""

    weight: float = 1.0
    entitled: float = 0.0
    received: float = 0.0
    waits: Counter[int] = field(default_factory=Counter)
    longest_ms: int = 0
    waiting: int = 0
    starved: set[int] = field(default_factory=set)
    """The minutes in which it was."""

    @property
    def lag(self) -> float:
        """What it is behind; negative: ahead."""
        return self.entitled - self.received

    @property
    def starved_ms(self) -> int:
        """For how long."""
        return len(self.starved) * MINUTE_MS

    def add(self, other: Account) -> None:
        """What it has in another pool."""
        self.entitled += other.entitled
        self.received += other.received
        self.waits.update(other.waits)
        self.longest_ms = max(self.longest_ms, other.longest_ms)
        self.waiting += other.waiting
        self.starved |= other.starved


def max_min(
    capacity: float,
    demands: Mapping[str, float],
    weights: Mapping[str, float],
    promised: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Divides the capacity by weight; nobody gets more than its demand, and what is left goes to the others.

    Nobody gets less than it was promised, as far as it has demand: those who would are given that, and the others divide
    the rest.

    >>> max_min(12, {"a": 2, "b": 20, "c": 20}, {"c": 4})
    {'a': 2.0, 'b': 2.0, 'c': 8.0}
    >>> max_min(12, {"a": 20, "b": 20, "c": 20}, {}, {"a": 8, "b": 1})
    {'a': 8.0, 'b': 2.0, 'c': 2.0}
    """
    floors = {name: min(units, demands[name]) for name, units in (promised or {}).items() if name in demands}
    kept: dict[str, float] = {}
    while True:
        rest = {name: demand for name, demand in demands.items() if name not in kept}
        given = _by_weight(capacity - math.fsum(kept.values()), rest, weights)
        below = {name: float(floors[name]) for name in given if floors.get(name, -math.inf) > given[name]}
        if not below:
            return {name: kept[name] if name in kept else given[name] for name in demands}
        kept |= below


def _by_weight(
    capacity: float, demands: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    given: dict[str, float] = {}
    left = capacity
    total = math.fsum(weights.get(name, 1.0) for name in demands)
    # who needs least for its weight is satisfied first
    for name in sorted(demands, key=lambda one: demands[one] / weights.get(one, 1.0)):
        weight = weights.get(name, 1.0)
        given[name] = float(min(demands[name], left * weight / total)) if total > 0 else 0.0
        left, total = left - given[name], total - weight
    return given


def wait_within(waits: Mapping[int, int], part: float, longest_ms: int) -> int:
    """The wait (ms) that this part of the messages did not exceed: the upper end of its bucket, at most the longest.

    >>> wait_within({0: 5, 20: 5}, 0.95, 1000)
    1000
    """
    rank = math.ceil(part * sum(waits.values()))
    for bucket in sorted(waits):
        rank -= waits[bucket]
        if rank <= 0:
            return min(longest_ms, _ends(bucket))
    return 0


def _ends(bucket: int) -> int:
    """Waits of the bucket are shorter; of the first they are 0."""
    return 0 if bucket == 0 else math.ceil(2 ** (bucket / 2))


def together(pools: Iterable[Mapping[str, Account]]) -> dict[str, Account]:
    """The accounts of each tenant in all pools, as one."""
    found: dict[str, Account] = {}
    for accounts_of_pool in pools:
        for name, account in accounts_of_pool.items():
            found.setdefault(name, Account(weight=account.weight)).add(account)
    return dict(sorted(found.items()))


def accounts(
    minutes: Mapping[int, Mapping[str, Usage]],
    waiting: Mapping[str, Waiting],
    until_ms: int,
    weights: Mapping[str, float] | None = None,
) -> dict[str, Account]:
    """Each tenant's account in one pool, over these minutes (numbered from 1970), the last of which may not be over yet."""
    weights = weights or {}
    names = {name for usages in minutes.values() for name in usages} | set(waiting)
    found = {name: Account(weight=weights.get(name, 1.0)) for name in sorted(names)}
    left = _left(minutes, waiting, names)
    for minute in sorted(minutes):
        _divide(found, minutes[minute], left[minute])
    for name, account in found.items():
        _add_waits(account, [usages[name] for usages in minutes.values() if name in usages])
        if now := waiting.get(name):
            account.waiting = now.ready
            account.longest_ms = max(account.longest_ms, until_ms - now.since_ms if now.since_ms >= 0 else 0)
        account.starved = set(_starved(minutes, name, left))
    return found


def _divide(found: dict[str, Account], usages: Mapping[str, Usage], left: Mapping[str, float]) -> None:
    """One minute: what there was, to whom it was due."""
    charged = {name: usage.charged for name, usage in usages.items()}
    demands = {
        name: _demand(charged.get(name, 0.0), left.get(name, 0.0), account.lag)
        for name, account in found.items()
        if name in charged or name in left
    }
    # what was promised and given back again, or charged too high, was not received
    promised = {
        name: min(usage.promised, usage.charged) for name, usage in usages.items() if usage.promised > 0
    }
    weights = {name: account.weight for name, account in found.items()}
    due = max_min(math.fsum(charged.values()), demands, weights, promised)
    for name, units in due.items():
        found[name].entitled += units
        found[name].received += charged.get(name, 0.0)


def _demand(charged: float, left: float, lag: float) -> float:
    """What it would have had work for if all had been served what was due: what it lags by would be done by now."""
    return max(min(0.0, charged), charged + left - lag)


def _add_waits(account: Account, usages: list[Usage]) -> None:
    for usage in usages:
        account.waits.update(usage.waits)
        account.longest_ms = max(account.longest_ms, usage.longest_ms)


def _left(
    minutes: Mapping[int, Mapping[str, Usage]], waiting: Mapping[str, Waiting], names: set[str]
) -> dict[int, dict[str, float]]:
    """What waited at the end of each minute and competed, by what it was or would be charged."""
    left: dict[int, dict[str, float]] = {minute: {} for minute in minutes}
    for name in names:
        kept_out = False
        for minute in sorted(minutes):  # who was kept out stays so until it is served without that
            usage = minutes[minute].get(name)
            kept_out = usage.kept_out if usage else kept_out
            waited = math.fsum(_left_at_end(minutes, waiting.get(name), name, minute))
            if not kept_out and waited > 0:
                left[minute][name] = waited
    return left


def _left_at_end(
    minutes: Mapping[int, Mapping[str, Usage]], now: Waiting | None, name: str, minute: int
) -> Iterator[float]:
    """The charges of what was ready when the minute ended: served later, or waiting still."""
    end = (minute + 1) * MINUTE_MS
    for later, usages in minutes.items():
        usage = usages.get(name)
        if later <= minute or usage is None or not usage.starts or usage.since_ms >= end:
            continue
        waited = sum(
            number for bucket, number in usage.waits.items() if _ready_at(later, bucket, usage) < end
        )
        yield max(0.0, usage.charged) * waited / usage.starts
    if now and now.competes and 0 <= now.since_ms < end:
        yield now.charge


def _ready_at(minute: int, bucket: int, usage: Usage) -> float:
    """About when messages of this bucket became ready that were served in the middle of the minute."""
    return max(usage.since_ms, (minute + 0.5) * MINUTE_MS - 2 ** ((bucket - 0.5) / 2))


def _starved(
    minutes: Mapping[int, Mapping[str, Usage]], name: str, left: Mapping[int, Mapping[str, float]]
) -> Iterator[int]:
    """Minutes in which it competed from beginning to end, was served nothing, and others were."""
    for minute, usages in minutes.items():
        waited = name in left[minute] and name in left.get(minute - 1, left[minute])
        if waited and any(usage.starts for usage in usages.values()) and not _starts(usages, name):
            yield minute


def _starts(usages: Mapping[str, Usage], name: str) -> int:
    return usages[name].starts if name in usages else 0
