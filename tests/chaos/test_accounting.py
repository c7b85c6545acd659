"""The accounting finds what it is there to find, in journals that were made up, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import journal as lines
from tests.chaos.accounting import Account, Stock, account
from tests.chaos.journal import Entry, Journal, entries
from tests.chaos.load import MAX_CRASHES, PER_TENANT, SHARED, SHARING, time_to_live

VISIBILITY = 2.0
M = "elk.plain.o0.1"
NOTHING = Stock(waiting=0, enqueued=0, completed=0, dead_lettered=0, dead={}, findings=[])


@dataclass
class Story:
    """A journal that is made up, line by line; by default each message was enqueued, and is done in the end."""

    told: list[Entry] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)

    def add(self, at: float, process: int, what: str, id_: str = "", **about: Any) -> Story:
        self.told.append(Entry(at, process, what, id_, about))
        return self

    def enqueue(self, *ids: str, answered: bool = True) -> Story:
        self.add(0.0, 9, lines.ASKED, ids=list(ids))
        if answered:
            self.accepted |= set(ids)
            self.add(0.1, 9, lines.ACCEPTED, ids=list(ids))
        return self

    def start(
        self, at: float, process: int, id_: str = M, token: str = "1", crashes: int = 0,
        asked: float | None = None, attempt: int = 1,
    ) -> Story:  # fmt: skip
        """By default it was claimed at this very instant."""
        return self.add(
            at,
            process,
            lines.START,
            id_,
            token=token,
            crashes=crashes,
            attempt=attempt,
            asked=at if asked is None else asked,
        )

    def end(
        self, at: float, process: int, id_: str = M, token: str = "1", outcome: str = lines.COMPLETED
    ) -> Story:
        return self.add(at, process, lines.END, id_, token=token, outcome=outcome)

    def judged(self, stock: Stock | None = None) -> Account:
        messages = len(self.accepted)
        return account(
            sorted(self.told, key=lambda entry: entry.at),
            stock or replace(NOTHING, enqueued=messages, completed=messages, reclaimed=1),
            VISIBILITY,
        )


@pytest.fixture
def story() -> Story:
    return Story().enqueue(M)


# --- messages ----------------------------------------------------------------------------------------------------


def test_one_that_ran_once_is_accounted_for(story: Story) -> None:
    result = story.start(1, 1).end(2, 1).judged()
    assert result.ok
    assert (result.messages, result.deliveries, result.repeated) == (1, 1, 0)


def test_a_lost_message_is_found(story: Story) -> None:
    assert story.judged(replace(NOTHING, enqueued=1, completed=1)).lost == [M]
    story.start(1, 1).end(2, 1, outcome=lines.FAILED)
    assert story.judged(replace(NOTHING, enqueued=1, completed=1)).lost == [M]


def test_one_whose_enqueue_was_cut_short_may_have_been_stored_or_not() -> None:
    story = Story().enqueue(M, "elk.plain.o0.2", answered=False)
    assert story.judged().ok
    story.start(1, 1).end(2, 1)
    result = story.judged(replace(NOTHING, enqueued=1, completed=1))
    assert (result.ok, result.messages) == (True, 1)


def test_one_that_nobody_enqueued_is_found() -> None:
    result = Story().start(1, 1).end(2, 1).judged(replace(NOTHING, enqueued=1, completed=1))
    assert result.unbalanced == [f"{M} ran although nobody had enqueued it"]


def test_one_that_was_stored_or_completed_twice_is_found(story: Story) -> None:
    story.start(1, 1).end(2, 1)
    assert story.judged(replace(NOTHING, enqueued=2, completed=1)).unbalanced == [
        "enqueued: expected 1, the queue says 2"
    ]
    assert story.judged(replace(NOTHING, enqueued=1, completed=2)).unbalanced == [
        "completed, cancelled or dropped: expected 1, the queue says 2",
        "completed: 1 by the journal, the queue says 2",
    ]


def test_one_that_its_queue_does_not_count_is_found(story: Story) -> None:
    """The balance of the queue's own counts holds without it."""
    story.enqueue("elk.plain.o0.2").start(1, 1).end(2, 1).start(1, 2, "elk.plain.o0.2").end(
        2, 2, "elk.plain.o0.2"
    )
    assert story.judged(replace(NOTHING, enqueued=1, completed=1)).unbalanced == [
        "enqueued: expected 2, the queue says 1",
        "completed, cancelled or dropped: expected 2, the queue says 1",
        "completed: 2 by the journal, the queue says 1",
    ]


