"""What was started although it must not is found, in journals that were made up, and nothing else."""

from __future__ import annotations

import random
from itertools import count

import pytest

from tests.chaos import journal as lines
from tests.chaos import load
from tests.chaos.flow import CLOCKS, LATE
from tests.chaos.operating import Selectors, drawn
from tests.chaos.test_accounting import Story, cancelled

M = "elk.plain.o0.1"
EXPIRING = "elk.expiring.o0.1"
BUSY = "hen"
RATE = load.RATES[BUSY]
OWN: list[Selectors] = [
    ("elk", None, None),
    (None, load.queue_of(M), None),
    (None, None, load.pool_of(M)),
    ("elk", load.queue_of(M), None),
]


def forbidden(story: Story) -> list[str]:
    return story.judged().forbidden


def started(at: float, asked: float | None = None, id_: str = M, attempt: int = 1) -> Story:
    """From a claim of that instant, or one that was asked for before."""
    story = Story().enqueue(id_)
    return story.start(at, 1, id_, asked=asked, attempt=attempt).end(at + 0.1, 1, id_)


# --- pauses ----------------------------------------------------------------------------------------------------------


def paused(story: Story, selectors: Selectors, since: float = 1.0, until: float | None = 3.0) -> Story:
    story.add(since, 8, lines.PAUSED, selectors=list(selectors))
    return story if until is None else story.add(until, 8, lines.RESUMING, selectors=list(selectors))


@pytest.mark.parametrize("selectors", OWN)
@pytest.mark.parametrize("until", [3.0, None])
def test_a_start_while_paused_is_found(selectors: Selectors, until: float | None) -> None:
    (found,) = forbidden(paused(started(2.0), selectors, until=until))
    assert found.startswith(f"{M}: started at 2.000, paused by")


@pytest.mark.parametrize("selectors", [("fox", None, None), ("elk", "third", None), (None, None, "third")])
def test_a_pause_of_others_is_no_concern(selectors: Selectors) -> None:
    assert forbidden(paused(started(2.0), selectors)) == []


@pytest.mark.parametrize(("asked", "at"), [(0.9, 2.0), (2.9, 3.1), (0.5, 0.9), (3.1, 3.2)])
def test_what_may_have_been_claimed_before_or_after_is_none(asked: float, at: float) -> None:
    assert forbidden(paused(started(at, asked), OWN[0])) == []


def test_each_pause_stands_by_itself() -> None:
    story = paused(paused(started(2.0), OWN[0], until=1.5), OWN[1])
    assert len(forbidden(story)) == 1


def test_a_pause_that_is_repeated_stands_until_it_is_lifted() -> None:
    story = paused(started(2.0), OWN[0], until=None).add(2.5, 8, lines.PAUSED, selectors=list(OWN[0]))
    assert len(forbidden(story)) == 1


def test_whatever_may_be_paused_can_be_met() -> None:
    """By messages that there are: a pause of what nobody has would show nothing."""
    rng = random.Random(1)
    messages = [load.draw(rng, "o0", number) for number in range(500)]
    for selectors in {drawn(rng) for _ in range(300)}:
        assert any(
            all(
                want in (None, have)
                for want, have in zip(selectors, (m.tenant, m.queue, m.pool), strict=True)
            )
            for m in messages
        )


# --- cancels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["cancelled", "cancelling", "not_found"])
def test_a_start_after_an_answered_cancel_is_found(outcome: str) -> None:
    (found,) = forbidden(cancelled(started(2.0, 1.1), outcome, at=1.0))
    assert found == f"{M}: started at 2.000, its cancel was answered at 1.000"


def test_what_may_have_been_claimed_before_the_answer_may_start() -> None:
    assert forbidden(cancelled(started(2.0, 0.9), "cancelling", at=1.0)) == []
    assert forbidden(cancelled(started(2.0, 1.1), None, at=1.0)) == []


# --- times to live ---------------------------------------------------------------------------------------------------


