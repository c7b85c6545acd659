"""What a rate lets through, in exact fractions: for the tests that compare the engine with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

Rate = tuple[int, int, int]
"""n deliveries in each so many milliseconds, and how many at once."""


LONG_AGO = Fraction(-(10**12))
"""From when on a group was left alone."""


@dataclass
class Bucket:
    """The tokens of one group; instants are whole milliseconds. ``full_at`` is when all of them are there (again)."""

    rate: Rate
    full_at: Fraction = LONG_AGO

    @property
    def interval(self) -> Fraction:
        n, per, _ = self.rate
        return Fraction(per, n)

    def _until_full(self, now: int) -> Fraction:
        """Below 0: a token came since the millisecond before, and this is the first one at which it can be taken."""
        left = self.full_at - now
        return left if left > -1 else Fraction(0)

    def tokens(self, now: int) -> int:
        return self.rate[2] - math.ceil(self._until_full(now) / self.interval)

    def shown(self, now: int) -> int:
        return min(self.tokens(now), self.rate[2])

    def take(self, now: int) -> None:
        assert self.tokens(now) > 0
        self.full_at = now + self._until_full(now) + self.interval

    def give_back(self, now: int) -> None:
        """Never above the burst."""
        left = self._until_full(now)
        self.full_at = now + max(left - self.interval, min(left, Fraction(0)))

    def heal(self, now: int) -> None:
        """Nothing is owed for longer than the burst takes."""
        self.full_at = min(self.full_at, now + self.rate[2] * self.interval)

    def change(self, rate: Rate, now: int) -> None:
        """Parts of a millisecond are those of the old rate: rounded up."""
        if rate[0] != self.rate[0]:
            self.full_at = Fraction(math.floor(self.full_at) + (self.full_at % 1 > 0))
        self.rate = rate
        self.heal(now)