def test_one_that_was_counted_as_completed_and_never_was_is_found(story: Story) -> None:
    """Its handler was given it, and never came to its end."""
    story.start(1, 1)
    result = story.judged(replace(NOTHING, enqueued=1, completed=1))
    assert result.lost == [M]
    assert result.unbalanced == ["completed: 0 by the journal, the queue says 1"]


def test_a_letter_that_is_gone_is_found_though_its_handler_had_come_to_its_end(story: Story) -> None:
    """It was killed before its completion was settled, so the message came again, and died of its crashes in the end."""
    story.start(1, 1, crashes=MAX_CRASHES - 2).end(2, 1).add(2.1, 1, lines.KILLED)
    story.start(5, 2, token="2", crashes=MAX_CRASHES - 1).add(6, 2, lines.KILLED)
    there = replace(NOTHING, enqueued=1, dead_lettered=1, reclaimed=2, dead={M: ("worker lost", MAX_CRASHES)})
    assert story.judged(there).unbalanced == []
    assert story.judged(replace(there, dead={})).unbalanced == [
        "completed, cancelled or dropped: expected 1, the queue says 0",
        "completed: 1 by the journal, the queue says 0",
        "dead-lettered: expected 0, the queue says 1",
    ]


def test_what_is_left_waiting_is_wedged(story: Story) -> None:
    result = story.judged(replace(NOTHING, enqueued=1, waiting=1))
    assert result.wedged == 1
    assert not result.ok


@pytest.mark.parametrize(
    ("id_", "reason", "crashes", "rightly"),
    [
        ("elk.poison.o0.1", "failed", 0, True),
        ("elk.plain.o0.1", "worker lost", MAX_CRASHES, True),
        ("elk.plain.o0.1", "worker lost", MAX_CRASHES - 1, False),
        ("elk.plain.o0.1", "failed", 0, False),
    ],
)
def test_a_dead_letter_has_a_reason(id_: str, reason: str, crashes: int, rightly: bool) -> None:
    story = Story().enqueue(id_)
    stock = replace(NOTHING, enqueued=1, dead_lettered=1, reclaimed=1, dead={id_: (reason, crashes)})
    assert story.judged(stock).ok is rightly


@pytest.mark.parametrize(
    ("crashes", "thawed_at", "rightly"),
    [(MAX_CRASHES - 1, 8, True), (MAX_CRASHES - 2, 8, False), (MAX_CRASHES - 1, 2, False)],
)
def test_one_that_was_dead_may_have_been_completed_by_the_worker_that_was_thought_lost(
    story: Story, crashes: int, thawed_at: float, rightly: bool
) -> None:
    """On its last chance, and if its lease can have expired meanwhile."""
    story.start(1, 1, crashes=crashes).add(1.5, 1, lines.FROZEN).add(thawed_at, 1, lines.THAWED).end(9, 1)
    result = story.judged(replace(NOTHING, enqueued=1, completed=1, dead_lettered=1, reclaimed=1))
    assert (result.ok, result.late) == (rightly, int(rightly))


def test_no_more_may_have_died_than_the_journal_allows(story: Story) -> None:
    story.start(1, 1, crashes=MAX_CRASHES - 1).add(1.5, 1, lines.FROZEN).add(8, 1, lines.THAWED).end(9, 1)
    found = story.judged(replace(NOTHING, enqueued=1, completed=1, dead_lettered=2, reclaimed=2))
    assert found.unbalanced == ["dead-lettered: expected 0 to 1, the queue says 2"]


def test_a_letter_that_was_not_counted_is_found() -> None:
    story = Story().enqueue("elk.poison.o0.1")
    stock = replace(NOTHING, enqueued=1, dead={"elk.poison.o0.1": ("failed", 0)})
    assert story.judged(stock).unbalanced == ["dead-lettered: expected 1, the queue says 0"]


