"""What the journal tells of processes and of handlers: when each ran, and when it did not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tests.chaos import journal as lines
from tests.chaos.journal import Entry

TOGETHER = 0.25
"""Stops with no more between them than these seconds are one: an extend needs longer to be tried and answered."""

LAST_STEP = 0.1
"""Seconds between the moment when a process that was asked to end gives back what threads still work on, and its end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A time in which a process did not run. ``ours``: we stopped it."""

    since: float
    until: float
    ours: bool


@dataclass(slots=True)
class Run:
    """One start of a handler, and its end if it came to that. ``asked``: before its claim was sent, ``at``: after that.

    The server claimed it at an instant between the two: whatever is judged by it is judged for both.
    """

    id: str
    token: str
    process: int
    at: float
    asked: float
    attempt: int
    crashes: int
    ended: float = inf
    outcome: str | None = None


class Processes:
    """When each was stopped, asked to end, or gone."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._stops: dict[int, list[Stop]] = defaultdict(list)
        self._asked: dict[int, float] = {}
        self.gone: dict[int, float] = {}
        self.left: dict[int, float] = {}
        frozen: dict[int, float] = {}
        for entry in entries:
            number, at = entry.process, entry.at
            if entry.what == lines.KILLED and number:
                self._stops[number].append(Stop(at, inf, ours=True))
                self.gone.setdefault(number, at)
            elif entry.what == lines.FROZEN:
                frozen[number] = at
            elif entry.what == lines.THAWED:
                self._stops[number].append(Stop(frozen.pop(number), at, ours=True))
            elif entry.what == lines.STARVED:
                self._stops[number].append(Stop(entry.about["since"], at, ours=False))
            elif entry.what == lines.TERMINATED:
                self._asked.setdefault(number, at)
            elif entry.what == lines.LEFT:
                self.left[number] = at
            elif entry.what == lines.EXITED:
                self.gone.setdefault(number, at)
        for number, at in frozen.items():  # killed before it was thawed
            self._stops[number].append(Stop(at, inf, ours=True))

    def stops(self, number: int) -> list[Stop]:
        """Of the process, and of the server, without which nobody can extend a lease."""
        together: list[Stop] = []
        for stop in sorted([*self._stops[number], *self._stops[0]], key=lambda stop: stop.since):
            if together and stop.since <= together[-1].until + TOGETHER:
                former = together[-1]
                together[-1] = Stop(former.since, max(former.until, stop.until), former.ours or stop.ours)
            else:
                together.append(stop)
        return together

    def asked_to_end(self, number: int, before: float) -> bool:
        return self._asked.get(number, inf) < before

    def gave_back(self, number: int) -> float:
        """When a process that was asked to end can first have given back what its threads still worked on."""
        return self.left[number] - LAST_STEP if number in self._asked and number in self.left else inf


def runs_of(entries: Sequence[Entry]) -> dict[str, list[Run]]:
    """All runs of each message in the order of their tokens: that is the order of its deliveries."""
    by_token: dict[tuple[str, str], Run] = {}
    for entry in entries:
        if entry.what == lines.START:
            by_token[entry.id, entry.about["token"]] = Run(
                entry.id, entry.about["token"], entry.process, entry.at,
                entry.about["asked"], entry.about["attempt"], entry.about["crashes"],
            )  # fmt: skip
        elif entry.what == lines.END:
            run = by_token[entry.id, entry.about["token"]]
            run.ended, run.outcome = entry.at, entry.about["outcome"]
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in by_token.values():
        runs[run.id].append(run)
    return {id_: sorted(of_message, key=lambda run: run.token) for id_, of_message in runs.items()}
