"""The arithmetic of the fairness report: who was entitled to what, minute by minute."""

from __future__ import annotations

import pytest

from fairqueue.entitlement import MINUTE_MS, Usage, Waiting, accounts, max_min, together, wait_within

START = 100 * MINUTE_MS
UNTIL = START + 3 * MINUTE_MS


def served(
    charged: float,
    *,
    since: int = START,
    waits: dict[int, int] | None = None,
    kept_out: bool = False,
    promised: float = 0,
) -> Usage:
    """Each of its messages is charged 1 unless the waits say otherwise."""
    starts = waits if waits is not None else ({0: int(charged)} if charged > 0 else {})
    return Usage(charged, kept_out, since, 0, starts, promised)


def waits(ready: int, *, cost: float = 1, since: int = START - 1, competes: bool = True) -> Waiting:
    return Waiting(ready, ready * cost, since, competes)


@pytest.mark.parametrize(
    ("capacity", "demands", "weights", "expected"),
    [
        (12, {"a": 100, "b": 100}, {}, {"a": 6, "b": 6}),
        (12, {"a": 2, "b": 100, "c": 100}, {}, {"a": 2, "b": 5, "c": 5}),
        (12, {"a": 100, "b": 100}, {"a": 3}, {"a": 9, "b": 3}),
        (12, {"a": 3, "b": 4}, {}, {"a": 3, "b": 4}),
        (12, {"a": 1, "b": 2, "c": 100}, {"c": 0.01}, {"a": 1, "b": 2, "c": 9}),
        (0, {"a": 5}, {}, {"a": 0}),
        (5, {}, {}, {}),
    ],
)
def test_max_min(
    capacity: float, demands: dict[str, float], weights: dict[str, float], expected: dict[str, float]
) -> None:
    assert max_min(capacity, demands, weights) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("capacity", "demands", "promised", "expected"),
    [
        (12, {"a": 100, "b": 100, "c": 100}, {"a": 8}, {"a": 8, "b": 2, "c": 2}),
        (12, {"a": 100, "b": 100, "c": 100}, {"a": 3}, {"a": 4, "b": 4, "c": 4}),
        (12, {"a": 5, "b": 100, "c": 100}, {"a": 8}, {"a": 5, "b": 3.5, "c": 3.5}),
        (12, {"a": 100, "b": 100, "c": 100}, {"a": 8, "b": 3}, {"a": 8, "b": 3, "c": 1}),
        (12, {"a": 100, "b": 1, "c": 100}, {"a": 8, "d": 3}, {"a": 8, "b": 1, "c": 3}),
        (12, {"a": 100, "b": 100, "c": -2}, {"a": 8}, {"a": 8, "b": 6, "c": -2}),
    ],
)
def test_what_is_promised_is_given_first(
    capacity: float, demands: dict[str, float], promised: dict[str, float], expected: dict[str, float]
) -> None:
    assert max_min(capacity, demands, {}, promised) == pytest.approx(expected)


def test_who_gets_all_it_has_work_for_is_not_behind() -> None:
    found = accounts({100: {"big": served(90), "small": served(10)}}, {"big": waits(500)}, UNTIL)
    assert {name: one.lag for name, one in found.items()} == {"big": 0, "small": 0}


def test_who_waits_and_gets_less_is_behind_by_what_the_others_are_ahead() -> None:
    found = accounts({100: {"a": served(90), "b": served(10)}}, {"a": waits(500), "b": waits(500)}, UNTIL)
    assert (found["a"].lag, found["b"].lag) == (-40, 40)


def test_weights_say_what_is_due() -> None:
    waiting = {"a": waits(500), "b": waits(500)}
    found = accounts({100: {"a": served(75), "b": served(25)}}, waiting, UNTIL, {"a": 3})
    assert (found["a"].lag, found["b"].lag) == (0, 0)


def test_who_came_later_had_no_work_before() -> None:
    minutes = {100: {"a": served(50)}, 101: {"a": served(25), "b": served(25, since=START + MINUTE_MS)}}
    late = {"a": waits(500), "b": waits(500, since=START + MINUTE_MS)}
    found = accounts(minutes, late, UNTIL)
    assert (found["a"].lag, found["b"].lag) == (0, 0)


def test_what_waited_then_and_was_served_later_counts_as_work() -> None:
    """Bucket 35 is 131 to 185 s: ready in minute 100, served in 102. What was due before is not due again then."""
    minutes = {100: {"a": served(50)}, 101: {"a": served(50)}, 102: {"b": served(50, waits={35: 50})}}
    found = accounts(minutes, {"a": waits(500)}, UNTIL)
    assert (found["b"].entitled, found["b"].received) == (50, 50)


def test_who_is_at_its_own_limit_is_due_what_it_gets() -> None:
    minutes = {100: {"a": served(90), "b": served(10, kept_out=True)}, 101: {"a": served(100)}}
    waiting = {"a": waits(500), "b": waits(500, competes=False)}
    found = accounts(minutes, waiting, UNTIL)
    assert (found["a"].lag, found["b"].lag) == (0, 0)
    assert found["b"].starved_ms == 0