# --- repeats -----------------------------------------------------------------------------------------------------


def test_a_double_run_is_found(story: Story) -> None:
    result = story.start(1, 1).start(1.5, 2, token="2").end(2, 1).end(2, 2, token="2").judged()
    assert len(result.doubled) == 1
    assert not result.ok


def test_a_run_after_it_was_completed_is_found(story: Story) -> None:
    story.start(1, 1).end(2, 1).start(9, 2, token="2").end(10, 2, token="2")
    assert len(story.judged().doubled) == 1


@pytest.mark.parametrize("outcome", [lines.FAILED, lines.RETRIED, lines.RELEASED])
def test_one_that_asked_for_it_runs_again(story: Story, outcome: str) -> None:
    story.start(1, 1).end(2, 1, outcome=outcome).start(2.1, 2, token="2").end(3, 2, token="2")
    result = story.judged()
    assert (result.ok, result.repeated) == (True, 0)


@pytest.mark.parametrize(("back_at", "rightly"), [(1.2, False), (2.2, False), (2.4, True), (3.5, True)])
def test_after_a_kill_it_runs_again_when_its_lease_can_have_expired(
    story: Story, back_at: float, rightly: bool
) -> None:
    story.start(1, 1).add(1.1, 1, lines.KILLED).start(back_at, 2, token="2").end(9, 2, token="2")
    result = story.judged()
    assert (result.ok, result.after_expiry) == (rightly, int(rightly))


@pytest.mark.parametrize(("killed_at", "rightly"), [(2.1, True), (2.6, False)])
def test_a_kill_after_the_settlement_is_no_reason(story: Story, killed_at: float, rightly: bool) -> None:
    """It ends without its answer when the kill comes just after the handler's end."""
    story.start(1, 1).end(2, 1).add(killed_at, 1, lines.KILLED)
    story.start(5, 2, token="2").end(6, 2, token="2")
    assert story.judged().ok is rightly


def test_an_end_of_the_process_after_the_settlement_is_no_reason(story: Story) -> None:
    story.start(1, 1).end(2, 1).add(2.1, 1, lines.TERMINATED).add(4, 1, lines.LEFT)
    story.start(4.5, 2, token="2").end(5, 2, token="2")
    assert len(story.judged().doubled) == 1


def test_the_kill_of_another_process_is_no_reason(story: Story) -> None:
    story.start(1, 1).add(1.1, 3, lines.KILLED).start(5, 2, token="2").end(9, 2, token="2")
    assert len(story.judged().doubled) == 1


def test_frozen_for_longer_than_its_lease_it_runs_elsewhere_meanwhile(story: Story) -> None:
    story.start(1, 1).add(1.1, 1, lines.FROZEN).start(3.5, 2, token="2").end(3.6, 2, token="2")
    story.add(5, 1, lines.THAWED).end(5.1, 1, outcome=lines.CANCELLED)
    assert story.judged().ok


def test_a_handler_that_was_entered_before_a_freeze_may_say_so_after_it(story: Story) -> None:
    """The tokens tell the order of the deliveries."""
    story.add(1, 1, lines.FROZEN).start(3.5, 2, token="2").end(3.6, 2, token="2")
    story.add(5, 1, lines.THAWED).start(5.01, 1, token="1").end(5.1, 1, token="1", outcome=lines.CANCELLED)
    assert story.judged().ok


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_frozen_for_less_than_its_lease_has_left_is_no_reason(story: Story, seconds: float) -> None:
    story.start(1, 1).add(1.1, 1, lines.FROZEN).add(1.1 + seconds, 1, lines.THAWED)
    story.start(3.5, 2, token="2").end(4, 1).end(4, 2, token="2")
    assert len(story.judged().doubled) == 1


def test_want_of_a_processor_is_a_reason_that_is_told(story: Story) -> None:
    story.start(1, 1).add(4, 1, lines.STARVED, since=1.1).start(3.5, 2, token="2").end(5, 2, token="2")
    result = story.judged()
    assert (result.ok, result.on_a_slow_machine) == (True, 1)


