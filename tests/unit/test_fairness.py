from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairqueue.fairness import FairScheduler, bound, fairness_gap, jain_index, percentile


def drained(scheduler: FairScheduler[Any], most: int = 10**6) -> list[Any]:
    served = []
    while len(served) < most and (message := scheduler.next()) is not None:
        served.append(message)
    return served


def filled(counts: dict[str, int], weights: dict[str, float] | None = None) -> FairScheduler[str]:
    scheduler: FairScheduler[str] = FairScheduler(weights)
    for tenant, count in counts.items():
        for _ in range(count):
            scheduler.enqueue(tenant, "default", 1, tenant)
    return scheduler


# ---------------------------------------------------------------- the rules, one by one


def test_equal_tenants_alternate_and_ties_go_by_name() -> None:
    assert drained(filled({"b": 3, "a": 2, "c": 1})) == ["a", "b", "c", "a", "b", "b"]


def test_a_lane_is_first_in_first_out() -> None:
    scheduler: FairScheduler[int] = FairScheduler()
    for number in range(10):
        scheduler.enqueue("a", "default", 1 + number % 3, number)
    assert len(scheduler) == 10
    assert drained(scheduler) == list(range(10))
    assert len(scheduler) == 0


def test_weights_share_in_proportion() -> None:
    served = Counter(drained(filled({"light": 500, "heavy": 500}, {"heavy": 4.0}), 500))
    assert abs(served["heavy"] - 400) <= 2


def test_cost_counts_not_the_number_of_messages() -> None:
    scheduler: FairScheduler[str] = FairScheduler()
    for _ in range(400):
        scheduler.enqueue("large", "default", 3, "large")
        scheduler.enqueue("small", "default", 1, "small")
    served = Counter(drained(scheduler, 400))
    assert abs(served["small"] - 300) <= 3


def test_many_lanes_give_no_larger_share_and_take_turns_among_themselves() -> None:
    scheduler: FairScheduler[tuple[str, str]] = FairScheduler()
    for lane in range(50):
        for _ in range(10):
            scheduler.enqueue("many", f"lane {lane}", 1, ("many", f"lane {lane}"))
    for _ in range(500):
        scheduler.enqueue("one", "default", 1, ("one", "default"))
    served = drained(scheduler, 200)
    assert Counter(tenant for tenant, _ in served) == {"many": 100, "one": 100}
    assert set(Counter(lane for tenant, lane in served if tenant == "many").values()) == {2}


def test_idle_time_earns_nothing() -> None:
    scheduler = filled({"busy": 300})
    drained(scheduler, 100)
    for _ in range(100):
        scheduler.enqueue("late", "default", 1, "late")
    assert Counter(drained(scheduler, 50))["late"] in {24, 25, 26}


def test_leaving_does_not_shake_off_what_was_served() -> None:
    """A tenant that has one message at a time, again and again, starves nobody who is always there."""
    scheduler = filled({"steady": 100})
    served: Counter[str] = Counter()
    for _ in range(100):
        if not scheduler.claimable("again"):
            scheduler.enqueue("again", "default", 1, "again")
        served[str(scheduler.next())] += 1
    assert abs(served["steady"] - served["again"]) <= bound(1)


def test_a_blocked_lane_waits_and_its_tenant_goes_on_with_the_others() -> None:
    scheduler: FairScheduler[str] = FairScheduler()
    for lane in ("full", "free"):
        for number in range(2):
            scheduler.enqueue("a", lane, 1, f"{lane} {number}")
    scheduler.block("a", "full")
    assert drained(scheduler) == ["free 0", "free 1"]
    assert not scheduler.claimable("a")
    assert len(scheduler) == 2
    scheduler.unblock("a", "full")
    assert drained(scheduler) == ["full 0", "full 1"]


def test_blocked_time_brings_neither_credit_nor_debt() -> None:
    scheduler = filled({"blocked": 100, "free": 300})
    scheduler.block("blocked", "default")
    assert set(drained(scheduler, 100)) == {"free"}
    scheduler.unblock("blocked", "default")
    served = Counter(drained(scheduler, 100))
    assert abs(served["blocked"] - served["free"]) <= bound(1)


