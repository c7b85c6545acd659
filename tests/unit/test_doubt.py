"""How long reclaim is held back after trouble."""

from __future__ import annotations

import pytest

from fairqueue.maintenance.doubt import Doubt


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def doubt(clock: Clock) -> Doubt:
    return Doubt(10, clock)


def test_without_trouble_there_is_none(doubt: Doubt) -> None:
    assert doubt.left == 0
    doubt.outage()
    doubt.judged()
    assert doubt.left == 0


def test_it_counts_from_the_trouble(doubt: Doubt, clock: Clock) -> None:
    doubt.trouble(clock.now - 4)
    assert doubt.left == 6
    clock.now += 6
    assert doubt.left == 0


def test_trouble_of_long_ago_is_none(doubt: Doubt, clock: Clock) -> None:
    doubt.trouble(clock.now - 10)
    assert doubt.left == 0


def test_trouble_that_comes_again_and_again_ends_after_twice_the_time(doubt: Doubt, clock: Clock) -> None:
    began = clock.now
    while clock.now - began < 100:
        doubt.trouble()
        if not doubt.left:
            break
        clock.now += 1
    assert clock.now - began == 20
    doubt.judged()
    doubt.trouble()
    assert doubt.left == 10, "after a judgement a whole hold begins"


def test_a_pass_that_failed_does_not_begin_another_hold(doubt: Doubt, clock: Clock) -> None:
    for _ in range(20):
        doubt.trouble()
        clock.now += 1
    doubt.trouble()
    assert doubt.left == 0


def test_an_outage_that_was_seen_begins_another_hold(doubt: Doubt, clock: Clock) -> None:
    doubt.trouble()
    clock.now += 60
    doubt.outage()
    doubt.trouble(clock.now - 1)
    assert doubt.left == 9