@pytest.mark.parametrize(("between", "rightly"), [(0.2, True), (0.6, False)])
def test_short_stops_one_after_the_other_are_one(story: Story, between: float, rightly: bool) -> None:
    """Its own, then the server's: no extend gets through between two of them unless there is time for it."""
    story.start(1, 1).add(2, 1, lines.STARVED, since=1.1)
    story.add(3 + between, 0, lines.STARVED, since=2 + between)
    story.start(3.5, 2, token="2").end(5, 1).end(5, 2, token="2")
    assert story.judged().ok is rightly


def test_an_outage_of_the_server_is_no_reason(story: Story) -> None:
    story.start(1, 1).add(1.1, 0, lines.KILLED).add(4, 0, lines.BACK)
    story.start(4.5, 2, token="2").end(5, 1).end(5, 2, token="2")
    assert len(story.judged().doubled) == 1


@pytest.mark.parametrize("asked", [True, False])
def test_cancelled_it_runs_again_only_if_its_process_was_asked_to_end(story: Story, asked: bool) -> None:
    if asked:
        story.add(1.5, 1, lines.TERMINATED)
    story.start(1, 1).end(2, 1, outcome=lines.CANCELLED).start(2.1, 2, token="2").end(3, 2, token="2")
    result = story.judged()
    assert (result.ok, result.after_shutdown) == (asked, int(asked))


@pytest.mark.parametrize(("left_at", "rightly"), [(2.05, True), (2.5, False)])
def test_what_a_thread_works_on_runs_again_when_its_process_ends(
    story: Story, left_at: float, rightly: bool
) -> None:
    story.start(1, 1).add(1.5, 1, lines.TERMINATED).add(left_at, 1, lines.LEFT)
    story.start(2, 2, token="2").end(3, 2, token="2")
    assert story.judged().ok is rightly


# --- limits ------------------------------------------------------------------------------------------------------


def together(tenants: list[str]) -> Story:
    """One message of each runs from 1 to 2, each in a process of its own."""
    ids = [f"{tenant}.plain.o0.{n}" for n, tenant in enumerate(tenants)]
    story = Story().enqueue(*ids)
    for process, id_ in enumerate(ids, 10):
        story.start(1 + process / 1000, process, id_).end(2 + process / 1000, process, id_)
    return story


def test_as_many_as_the_limits_allow_are_no_problem() -> None:
    result = together(["elk"] * PER_TENANT + ["fox"] * PER_TENANT).judged()
    assert result.ok
    assert result.peaks == {"elk": PER_TENANT, "fox": PER_TENANT}


def test_an_exceeded_limit_of_a_tenant_is_found() -> None:
    result = together(["elk"] * (PER_TENANT + 1)).judged()
    assert len(result.exceeded) == 1
    assert result.exceeded[0].startswith(f"elk: {PER_TENANT + 1} of {PER_TENANT}")


def test_an_exceeded_limit_of_the_shared_group_is_found() -> None:
    tenants = [tenant for tenant in SHARING for _ in range(PER_TENANT)][: SHARED + 1]
    assert together(tenants).judged().exceeded[0].startswith(f"pack: {SHARED + 1} of {SHARED}")


def test_what_was_killed_runs_no_longer() -> None:
    story = Story().enqueue(*(f"elk.plain.o0.{n}" for n in range(2 * PER_TENANT)))
    for n in range(PER_TENANT):
        story.start(1, 1, f"elk.plain.o0.{n}")
    story.add(2, 1, lines.KILLED)
    for n in range(PER_TENANT, 2 * PER_TENANT):
        story.start(4, 2, f"elk.plain.o0.{n}").end(5, 2, f"elk.plain.o0.{n}")
    assert story.judged().exceeded == []


@pytest.mark.parametrize(("others_at", "exceeded"), [(2.5, 1), (4, 0)])
def test_what_is_frozen_holds_its_slot_until_its_lease_can_have_expired(
    others_at: float, exceeded: int
) -> None:
    ids = [f"elk.plain.o0.{n}" for n in range(PER_TENANT + 1)]
    story = Story().enqueue(*ids).start(1, 1, ids[0]).add(2, 1, lines.FROZEN).add(9, 1, lines.THAWED)
    for id_ in ids[1:]:
        story.start(others_at, 2, id_).end(others_at + 1, 2, id_)
    story.end(9.1, 1, ids[0])
    assert len(story.judged().exceeded) == exceeded