def test_a_lane_may_be_blocked_before_it_has_messages() -> None:
    scheduler: FairScheduler[str] = FairScheduler()
    scheduler.block("a", "default")
    scheduler.enqueue("a", "default", 1, "x")
    assert scheduler.next() is None
    scheduler.unblock("a", "default")
    assert scheduler.next() == "x"


def test_a_new_weight_rescales_what_was_charged() -> None:
    scheduler = filled({"a": 200, "b": 200}, {"a": 0.01})
    assert drained(scheduler, 2) == ["a", "b"]  # a is 100 ahead now, and waits for as many of b
    scheduler.set_weight("a", 1)  # charged at the new weight it is one ahead
    assert Counter(drained(scheduler, 100)) == {"a": 50, "b": 50}


def test_when_all_is_idle_everything_is_forgotten() -> None:
    scheduler = filled({"a": 50, "b": 1})
    drained(scheduler)
    assert (scheduler._turns.virtual_time, scheduler._turns.tags, scheduler._tenants) == (0.0, {}, {})
    scheduler.enqueue("a", "default", 1, "a")
    scheduler.block("a", "default")
    scheduler.enqueue("b", "default", 1, "b")
    drained(scheduler)
    assert scheduler._turns.tags == {"b": 1.0}  # a waits: not idle, so b's tag is kept
    scheduler.unblock("a", "default")
    drained(scheduler)
    assert scheduler._turns.tags == {}


def test_memory_does_not_grow_with_tenants_that_have_gone() -> None:
    scheduler = filled({"steady": 1000})
    for number in range(900):
        scheduler.enqueue(f"guest {number}", "default", 1, "guest")
        scheduler.next()
    assert len(scheduler._tenants) <= 2 + len(scheduler)
    drained(scheduler, len(scheduler) - 1)
    assert len(scheduler._turns.tags) <= 2
    assert len(scheduler._tenants) == 1


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_costs_and_weights_are_positive_and_finite(value: float) -> None:
    scheduler: FairScheduler[str] = FairScheduler()
    with pytest.raises(ValueError, match=r"^expected cost to be positive and finite"):
        scheduler.enqueue("a", "default", value, "x")
    with pytest.raises(ValueError, match=r"^expected weight to be positive and finite"):
        scheduler.set_weight("a", value)
    with pytest.raises(ValueError, match=r"^expected weight to be positive and finite"):
        FairScheduler({"a": value})
    assert scheduler.next() is None
    assert len(scheduler) == 0


# ---------------------------------------------------------------- the promise, on random arrivals


class Ledger:
    """Holds, for every pair, the range its difference in service has had since both have work all along."""

    def __init__(self, weights: dict[str, float], c_max: float) -> None:
        self.weights, self.c_max = weights, c_max
        self.served: dict[str, float] = defaultdict(float)
        self.ranges: dict[tuple[str, str], tuple[float, float]] = {}

    def note(self, claimable: set[str]) -> None:
        for pair in combinations(sorted(self.weights), 2):
            one, other = pair
            if not claimable >= {one, other}:
                self.ranges.pop(pair, None)
                continue
            difference = self.served[one] / self.weights[one] - self.served[other] / self.weights[other]
            low, high = self.ranges.get(pair, (difference, difference))
            self.ranges[pair] = low, high = min(low, difference), max(high, difference)
            allowed = bound(self.c_max, self.weights[one], self.weights[other])
            assert high - low <= allowed * (1 + 1e-9), f"{pair} differ by {high - low}, allowed is {allowed}"


seeds = st.integers(0, 2**32)
weights_of_four = st.fixed_dictionaries({name: st.floats(0.01, 100) for name in "abcd"})


