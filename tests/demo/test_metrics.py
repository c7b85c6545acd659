from __future__ import annotations

import pytest

from fairqueue.demo.metrics import figures, percentile_if_any, small_tenants
from fairqueue.demo.result import JobRecord, Kill
from fairqueue.fairness import jain_index
from tests.demo.made import job, ran, replay


def test_there_is_no_percentile_of_nothing() -> None:
    assert percentile_if_any([], 0.5) is None
    assert percentile_if_any([3, 1, 2], 0.5) == 2


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
    assert figures(replay(records)).jain == pytest.approx(jain_index([1, 0.25]))


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