# --- the file ----------------------------------------------------------------------------------------------------


def test_lines_of_several_processes_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    one, other = Journal(path, 1), Journal(path, 2)
    one.write(lines.START, M, token="1", crashes=0)
    other.write(lines.STARVED, since=1.0)
    one.write(lines.KILLED, process=2)
    one.close()
    other.close()
    read = entries(path)
    assert [(entry.process, entry.what, entry.id) for entry in read] == [
        (1, lines.START, M),
        (2, lines.STARVED, ""),
        (2, lines.KILLED, ""),
    ]
    assert read[0].about == {"token": "1", "crashes": 0}
    assert sorted(entry.at for entry in read) == [entry.at for entry in read]


def test_more_repeats_than_leases_that_were_taken_back_are_told(story: Story) -> None:
    story.start(1, 1).add(1.2, 1, lines.KILLED).start(3.5, 2, token="2").end(4, 2, token="2")
    stock = replace(NOTHING, enqueued=1, completed=1, reclaimed=0)
    assert story.judged(stock).unbalanced == [
        "1 deliveries came after an expiry, and 0 messages died of one, but only 0 leases were taken back"
    ]


@pytest.mark.parametrize(("reclaimed", "rightly"), [(1, True), (0, False)])
def test_one_that_died_of_an_expiry_was_taken_back(story: Story, reclaimed: int, rightly: bool) -> None:
    story.start(1, 1, crashes=MAX_CRASHES - 1).add(1.2, 1, lines.KILLED)
    stock = replace(NOTHING, enqueued=1, dead_lettered=1, dead={M: ("worker lost", MAX_CRASHES)})
    assert story.judged(replace(stock, reclaimed=reclaimed)).ok is rightly


# --- cancels, times to live ------------------------------------------------------------------------------------------

DROPPING = "elk.dropping.o0.1"
EXPIRING = "elk.expiring.o0.1"
EXPIRED = replace(
    NOTHING, enqueued=1, dead_lettered=1, expired=1, dead={EXPIRING: ("expired", 0)}, waited={EXPIRING: 60.0}
)


def cancelled(story: Story, outcome: str | None, id_: str = M, at: float = 1.0) -> Story:
    story.add(at - 0.1, 9, lines.CANCELLING, id_)
    return story if outcome is None else story.add(at, 9, lines.CANCEL_DONE, id_, outcome=outcome)


@pytest.mark.parametrize("outcome", ["cancelled", "cancelling", None])
def test_one_that_was_cancelled_is_accounted_for_as_that(story: Story, outcome: str | None) -> None:
    cancelled(story, outcome)
    assert story.judged(replace(NOTHING, enqueued=1, cancelled=1)).ok
    assert not story.judged(replace(NOTHING, enqueued=1, completed=1)).ok
    assert not story.judged(replace(NOTHING, enqueued=1)).ok


def test_one_that_was_not_found_by_its_cancel_and_never_ran_is_lost(story: Story) -> None:
    cancelled(story, "not_found")
    assert story.judged(replace(NOTHING, enqueued=1)).lost == [M]


def test_one_that_is_counted_as_cancelled_and_never_was_is_found(story: Story) -> None:
    story.start(1, 1).end(2, 1)
    assert story.judged(replace(NOTHING, enqueued=1, cancelled=1)).unbalanced == [
        "completed: 1 by the journal, the queue says 0",
        "cancelled: 0 by the journal, the queue says 1",
    ]


@pytest.mark.parametrize(
    ("outcome", "may_be_completed"), [("cancelled", False), ("cancelling", True), (None, True)]
)
def test_a_completion_beats_a_mark_and_no_cancel_that_was_done(
    story: Story, outcome: str | None, may_be_completed: bool
) -> None:
    """Its handler may have come to its end after its lease had expired."""
    cancelled(story.start(0.5, 1).end(2, 1), outcome)
    assert story.judged(replace(NOTHING, enqueued=1, cancelled=1)).ok
    assert story.judged(replace(NOTHING, enqueued=1, completed=1)).ok is may_be_completed


