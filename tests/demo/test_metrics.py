from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairqueue.demo.metrics import figures, jain, percentile, small_tenants
from fairqueue.demo.result import JobRecord, Kill
from tests.demo.made import job, ran, replay

positive = st.floats(min_value=1e-6, max_value=1e6)


@pytest.mark.parametrize(
    ("part", "wanted"), [(0, 1), (0.1, 1), (0.2, 1), (0.21, 2), (0.5, 3), (0.95, 5), (1, 5)]
)
def test_a_percentile_is_the_smallest_value_that_that_part_does_not_exceed(
    part: float, wanted: float
) -> None:
    assert percentile([5, 3, 1, 4, 2], part) == wanted


def test_there_is_no_percentile_of_nothing() -> None:
    assert percentile([], 0.5) is None


@given(st.lists(positive, min_size=1), st.floats(min_value=0, max_value=1))
def test_at_least_that_part_of_the_values_is_at_or_below_the_percentile(
    values: list[float], part: float
) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(value <= found for value in values) >= math.floor(part * len(values))


def test_jain_is_one_for_equals_and_one_part_in_n_for_a_monopoly() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([0, 0, 5, 0]) == pytest.approx(1 / 4)
    assert jain([2, 1]) == pytest.approx(9 / 10)
    assert jain([]) == jain([0, 0]) == 1


@given(st.lists(positive, min_size=1, max_size=50), positive)
def test_jain_lies_between_and_does_not_depend_on_the_unit(values: list[float], unit: float) -> None:
    assert 1 / len(values) - 1e-9 <= jain(values) <= 1 + 1e-9
    assert jain([value * unit for value in values]) == pytest.approx(jain(values))


def test_a_tenant_is_small_up_to_its_equal_share() -> None:
    assert small_tenants({"big": 7, "equal": 3, "small": 1, "idle": 1}) == {"equal", "small", "idle"}
    assert small_tenants({"a": 0.1, "b": 0.1, "c": 0.1}) == {"a", "b", "c"}
    assert small_tenants({"only": 5}) == {"only"}
    assert small_tenants({}) == frozenset()


def test_waits_and_shares_are_those_of_each_class() -> None:
    records = [
        ran(job(1, "big", run_s=6), 0),
        ran(job(2, "big", run_s=6), 6),  # two seconds of it after the last submission
        ran(job(3, "small", at_s=2, run_s=1), 5),
        ran(job(4, "small", at_s=3, run_s=1), 4),
    ]
    found = figures(replay(records))
    assert (found.small.tenants, found.small.jobs, found.large.tenants, found.large.jobs) == (1, 2, 1, 2)
    assert (found.small.wait_p50_s, found.small.wait_p95_s) == (1, 3)
    assert (found.large.wait_p50_s, found.large.wait_p95_s) == (0, 6)
    assert found.small.share == pytest.approx(2 / 12)
    assert found.large.share == pytest.approx(10 / 12)


def test_the_jain_index_is_over_the_part_of_its_time_that_each_tenant_runs() -> None:
    records = [ran(job(1, "a"), 0), ran(job(2, "b"), 3)]  # a runs all its time, b one second of four
    assert figures(replay(records)).jain == pytest.approx(jain([1, 0.25]))


def test_a_few_milliseconds_of_a_very_short_job_do_not_weigh() -> None:
    records = [ran(job(1, "a", run_s=0.001), 0.004), ran(job(2, "b"), 0)]
    assert figures(replay(records)).jain == pytest.approx(1)


def test_what_was_lost_run_twice_and_redelivered_is_counted_from_the_deliveries() -> None:
    records = [
        ran(job(1, "a"), 0),
        ran(job(2, "a"), 0, 3, ends=[None, 4]),  # cut off, then run
        ran(job(3, "a"), 0, 3),  # run to the end twice
        ran(job(4, "a"), 0, ends=[None]),  # cut off and never seen again
        JobRecord(job(5, "a")),  # never started
    ]
    found = figures(replay(records))
    assert (found.submitted, found.lost, found.run_twice, found.redelivered) == (5, 2, 1, 2)


def test_a_job_cut_off_waited_until_its_first_start_and_used_its_worker_until_the_kill() -> None:
    records = [ran(job(1, "a", run_s=4), 1, 5, ends=[None, 9]), ran(job(2, "b", run_s=1), 0)]
    found = figures(replay(records, kill=Kill("worker-1", 4711, 2.0)))
    assert found.by_tenant["a"].wait_p50_s == 1
    assert found.large.share == pytest.approx(5 / 6)  # one second before the kill and four after


def test_a_tenant_whose_jobs_never_started_has_no_wait() -> None:
    found = figures(replay([JobRecord(job(1, "a")), ran(job(2, "b"), 0)]))
    assert found.by_tenant["a"].wait_p50_s is None
