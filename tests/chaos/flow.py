"""What was started although it must not: paused, cancelled, expired, or beyond a rate.

The server claimed a delivery at an instant between two that the journal knows, when its worker asked and when its handler
started. What is found here went wrong at any instant in between: there is no tolerance but for the server's milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf

from tests.chaos import journal as lines
from tests.chaos import load
from tests.chaos.endings import Cancels
from tests.chaos.history import Run
from tests.chaos.journal import Entry

CLOCKS = 0.01
"""Seconds by which the server's clock and the journal's may run apart, and a millisecond of the server's be rounded."""

WINDOW = 60.0
"""The longest time, in seconds, over which deliveries are counted."""

LATE = load.VISIBILITY
"""Seconds within which a release that was written down has been sent, while anybody's lease lasted."""


class Flow:
    """Over the journal of a whole run."""

    def __init__(self, entries: Sequence[Entry], runs: Sequence[Run], cancels: Cancels) -> None:
        self._runs = sorted(runs, key=lambda run: run.asked)
        self._asked = [run.asked for run in self._runs]
        self._cancels = cancels
        self._pauses = list(_pauses(entries))
        self._accepted = {
            id_: entry.at for entry in entries if entry.what == lines.ACCEPTED for id_ in entry.about["ids"]
        }
        self._rated: dict[str, float] = {}
        self._given_back: dict[str, list[float]] = defaultdict(list)
        for entry in entries:
            if entry.what == lines.RATED:
                self._rated.setdefault(entry.about["group"], entry.at)
            elif entry.what == lines.GIVEN_BACK:
                for group in load.groups(load.tenant_of(entry.id)):
                    self._given_back[group].append(entry.at)
        self.pauses, self.rated = len(self._pauses), 0

    def problems(self) -> list[str]:
        found = [*self._paused(), *self._cancelled(), *self._expired()]
        for group in sorted(self._rated):
            found += self._beyond_its_rate(group)
        return found

    def _paused(self) -> Iterator[str]:
        for selectors, since, until in self._pauses:
            for run in self._runs[bisect_right(self._asked, since) : bisect_left(self._asked, until)]:
                if run.at < until and _meets(selectors, run.id):
                    yield f"{run.id}: started at {run.at:.3f}, paused by {selectors} from {since:.3f} to {until:.3f}"

    def _cancelled(self) -> Iterator[str]:
        for run in self._runs:
            answered = self._cancels.answered.get(run.id, inf)
            if run.asked > answered:
                yield f"{run.id}: started at {run.at:.3f}, its cancel was answered at {answered:.3f}"

    def _expired(self) -> Iterator[str]:
        """A delivery after one that counts is no first start."""
        for run in self._runs:
            lives = load.time_to_live(run.id)
            if lives is None or run.attempt > 1 or run.id not in self._accepted:
                continue
            ends = self._accepted[run.id] + lives
            if run.asked > ends + CLOCKS:
                yield f"{run.id}: started at {run.at:.3f}, not to be after {ends:.3f}"

    def _beyond_its_rate(self, group: str) -> Iterator[str]:
        """In any time as many as the burst, and those whose tokens came meanwhile, and one more for each given back."""
        runs = sorted(
            (run for run in self._runs if run.asked > self._rated[group] and _uses(group, run.id)),
            key=lambda run: run.at,
        )  # fmt: skip
        self.rated += len(runs)
        ends = [run.at for run in runs]
        for first in runs:
            started = 0
            for run in runs[bisect_left(ends, first.asked) : bisect_right(ends, first.asked + WINDOW)]:
                started += run.asked >= first.asked
                seconds = run.at - first.asked
                if started > self._allowed(group, first.asked, seconds):
                    yield f"{group}: {started} started in the {seconds:.3f} s before {run.at:.3f}"
                    break

    def _allowed(self, group: str, since: float, seconds: float) -> float:
        rate, given_back = load.RATES[group], self._given_back[group]
        late = bisect_right(given_back, since + seconds) - bisect_left(given_back, since - LATE)
        return rate.burst + rate.n * (seconds + CLOCKS) + late


def _pauses(entries: Sequence[Entry]) -> Iterator[tuple[list[str | None], float, float]]:
    """From the answer to a pause until somebody is about to lift it."""
    standing: dict[str, tuple[list[str | None], float]] = {}
    for entry in entries:
        if entry.what == lines.PAUSED:
            standing.setdefault(str(entry.about["selectors"]), (entry.about["selectors"], entry.at))
        elif entry.what == lines.RESUMING and (one := standing.pop(str(entry.about["selectors"]), None)):
            yield *one, entry.at
    for selectors, since in standing.values():
        yield selectors, since, inf


def _meets(selectors: Sequence[str | None], id_: str) -> bool:
    own = (load.tenant_of(id_), load.queue_of(id_), load.pool_of(id_))
    return all(wanted in (None, have) for wanted, have in zip(selectors, own, strict=True))


def _uses(group: str, id_: str) -> bool:
    return group in load.groups(load.tenant_of(id_))