@pytest.mark.parametrize("outcome", ["cancelled", "cancelling"])
def test_a_letter_whose_cancel_was_answered_is_found(outcome: str) -> None:
    poison = "elk.poison.o0.1"
    story = cancelled(Story().enqueue(poison), outcome, poison)
    dead = replace(NOTHING, enqueued=1, dead_lettered=1, dead={poison: ("failed", 0)})
    assert story.judged(dead).unbalanced[-1] == f"{poison} is dead, and its cancel was answered"


@pytest.mark.parametrize(("id_", "rightly"), [("elk.poison.o0.1", True), (M, False)])
def test_a_cancelled_one_may_have_been_a_letter_if_its_kind_dies(id_: str, rightly: bool) -> None:
    story = cancelled(Story().enqueue(id_), "cancelled", id_)
    assert story.judged(replace(NOTHING, enqueued=1, dead_lettered=1, cancelled=1)).ok is rightly


def test_one_that_expired_is_a_letter_or_dropped() -> None:
    assert Story().enqueue(EXPIRING).judged(EXPIRED).ok
    assert Story().enqueue(DROPPING).judged(replace(NOTHING, enqueued=1, dropped=1, expired=1)).ok


def test_one_without_a_time_to_live_did_not_expire(story: Story) -> None:
    assert story.judged(replace(NOTHING, enqueued=1, dropped=1, expired=1)).lost == [M]
    dead = replace(EXPIRED, dead={M: ("expired", 0)}, waited={M: 60.0})
    assert story.judged(dead).unbalanced == [f"{M} is dead: expired after 0 crashes"]


def test_one_that_expired_before_its_time_is_found() -> None:
    early = Story().enqueue(EXPIRING).judged(replace(EXPIRED, waited={EXPIRING: 0.1}))
    assert early.unbalanced == [f"{EXPIRING} expired after 0.100 s, before its time"]


@pytest.mark.parametrize("id_", ["ant.expiring.ow0-509.38", "hen.expiring.ow1-245.47"])
def test_one_that_expired_in_the_millisecond_of_its_time_is_right(id_: str) -> None:
    """Of the server's two times the difference is 0.566 s and 0.828 s: 0.3 + 0.266 is a little more than that."""
    lived = timedelta(milliseconds=round(1000 * (time_to_live(id_) or 0))).total_seconds()
    assert Story().enqueue(id_).judged(replace(EXPIRED, dead={id_: ("expired", 0)}, waited={id_: lived})).ok


def test_one_that_expired_after_its_start_is_found() -> None:
    story = Story().enqueue(EXPIRING).start(0.2, 1, EXPIRING).add(0.3, 1, lines.KILLED)
    assert story.judged(EXPIRED).unbalanced == [f"{EXPIRING} expired although it was started"]


def test_one_that_was_dropped_after_its_start_is_lost() -> None:
    story = Story().enqueue(DROPPING).start(0.2, 1, DROPPING).end(0.3, 1, DROPPING, outcome=lines.FAILED)
    assert story.judged(replace(NOTHING, enqueued=1, dropped=1, expired=1)).lost == [DROPPING]


def test_a_start_that_was_given_back_is_none() -> None:
    story = Story().enqueue(EXPIRING).start(0.2, 1, EXPIRING).end(0.3, 1, EXPIRING, outcome=lines.RELEASED)
    assert story.judged(EXPIRED).ok


def test_one_that_expired_and_is_not_counted_is_found() -> None:
    assert Story().enqueue(EXPIRING).judged(replace(EXPIRED, expired=0)).unbalanced == [
        "expired: 1 by the letters and drops, the queue says 0"
    ]


def test_one_that_was_dropped_before_its_producer_knew_of_it_is_nowhere_but_in_the_counts() -> None:
    story = Story().enqueue(DROPPING, answered=False)
    gone = replace(NOTHING, enqueued=1, dropped=1, expired=1)
    assert story.judged(NOTHING).ok
    assert story.judged(gone).ok
    assert not story.judged(replace(gone, dropped=0, expired=0)).ok
    assert not story.judged(replace(gone, enqueued=2, dropped=2, expired=2)).ok
    assert not Story().enqueue(M, answered=False).judged(gone).ok
