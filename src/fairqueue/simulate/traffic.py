"""When messages come and how long they run: drawn from a seed, so that the same file gives the same run.

Times are whole microseconds since the start of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from fairqueue.errors import ConfigurationError
from fairqueue.simulate.reading import MISSING, Section, named_number
from fairqueue.validation import expected, number

__all__ = ["Arrivals", "RunTime", "arrivals_of", "micros", "run_time_of"]

SHORTEST, LONGEST = 1e-6, 1e9  # seconds: 30 years
MOST_PER_SECOND = 1e6
_95TH_OF_NORMAL: Final = 1.6448536269514722

RunTime = Callable[[Random], float]
"""Draws the seconds of one run."""


def micros(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * 1_000_000)


# --- arrivals ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When the messages of one stream come.

    ``kind`` is ``poisson`` or ``regular``, with ``amount`` messages a second, or ``burst``: ``amount`` at once, and
    again after ``every_s`` seconds (None: only once). Nothing comes before ``from_s``, or from ``until_s`` on.
    """

    kind: str
    amount: float
    every_s: float | None
    from_s: float
    until_s: float

    def number_within(self, duration_s: float) -> float:
        """How many messages come in that many seconds, on average."""
        window = min(self.until_s, duration_s) - self.from_s
        if window <= 0:
            return 0
        if self.kind != "burst":
            return self.amount * window
        return self.amount * (1 if self.every_s is None else math.ceil(window / self.every_s))

    def times(self, random: Random, duration_s: float) -> Iterator[int]:
        """The instants at which a message comes, in order."""
        until = micros(min(self.until_s, duration_s))
        for at in self._moments(random):
            if at >= until:
                return
            for _ in range(int(self.amount) if self.kind == "burst" else 1):
                yield at

    def _moments(self, random: Random) -> Iterator[int]:
        if self.kind == "burst" and self.every_s is None:
            yield micros(self.from_s)
            return
        gap = self.every_s if self.every_s is not None else 1 / self.amount
        exact, count = self.from_s, 0
        while True:
            if self.kind == "poisson":
                exact += random.expovariate(self.amount)
                yield micros(exact)
            else:
                yield micros(self.from_s + count * gap)  # not a sum: it would drift
                count += 1


def arrivals_of(value: object, path: str) -> Arrivals:
    """``{poisson: 5}``, ``{regular: 5}`` or ``{burst: 100, every: 60}``, each with ``from`` and ``until``.

    Raises:
        ConfigurationError: it is none of them; the text names the place.
    """
    found = Section(value, path, ("poisson", "regular", "burst", "every", "from", "until"))
    kinds = [kind for kind in ("poisson", "regular", "burst") if found.has(kind)]
    if len(kinds) != 1:
        raise expected(path, "one of poisson, regular, burst", value)
    (kind,) = kinds
    if found.has("every") and kind != "burst":
        raise ConfigurationError(f"expected {found.at('every')} beside burst, got it beside {kind}")
    amount = (
        found.integer(kind, 1, 10_000_000)
        if kind == "burst"
        else found.number(kind, 1 / LONGEST, MOST_PER_SECOND)
    )
    return Arrivals(
        kind,
        amount,
        found.number("every", SHORTEST, LONGEST) if found.has("every") else None,
        from_s=found.number("from", 0, LONGEST, 0),
        until_s=found.number("until", 0, LONGEST, LONGEST),
    )


# --- run times ---------------------------------------------------------------------------------------------------


def run_time_of(value: object, path: str) -> RunTime:
    """Seconds, or ``{uniform: [1, 3]}``, ``{exponential: 2}``, ``{lognormal: {p50: 1, p95: 8}}``.

    Raises:
        ConfigurationError: it is none of them; the text names the place.
    """
    if isinstance(value, dict):
        make, inner, where = named_number(value, path, _FORMS)
        return make(inner, where)
    return _fixed(value, path)


def _fixed(value: object, path: str) -> RunTime:
    seconds = number(path, value, 0, LONGEST)
    return lambda _: seconds


def _uniform(value: object, path: str) -> RunTime:
    if not isinstance(value, list) or len(value) != 2:
        raise expected(path, "a list of the shortest and the longest run", value)
    low = number(f"{path}[0]", value[0], 0, LONGEST)
    high = number(f"{path}[1]", value[1], low, LONGEST)
    return lambda random: random.uniform(low, high)


def _exponential(value: object, path: str) -> RunTime:
    mean = number(path, value, SHORTEST, LONGEST)
    return lambda random: min(random.expovariate(1 / mean), LONGEST)


def _lognormal(value: object, path: str) -> RunTime:
    found = Section(value, path, ("p50", "p95"))
    median = found.number("p50", SHORTEST, LONGEST)
    sigma = math.log(found.number("p95", median, LONGEST, MISSING) / median) / _95TH_OF_NORMAL
    return lambda random: min(random.lognormvariate(math.log(median), sigma), LONGEST)


_FORMS: Final[dict[str, Callable[[Any, str], RunTime]]] = {
    "fixed": _fixed,
    "uniform": _uniform,
    "exponential": _exponential,
    "lognormal": _lognormal,
}
