"""What the journal and the stock say of a run: who was lost, who ran twice, which limit was exceeded.

enqueued = completed + dead + dropped + cancelled + waiting; what expired is dead or dropped.

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
from tests.chaos.endings import CANCELLED, COMPLETED, DROPPED, Cancels, Endings, was_started
from tests.chaos.flow import Flow
from tests.chaos.history import Processes, Run, runs_of
from tests.chaos.journal import Entry

SURE = 0.6
"""The part of a visibility timeout that every lease has left when its process is stopped: extends come every quarter,
one may be late by an eighth, and a process or server that is late by more says so itself. A stop that lets a lease
expire is no shorter."""

SETTLING = 0.5
"""Seconds after the end of a handler in which the settlement of its message may still be under way, and be cut short."""

JUST = 0.05
"""A handler may have been entered before a stop of its process, and have written its first line after it."""

LOST = "worker lost"
"""The reason of a dead letter whose workers were gone too often."""

EXPIRED = "expired"
"""The reason of a dead letter that was not started in time."""

ENDED = "completed, cancelled or dropped"

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
    cancelled: int = 0
    dropped: int = 0
    expired: int = 0
    """Messages that were not started in time: letters and dropped ones."""
    waited: dict[str, float] = field(default_factory=dict)
    """Of each letter: the seconds from its acceptance to its death."""


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
    forbidden: list[str] = field(default_factory=list)
    """What was started although it was paused, cancelled, expired or out of tokens."""
    pauses: int = 0
    cancels: int = 0
    expired: int = 0
    rated: int = 0
    """Deliveries under a rate."""

    @property
    def ok(self) -> bool:
        return not (
            self.lost or self.wedged or self.doubled or self.exceeded or self.unbalanced or self.forbidden
        )


def account(entries: Sequence[Entry], stock: Stock, visibility: float = load.VISIBILITY) -> Account:
    """Judges a whole run."""
    result, processes, sure = Account(), Processes(entries), SURE * visibility
    runs, cancels = runs_of(entries), Cancels(entries)
    _count(result, entries, runs, cancels, processes, stock)
    _count_dead(result, runs, cancels, processes, stock, sure)
    result.deliveries = sum(map(len, runs.values()))
    for several in runs.values():
        for former, later in pairwise(several):
            _judge_repeat(result, former, later, processes, sure)
    _count_reclaimed(result, stock)
    every_run = [run for several in runs.values() for run in several]
    _judge_limits(result, every_run, processes, sure)
    flow = Flow(entries, every_run, cancels)
    result.forbidden, result.rated = flow.problems(), flow.rated
    result.pauses, result.cancels = flow.pauses, len(cancels.answered)
    return result


def _enqueued(entries: Sequence[Entry], what: str) -> set[str]:
    return {id_ for entry in entries if entry.what == what for id_ in entry.about["ids"]}


# --- every message, by its id --------------------------------------------------------------------------------------


def _count(
    result: Account, entries: Sequence[Entry], runs: dict[str, list[Run]], cancels: Cancels,
    processes: Processes, stock: Stock,
) -> None:  # fmt: skip
    """Whoever was killed before its enqueue had answered may have stored something: that is known by what ran.

    The producers' lines and the handlers' are two sources: what was stored, and what came to its end. The queue's own
    counts have to agree with each.
    """
    asked = _enqueued(entries, lines.ASKED)
    stored = _enqueued(entries, lines.ACCEPTED) | runs.keys() | stock.dead.keys() | cancels.stored
    unseen = {id_ for id_ in asked - stored if load.kind_of(id_) == load.DROPPING}
    endings = Endings(stored - stock.dead.keys(), runs, cancels, processes)
    result.messages, result.wedged, result.lost = len(stored), stock.waiting, endings.none
    _differ(
        result,
        "enqueued: expected {}, the queue says {}",
        len(stored),
        len(stored) + len(unseen),
        stock.enqueued,
    )
    left = len(stored) - len(stock.dead) - stock.waiting
    ended = stock.completed + stock.cancelled + stock.dropped
    _differ(result, ENDED + ": expected {}, the queue says {}", left, left + len(unseen), ended)
    if not stock.waiting:
        _count_endings(result, endings, stock, unseen=min(len(unseen), max(0, stock.enqueued - len(stored))))
    result.unbalanced += [f"{id_} ran although nobody had enqueued it" for id_ in sorted(stored - asked)]
    result.unbalanced += [
        f"{id_} is dead, and its cancel was answered" for id_ in sorted(cancels.stored & stock.dead.keys())
    ]


def _count_endings(result: Account, endings: Endings, stock: Stock, unseen: int) -> None:
    """``unseen`` were dropped before anybody but the queue knew that they were stored."""
    counted = {COMPLETED: stock.completed, CANCELLED: stock.cancelled, DROPPED: stock.dropped}
    for end, number in counted.items():
        least, most = endings.range(end)
        more = unseen if end == DROPPED else 0
        _differ(result, end + ": {} by the journal, the queue says {}", least + more, most + more, number)


def _differ(result: Account, text: str, least: int, most: int, counted: int) -> None:
    if not least <= counted <= most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        result.unbalanced.append(text.format(expected, counted))


def _count_dead(
    result: Account,
    runs: dict[str, list[Run]],
    cancels: Cancels,
    processes: Processes,
    stock: Stock,
    sure: float,
) -> None:
    """Each letter was counted once; besides them only what the journal allows: nothing is fitted to the queue's count."""
    late = {
        id_ for id_, all_of_it in runs.items()
        if id_ not in stock.dead and _may_have_died(all_of_it[-1], processes, sure)
    }  # fmt: skip
    cancelled = {
        id_ for id_ in cancels.gone | cancels.unanswered
        if id_ not in stock.dead and _may_be_a_letter(id_, runs.get(id_, []))
    }  # fmt: skip
    least, most = len(stock.dead), len(stock.dead) + len(late | cancelled)
    _differ(result, "dead-lettered: expected {}, the queue says {}", least, most, stock.dead_lettered)
    result.late = min(len(late), max(0, stock.dead_lettered - least - len(cancelled)))
    result.unbalanced += [
        f"{id_} is dead: {reason} after {crashes} crashes"
        for id_, (reason, crashes) in stock.dead.items()
        if not _has_reason(id_, reason, crashes)
    ]
    _count_expired(result, runs, cancelled, processes, stock)