def test_a_late_start_is_found() -> None:
    ends = 0.1 + (load.time_to_live(EXPIRING) or 0)
    assert forbidden(started(ends + 0.2, ends + 0.1, EXPIRING)) == [
        f"{EXPIRING}: started at {ends + 0.2:.3f}, not to be after {ends:.3f}"
    ]
    assert forbidden(started(ends + 0.2, ends - 0.1, EXPIRING)) == []


def test_one_that_was_started_in_time_may_be_started_again() -> None:
    assert forbidden(started(60.0, 60.0, EXPIRING, attempt=2)) == []


def test_nobody_knows_when_one_was_accepted_whose_producer_got_no_answer() -> None:
    story = Story().enqueue(EXPIRING, answered=False).start(60, 1, EXPIRING).end(61, 1, EXPIRING)
    assert forbidden(story) == []


# --- rates -----------------------------------------------------------------------------------------------------------


def stream(number: int, apart: float, rated_at: float = 0.5, waited: float = 0.0) -> Story:
    """So many of one tenant, evenly apart from 1.0 on."""
    story = Story().add(rated_at, 8, lines.RATED, group=BUSY)
    numbers = count()
    for _ in range(number):
        n = next(numbers)
        at, id_ = 1.0 + n * apart, f"{BUSY}.plain.o0.{n}"
        story.enqueue(id_).start(at + waited, n + 10, id_, asked=at).end(at + waited, n + 10, id_)
    return story


def test_a_burst_and_what_comes_after_it_are_no_problem() -> None:
    assert forbidden(stream(RATE.burst, 0)) == []
    assert forbidden(stream(50 * RATE.n, 1 / RATE.n)) == []
    assert stream(RATE.burst, 0).judged().rated == RATE.burst


def test_one_more_than_the_burst_is_found() -> None:
    assert (
        forbidden(stream(RATE.burst + 1, 0))[0]
        == f"{BUSY}: {RATE.burst + 1} started in the 0.000 s before 1.000"
    )


def test_a_stream_that_is_a_little_too_fast_is_found() -> None:
    """One in a hundred: the burst is used up after some time."""
    assert forbidden(stream(110 * RATE.burst, 0.99 / RATE.n)) != []
    assert forbidden(stream(RATE.burst, 0.99 / RATE.n)) == []


def test_what_started_before_the_rate_was_in_force_does_not_count() -> None:
    assert forbidden(stream(RATE.burst + 1, 0, rated_at=1.5)) == []


def test_what_was_claimed_over_some_time_may_start_at_once() -> None:
    story = Story().add(0.5, 8, lines.RATED, group=BUSY)
    for n in range(RATE.burst + 2):
        id_ = f"{BUSY}.plain.o0.{n}"
        story.enqueue(id_).start(3.0, n + 10, id_, asked=1.0 + n / RATE.n).end(3.1, n + 10, id_)
    assert forbidden(story) == []


@pytest.mark.parametrize(
    ("given_back_at", "rightly"), [(0.9, True), (1.0, True), (1.1, False), (1.0 - LATE - 0.1, False)]
)
def test_a_token_that_was_given_back_lets_one_more_in(given_back_at: float, rightly: bool) -> None:
    story = stream(RATE.burst + 1, 0).add(given_back_at, 7, lines.GIVEN_BACK, f"{BUSY}.plain.o0.99")
    assert (forbidden(story) == []) is rightly


def test_the_shared_group_has_a_rate_of_its_own() -> None:
    shared = load.RATES[load.ORG]
    story = Story().add(0.5, 8, lines.RATED, group=load.ORG)
    for n in range(shared.burst + 1):
        id_ = f"{load.SHARING[n % 4]}.plain.o0.{n}"
        story.enqueue(id_).start(1.0 + n / 1000, n + 10, id_).end(1.0 + n / 1000, n + 10, id_)
    assert len(forbidden(story)) == 1
    assert CLOCKS * shared.n < 1, "what clocks may be apart by lets nobody in"
