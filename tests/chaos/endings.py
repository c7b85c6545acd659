"""What each message came to by the journal: completed, cancelled, dropped; or which of them it may have been.

Dead letters are there, by name. Of the rest the journal is sure, but where two ends met in the server: a cancel that was
never answered, say, or one of a message whose handler came to its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from tests.chaos import journal as lines
from tests.chaos import load
from tests.chaos.history import Processes, Run
from tests.chaos.journal import Entry

COMPLETED, CANCELLED, DROPPED = "completed", "cancelled", "dropped"
WAITED_FOR_ITS_START = {lines.RELEASED, lines.CANCELLED}
"""Ends after which a delivery counts as none: its message may expire as before."""


class Cancels:
    """Who was cancelled: ``gone`` at once, ``marked`` while it ran, ``unanswered``: nobody knows."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        answers: dict[str, set[str]] = {}
        unanswered: dict[tuple[int, str], int] = {}
        self.answered: dict[str, float] = {}
        """When the first answer was there: nothing starts that is asked for after it."""
        for entry in entries:
            if entry.what == lines.CANCELLING:
                answers.setdefault(entry.id, set())
                unanswered[entry.process, entry.id] = unanswered.get((entry.process, entry.id), 0) + 1
            elif entry.what == lines.CANCEL_DONE:
                answers.setdefault(entry.id, set()).add(entry.about["outcome"])
                unanswered[entry.process, entry.id] = unanswered.get((entry.process, entry.id), 1) - 1
                self.answered.setdefault(entry.id, entry.at)
        self.gone = {id_ for id_, said in answers.items() if "cancelled" in said}
        self.marked = {id_ for id_, said in answers.items() if "cancelling" in said} - self.gone
        open_ = {id_ for (_, id_), number in unanswered.items() if number > 0}
        self.unanswered = open_ - self.gone - self.marked

    @property
    def stored(self) -> set[str]:
        """Those that were there, by what was answered."""
        return self.gone | self.marked


class Endings:
    """Of all that were stored and are no letters."""

    def __init__(
        self,
        stored: Iterable[str],
        runs: dict[str, list[Run]],
        cancels: Cancels,
        processes: Processes,
    ) -> None:
        self._possible = {id_: _endings(id_, runs.get(id_, []), cancels, processes) for id_ in stored}

    @property
    def none(self) -> list[str]:
        """Those that came to no end."""
        return sorted(id_ for id_, ends in self._possible.items() if not ends)

    def range(self, end: str) -> tuple[int, int]:
        """Of how many this was the end: at least, and at most."""
        sure = sum(ends == {end} for ends in self._possible.values())
        return sure, sum(end in ends for ends in self._possible.values())


def _endings(id_: str, runs: Sequence[Run], cancels: Cancels, processes: Processes) -> set[str]:
    if id_ in cancels.gone:  # whoever ran it then had lost it
        return {CANCELLED}
    ends: set[str] = set()
    if any(run.outcome == lines.COMPLETED for run in runs):
        ends.add(COMPLETED)
    if id_ in cancels.marked or id_ in cancels.unanswered:
        ends.add(CANCELLED)
    if load.kind_of(id_) == load.DROPPING and not any(was_started(run, processes) for run in runs):
        ends.add(DROPPED)
    return ends


def was_started(run: Run, processes: Processes) -> bool:
    """And not given back uncounted: what was started once does not expire any more."""
    if run.outcome in WAITED_FOR_ITS_START or processes.gave_back(run.process) < run.ended:
        return False
    return run.outcome is not None or not processes.asked_to_end(run.process, before=inf)