def _has_reason(id_: str, reason: str, crashes: int) -> bool:
    kind = load.kind_of(id_)
    if reason == EXPIRED:
        return kind == load.EXPIRING
    return kind in load.DYING or (reason == LOST and crashes >= load.MAX_CRASHES)


def _may_be_a_letter(id_: str, runs: Sequence[Run]) -> bool:
    """What was cancelled may have been one before."""
    dies = load.kind_of(id_) in (*load.DYING, load.EXPIRING)
    return dies or (bool(runs) and runs[-1].crashes == load.MAX_CRASHES - 1)


def _count_expired(
    result: Account, runs: dict[str, list[Run]], cancelled: set[str], processes: Processes, stock: Stock
) -> None:
    """Not before its time, and not after its start."""
    letters = sorted(id_ for id_, (reason, _) in stock.dead.items() if reason == EXPIRED)
    least = len(letters) + stock.dropped
    most = least + sum(load.kind_of(id_) == load.EXPIRING for id_ in cancelled)
    _differ(result, "expired: {} by the letters and drops, the queue says {}", least, most, stock.expired)
    result.expired = stock.expired
    for id_ in letters:
        if stock.waited[id_] < (load.time_to_live(id_) or 0):
            result.unbalanced.append(f"{id_} expired after {stock.waited[id_]:.3f} s, before its time")
        if any(was_started(run, processes) for run in runs.get(id_, [])):
            result.unbalanced.append(f"{id_} expired although it was started")


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


def _count_reclaimed(result: Account, stock: Stock) -> None:
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
