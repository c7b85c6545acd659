from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from fairqueue.demo.metrics import figures
from fairqueue.demo.options import DEFAULT_SECONDS, DEFAULT_WORKERS, SLOTS_PER_WORKER
from fairqueue.demo.plan import LOAD, Plan, make_plan, most_jobs, seconds_for
from fairqueue.demo.shipped import shipped_trace
from fairqueue.demo.trace import Trace, TraceError
from tests.demo.simulation import Simulation

SLOTS = DEFAULT_WORKERS * SLOTS_PER_WORKER
ONE_REPLAY_S = DEFAULT_SECONDS / 2
LONG_LOG = os.environ.get("FAIRQUEUE_LONG_LOG")  # where the log lies that the shipped cut is from


def write(path: Path, *lines: str) -> Trace:
    path.write_text("\n".join(["submit_s\trun_s\tuser\tgroup", *lines]) + "\n")
    return Trace(path)


@pytest.fixture(scope="module")
def shipped() -> Plan:
    return make_plan(Trace(shipped_trace()), seconds=ONE_REPLAY_S, slots=SLOTS)


def test_the_shipped_cut_is_taken_whole_in_submit_order_and_in_the_time_given(shipped: Plan) -> None:
    assert shipped.whole
    assert len({job.id for job in shipped.jobs}) == 6000
    assert shipped.jobs[0].at_s == 0
    assert all(earlier.at_s <= later.at_s for earlier, later in pairwise(shipped.jobs))
    assert shipped.jobs[-1].at_s == pytest.approx(shipped.span_s)
    assert shipped.span_s < ONE_REPLAY_S


def test_more_work_is_offered_than_the_workers_can_do_meanwhile(shipped: Plan) -> None:
    assert shipped.work_s == pytest.approx(LOAD * SLOTS * shipped.span_s, rel=0.01)
    assert max(job.run_s for job in shipped.jobs) <= shipped.longest_run_s


def test_limits_leave_one_tenant_and_one_group_less_than_all_slots(shipped: Plan) -> None:
    assert 0 < shipped.tenant_limit < shipped.group_limit < SLOTS


def test_the_shipped_cut_shows_the_point_and_ends_in_time(shipped: Plan) -> None:
    fifo, fair = Simulation(shipped, "fifo").run(), Simulation(shipped, "fair").run()
    by_fifo, by_fair = figures(fifo), figures(fair)
    assert by_fifo.small.wait_p95_s is not None
    assert by_fair.small.wait_p95_s is not None
    assert by_fifo.small.wait_p95_s > 2
    assert by_fair.small.wait_p95_s < by_fifo.small.wait_p95_s / 4
    assert by_fair.jain > by_fifo.jain + 0.2
    assert max(fifo.wall_s, fair.wall_s) < ONE_REPLAY_S - 1


def test_a_log_too_long_for_the_time_is_thinned_evenly_and_says_what_all_of_it_needs(tmp_path: Path) -> None:
    trace = write(tmp_path / "log", *(f"{n}\t60\tu{n % 10}\tg" for n in range(20_000)))
    plan = make_plan(trace, seconds=12, slots=48)
    assert len(plan.jobs) == most_jobs(12) < 20_000
    assert (plan.in_log, plan.whole) == (20_000, False)
    gaps = [later.at_s - earlier.at_s for earlier, later in pairwise(plan.jobs)]
    assert max(gaps) < 2 * plan.span_s / len(plan.jobs)
    assert most_jobs(seconds_for(20_000) + 0.1) >= 20_000


def test_fewer_jobs_can_be_asked_for(tmp_path: Path) -> None:
    trace = write(tmp_path / "log", *(f"{n}\t60\tu{n % 10}\tg" for n in range(100)))
    assert [job.tenant for job in make_plan(trace, seconds=12, slots=8, jobs=4).jobs] == [
        "u4",
        "u9",
        "u4",
        "u9",
    ]


def test_jobs_are_put_into_submit_order(tmp_path: Path) -> None:
    plan = make_plan(write(tmp_path / "log", "9\t1\tlate\t", "3\t1\tearly\t"), seconds=12, slots=8)
    assert [(job.tenant, job.group) for job in plan.jobs] == [("early", None), ("late", None)]


@pytest.mark.parametrize(
    "lines",
    [
        ["5\t0\tu1\tg1"],
        ["5\t0\tu1\tg1", "6\t0\tu2\tg1"],
        ["5\t1000000000000\tu1\tg1", "5\t0.000001\tu2\tg1"],
        ["0\t1\tu1\tg1", "1000000000000\t1\tu1\tg1"],
    ],
)
def test_odd_logs_make_plans_that_can_be_run(tmp_path: Path, lines: list[str]) -> None:
    plan = make_plan(write(tmp_path / "log", *lines), seconds=12, slots=8)
    assert len(plan.jobs) == len(lines)
    assert all(0 <= job.at_s <= plan.span_s and 0 <= job.run_s <= plan.longest_run_s for job in plan.jobs)
    assert figures(Simulation(plan, "fair").run()).lost == 0


def test_a_log_without_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="expected at least one job that ran, got none"):
        make_plan(write(tmp_path / "log"), seconds=12, slots=8)


@pytest.mark.skipif(
    not LONG_LOG, reason="the long log is not part of the repository: $FAIRQUEUE_LONG_LOG names it"
)
def test_the_long_log_is_thinned_to_fit_and_its_biggest_user_stays_the_biggest() -> None:
    plan = make_plan(Trace(Path(str(LONG_LOG))), seconds=ONE_REPLAY_S, slots=SLOTS)
    assert plan.in_log == 188_041
    assert len(plan.jobs) == most_jobs(ONE_REPLAY_S)
    assert 0.30 < sum(job.tenant == "u1" for job in plan.jobs) / len(plan.jobs) < 0.34
