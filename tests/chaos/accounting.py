"""What the journal and the stock say of a run: who was lost, who ran twice, which limit was exceeded.

Nothing here asks the queue. A handler's interval begins with its first line and ends with its last one, with the kill of
its process, or, if that was frozen, when its lease can first have expired: from then on its slot may be somebody else's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from tests.chaos import journal as lines
from tests.chaos import load
from tests.chaos.journal import Entry

SURE = 0.6
"""The part of a visibility timeout that every lease has left when its process is stopped: extends come every quarter,
one may be late by an eighth, and a process or server that is late by more says so itself. A stop that lets a lease
expire is no shorter."""

TOGETHER = 0.25
"""Stops with no more between them than these seconds are one: an extend needs longer to be tried and answered."""

SETTLING = 0.5
"""Seconds after the end of a handler in which the settlement of its message may still be under way, and be cut short."""

LAST_STEP = 0.1
"""Seconds between the moment when a process that was asked to end gives back what threads still work on, and its end."""

JUST = 0.05
"""A handler may have been entered before a stop of its process, and have written its first line after it."""

LOST = "worker lost"
"""The reason of a dead letter whose workers were gone too often."""

SETTLED_AGAIN = {lines.FAILED, lines.RETRIED, lines.RELEASED}
"""Ends after which a message comes again by itself."""


@dataclass(frozen=True, slots=True)
class Stock:
    """What the queue says of itself when all is over. ``dead``: reason and crashes of each letter, by message."""

    waiting: int
    enqueued: int
    completed: int
    dead_lettered: int
    dead: dict[str, tuple[str, int]]
    findings: list[str]
    reclaimed: int = 0
    """Expired leases that were taken back, by the server's count."""


@dataclass(slots=True)
class Account:
    """The outcome. All lists but the counts are empty when every promise was kept."""

    messages: int = 0
    deliveries: int = 0
    repeated: int = 0
    """Deliveries after another one that no kill, freeze or end of its process cut short, and no handler asked for."""
    after_expiry: int = 0
    after_shutdown: int = 0
    on_a_slow_machine: int = 0
    """Of those after an expired lease: their process was not touched, it had no processor for too long."""
    late: int = 0
    """Messages that were dead, lost by their worker too often, when that worker came back and completed them. The queue's
    count: the journal tells which they may have been, and there are no more."""
    peaks: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    wedged: int = 0
    doubled: list[str] = field(default_factory=list)
    exceeded: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.wedged or self.doubled or self.exceeded or self.unbalanced)


@dataclass(frozen=True, slots=True)
class Stop:
    """A time in which a process did not run. ``ours``: we stopped it."""

    since: float
    until: float
    ours: bool


@dataclass(slots=True)
class Run:
    """One start of a handler, and its end if it came to that."""

    id: str
    token: str
    process: int
    at: float
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


def account(entries: Sequence[Entry], stock: Stock, visibility: float = load.VISIBILITY) -> Account:
    """Judges a whole run."""
    result, processes = Account(), Processes(entries)
    runs = runs_of(entries)
    asked, accepted = _enqueued(entries, lines.ASKED), _enqueued(entries, lines.ACCEPTED)
    _count(result, runs, asked, accepted, stock)
    _count_dead(result, runs, processes, stock, SURE * visibility)
    result.deliveries = sum(map(len, runs.values()))
    for several in runs.values():
        for former, later in pairwise(several):
            _judge_repeat(result, former, later, processes, SURE * visibility)
    _count_expired(result, stock)
    _judge_limits(result, [run for several in runs.values() for run in several], processes, SURE * visibility)
    return result


def runs_of(entries: Sequence[Entry]) -> dict[str, list[Run]]:
    """All runs of each message in the order of their tokens: that is the order of its deliveries."""
    by_token: dict[tuple[str, str], Run] = {}
    for entry in entries:
        if entry.what == lines.START:
            by_token[entry.id, entry.about["token"]] = Run(
                entry.id, entry.about["token"], entry.process, entry.at, entry.about["crashes"]
            )
        elif entry.what == lines.END:
            run = by_token[entry.id, entry.about["token"]]
            run.ended, run.outcome = entry.at, entry.about["outcome"]
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in by_token.values():
        runs[run.id].append(run)
    return {id_: sorted(of_message, key=lambda run: run.token) for id_, of_message in runs.items()}


def _enqueued(entries: Sequence[Entry], what: str) -> set[str]:
    return {id_ for entry in entries if entry.what == what for id_ in entry.about["ids"]}


# --- every message, by its id --------------------------------------------------------------------------------------