def test_who_is_served_nothing_starves() -> None:
    minutes = {minute: {"a": served(60)} for minute in (100, 101, 102)}
    found = accounts(minutes, {"b": waits(5)}, UNTIL)
    assert found["b"].starved_ms == 3 * MINUTE_MS
    assert found["b"].received == 0
    assert found["b"].entitled == 5
    assert (found["a"].starved_ms, found["a"].lag) == (0, -5)
    assert found["b"].longest_ms == UNTIL - START + 1


def test_nobody_starves_while_nobody_is_served() -> None:
    found = accounts({100: {}, 101: {}}, {"b": waits(5)}, UNTIL)
    assert (found["b"].starved_ms, found["b"].entitled) == (0, 0)


def test_what_waits_counts_by_what_it_would_be_charged() -> None:
    found = accounts({100: {"a": served(60)}}, {"a": waits(500), "b": waits(5, cost=100)}, UNTIL)
    assert (found["b"].entitled, found["b"].waiting) == (30, 5)


def test_what_was_given_back_is_not_received() -> None:
    """More than was charged in that minute: it had been charged in the one before."""
    minutes = {100: {"a": served(50), "b": served(50)}, 101: {"a": served(-20), "b": served(20)}}
    found = accounts(minutes, {"a": waits(500), "b": waits(500)}, UNTIL)
    assert (found["a"].received, found["b"].received) == (30, 70)
    assert (found["a"].entitled, found["b"].entitled) == (50, 50)
    found = accounts(minutes, {}, UNTIL)
    assert (found["a"].lag, found["b"].lag) == (0, 0)


def test_who_is_kept_out_and_given_back_does_not_starve() -> None:
    minutes = {
        99: {"b": served(5, kept_out=True)},
        100: {"a": served(9), "b": served(-1, kept_out=True)},
        101: {"a": served(9)},
    }
    found = accounts(minutes, {"b": waits(5)}, UNTIL)
    assert (found["b"].starved_ms, found["b"].lag) == (0, 0)


def test_what_was_served_by_a_guarantee_is_due_first() -> None:
    minutes = {100: {"a": served(80, promised=75), "b": served(10), "c": served(10)}}
    found = accounts(minutes, {name: waits(500) for name in "abc"}, UNTIL)
    assert (found["a"].entitled, found["b"].entitled, found["c"].entitled) == (75, 12.5, 12.5)


def test_a_guarantee_below_its_share_changes_nothing() -> None:
    minutes = {100: {"a": served(30, promised=10), "b": served(60)}}
    found = accounts(minutes, {name: waits(500) for name in "ab"}, UNTIL)
    assert (found["a"].lag, found["b"].lag) == (15, -15)


def test_what_was_given_back_was_not_promised() -> None:
    minutes = {100: {"a": served(10, promised=75), "b": served(90)}}
    found = accounts(minutes, {name: waits(500) for name in "ab"}, UNTIL)
    assert (found["a"].lag, found["b"].lag) == (40, -40)


def test_pools_are_divided_by_themselves_and_added_up() -> None:
    gpu = accounts({100: {"g": served(6), "both": served(6)}}, {"g": waits(99), "both": waits(99)}, UNTIL)
    default = accounts({100: {"a": served(50), "both": served(50)}}, {"a": waits(99)}, UNTIL)
    found = together([gpu, default])
    assert {name: (one.entitled, one.lag) for name, one in found.items()} == {
        "a": (50, 0),
        "both": (56, 0),
        "g": (6, 0),
    }
    assert (found["both"].waiting, sum(found["both"].waits.values())) == (99, 56)


def test_a_minute_in_which_one_starves_in_two_pools_is_one() -> None:
    minutes = {100: {"a": served(9)}, 101: {"a": served(9)}}
    pools = [accounts(minutes, {"b": waits(5)}, UNTIL) for _ in range(2)]
    assert together(pools)["b"].starved_ms == 2 * MINUTE_MS


def test_a_pool_that_serves_nobody_starves_nobody() -> None:
    found = together(
        [
            accounts({100: {"a": served(9)}}, {}, UNTIL),
            accounts({100: {}}, {"b": waits(5)}, UNTIL),
        ]
    )
    assert (found["b"].lag, found["b"].starved_ms, found["b"].waiting) == (0, 0, 5)


@pytest.mark.parametrize(
    ("buckets", "part", "longest", "expected"),
    [
        ({}, 0.5, 0, 0),
        ({0: 10}, 0.95, 0, 0),
        ({0: 10, 20: 10}, 0.5, 900, 0),
        ({0: 10, 20: 10}, 0.95, 900, 900),
        ({10: 94, 20: 6}, 0.5, 900, 32),
        ({10: 95, 20: 5}, 0.95, 900, 32),
    ],
)
def test_waits_within(buckets: dict[int, int], part: float, longest: int, expected: int) -> None:
    assert wait_within(buckets, part, longest) == expected