@settings(max_examples=60, deadline=None)
@given(weights_of_four, seeds, st.floats(1, 1000))
def test_any_two_with_work_differ_by_at_most_the_bound_over_any_interval(
    weights: dict[str, float], seed: int, c_max: float
) -> None:
    rng = random.Random(seed)
    scheduler: FairScheduler[tuple[str, float]] = FairScheduler(weights)
    ledger = Ledger(weights, c_max)
    lanes = [(tenant, lane) for tenant in "abcd" for lane in "xyz"]
    for _ in range(300):
        for _ in range(rng.choice((0, 0, 1, 1, 5))):
            tenant, lane = rng.choice(lanes)
            cost = rng.uniform(c_max / 1000, c_max)
            scheduler.enqueue(tenant, lane, cost, (tenant, cost))
        if rng.random() < 0.1:
            rng.choice((scheduler.block, scheduler.unblock))(*rng.choice(lanes))
        claimable = {tenant for tenant in "abcd" if scheduler.claimable(tenant)}
        ledger.note(claimable)
        served = scheduler.next()
        assert (served is None) == (not claimable)  # work-conserving
        if served is not None:
            ledger.served[served[0]] += served[1]
            ledger.note(claimable)  # the interval ends with the service, before whoever is empty leaves


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_lanes_of_one_tenant_keep_the_same_bound(seed: int) -> None:
    rng = random.Random(seed)
    scheduler: FairScheduler[tuple[str, float]] = FairScheduler()
    ledger = Ledger(dict.fromkeys("xyz", 1.0), c_max=5)
    waiting: Counter[str] = Counter()
    for _ in range(300):
        for _ in range(rng.choice((0, 1, 1, 4))):
            lane, cost = rng.choice("xyz"), rng.uniform(0.001, 5)
            scheduler.enqueue("a", lane, cost, (lane, cost))
            waiting[lane] += 1
        claimable = {lane for lane in "xyz" if waiting[lane]}
        ledger.note(claimable)
        served = scheduler.next()
        if served is not None:
            waiting[served[0]] -= 1
            ledger.served[served[0]] += served[1]
            ledger.note(claimable)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.floats(0.001, 1000)), max_size=60)
)
def test_everything_comes_out_once_and_in_the_order_of_its_lane(
    arrivals: list[tuple[str, str, float]],
) -> None:
    scheduler: FairScheduler[int] = FairScheduler()
    for number, (tenant, lane, cost) in enumerate(arrivals):
        scheduler.enqueue(tenant, lane, cost, number)
    served = drained(scheduler)
    assert sorted(served) == list(range(len(arrivals)))
    for key in {arrival[:2] for arrival in arrivals}:
        of_lane = [number for number in served if arrivals[number][:2] == key]
        assert of_lane == sorted(of_lane)


# ---------------------------------------------------------------- the measures


def test_the_bound_is_one_largest_message_each() -> None:
    assert bound(1) == 2
    assert bound(10, 2, 5) == 7


def test_the_gap_is_the_largest_between_any_two() -> None:
    assert fairness_gap({}) == fairness_gap({"a": 5}) == 0
    assert fairness_gap({"a": 10, "b": 12, "c": 7}) == 5
    assert fairness_gap({"a": 10, "b": 19}, {"b": 2}) == 0.5
    assert fairness_gap({"a": 10, "b": 12, "c": 7}, c_max=2) == 1.25
    assert fairness_gap({"a": 10, "b": 19}, {"b": 2}, c_max=1) == pytest.approx(0.5 / 1.5)


def test_jain_index_of_known_cases() -> None:
    assert jain_index([]) == jain_index([0, 0]) == jain_index([7]) == jain_index([3, 3, 3]) == 1
    assert jain_index([1, 0, 0, 0]) == 0.25
    assert jain_index([1, 2, 3]) == pytest.approx(36 / 42)


@given(st.lists(st.floats(0, 1e308), min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_jain_index_is_from_one_nth_to_one_and_has_no_unit(values: list[float], unit: float) -> None:
    index = jain_index(values)
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    scaled = [value * unit for value in values]
    if all(map(math.isfinite, scaled)) and min(values) > 1e-300:
        assert jain_index(scaled) == pytest.approx(index)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_jain_index_refuses_what_is_no_share(value: float) -> None:
    with pytest.raises(ValueError, match=r"^expected values to be finite and not negative$"):
        jain_index([1, value])


@pytest.mark.parametrize(
    ("part", "wanted"), [(0, 1), (0.1, 1), (0.2, 1), (0.21, 2), (0.5, 3), (0.95, 5), (1, 5)]
)
def test_a_percentile_is_the_smallest_value_that_that_part_does_not_exceed(
    part: float, wanted: float
) -> None:
    assert percentile([5, 3, 1, 4, 2], part) == wanted


@given(st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1), st.floats(min_value=0, max_value=1))
def test_at_least_that_part_of_the_values_is_at_or_below_the_percentile(
    values: list[float], part: float
) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(value <= found for value in values) >= math.floor(part * len(values))


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match=r"^expected at least one value$"):
        percentile([], 0.5)