def _count(
    result: Account, runs: dict[str, list[Run]], asked: set[str], accepted: set[str], stock: Stock
) -> None:
    """Whoever was killed before its enqueue had answered may have stored something: that is known by what ran.

    The producers' lines and the handlers' are two sources: what was stored, and what came to its end. The queue's own
    counts have to agree with each.
    """
    stored = accepted | runs.keys() | stock.dead.keys()
    done = {
        id_ for id_, all_of_it in runs.items() if any(run.outcome == lines.COMPLETED for run in all_of_it)
    }
    result.messages, result.wedged = len(stored), stock.waiting
    result.lost = sorted(stored - done - stock.dead.keys())
    result.unbalanced += [
        f"{what}: expected {expected}, the queue says {counted}"
        for what, expected, counted in (
            ("enqueued", len(stored), stock.enqueued),
            ("completed", len(stored) - len(stock.dead) - stock.waiting, stock.completed),
        )
        if expected != counted
    ]
    by_handlers = len(done - stock.dead.keys())
    if not stock.waiting and by_handlers != stock.completed:
        result.unbalanced.append(
            f"completed: {by_handlers} by the handlers' lines, the queue says {stock.completed}"
        )
    result.unbalanced += [f"{id_} ran although nobody had enqueued it" for id_ in sorted(stored - asked)]
    result.unbalanced += [
        f"{id_} is dead: {reason} after {crashes} crashes"
        for id_, (reason, crashes) in stock.dead.items()
        if load.kind_of(id_) not in load.DYING and not (reason == LOST and crashes >= load.MAX_CRASHES)
    ]


def _count_dead(
    result: Account, runs: dict[str, list[Run]], processes: Processes, stock: Stock, sure: float
) -> None:
    """Each letter was counted once; besides them only what the journal allows: nothing is fitted to the queue's count."""
    late = {
        id_ for id_, all_of_it in runs.items()
        if id_ not in stock.dead and _may_have_died(all_of_it[-1], processes, sure)
    }  # fmt: skip
    least, most = len(stock.dead), len(stock.dead) + len(late)
    if not least <= stock.dead_lettered <= most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        result.unbalanced.append(f"dead-lettered: expected {expected}, the queue says {stock.dead_lettered}")
    result.late = min(len(late), max(0, stock.dead_lettered - least))


def _may_have_died(last: Run, processes: Processes, sure: float) -> bool:
    """On its last chance its lease may have expired, the message have died, and its completion, come late, have counted."""
    return (
        last.outcome == lines.COMPLETED
        and last.crashes == load.MAX_CRASHES - 1
        and any(
            stop.until - stop.since >= sure
            for stop in processes.stops(last.process)
            if last.at - sure < stop.until and stop.since < last.ended + SETTLING
        )
    )


def _count_expired(result: Account, stock: Stock) -> None:
    """Whatever came of an expired lease, it was taken back: another delivery, a letter, or a letter that was completed."""
    letters = sum(reason == LOST for reason, _ in stock.dead.values())
    if result.after_expiry + letters + result.late > stock.reclaimed:
        result.unbalanced.append(
            f"{result.after_expiry} deliveries came after an expiry, and {letters + result.late} messages died of one, "
            f"but only {stock.reclaimed} leases were taken back"
        )


# --- every repeat ----------------------------------------------------------------------------------------------------


def _judge_repeat(result: Account, former: Run, later: Run, processes: Processes, sure: float) -> None:
    if former.ended < later.at and former.outcome in SETTLED_AGAIN:
        return
    result.repeated += 1
    given_back = former.outcome == lines.CANCELLED and processes.asked_to_end(former.process, former.ended)
    at_the_end = processes.gave_back(former.process)
    if (given_back and former.ended < later.at) or at_the_end < min(later.at, former.ended):
        result.after_shutdown += 1
        return
    # A stop just before the start counts: the lease was not extended meanwhile. One after the settlement does not.
    causes = [
        stop for stop in processes.stops(former.process)
        if former.at - sure < stop.until and stop.since < former.ended + SETTLING
        and min(stop.until, later.at) - stop.since >= sure
    ]  # fmt: skip
    if not causes:
        result.doubled.append(
            f"{former.id}: started at {former.at:.3f} by {former.process} ({former.outcome or 'no end'} at "
            f"{former.ended:.3f}) and at {later.at:.3f} by {later.process}"
        )
        return
    result.after_expiry += 1
    result.on_a_slow_machine += not any(stop.ours for stop in causes)


# --- every limit -----------------------------------------------------------------------------------------------------


def _judge_limits(result: Account, runs: list[Run], processes: Processes, sure: float) -> None:
    changes: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    limits: dict[str, int] = {}
    for run in runs:
        until = _holds_until(run, processes, sure)
        groups = load.groups(load.tenant_of(run.id))
        limits |= groups
        for group in groups:
            changes[group] += [(run.at, +1, run.id), (until, -1, run.id)]
    for group, of_group in sorted(changes.items()):
        running = 0
        for at, change, id_ in sorted(of_group):  # at one instant ends come first
            running += change
            result.peaks[group] = max(result.peaks.get(group, 0), running)
            if change > 0 and running > limits[group]:
                result.exceeded.append(f"{group}: {running} of {limits[group]} at {at:.3f} with {id_}")


def _holds_until(run: Run, processes: Processes, sure: float) -> float:
    """How long this run certainly held its slots."""
    until = min(run.ended, processes.gone.get(run.process, inf), processes.gave_back(run.process))
    lapses = [
        stop.since + sure for stop in processes.stops(run.process)
        if stop.until > run.at - JUST and stop.until - stop.since >= sure
    ]  # fmt: skip
    return max(run.at, min([until, *lapses]))
