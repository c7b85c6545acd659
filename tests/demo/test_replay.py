"""The demo itself, short: two replays on real servers with real worker processes, one of them killed."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fairqueue.demo import DemoOptions, TraceError, run_demo
from fairqueue.demo.plan import make_plan
from fairqueue.demo.progress import PlainScreen
from fairqueue.demo.replay import replay
from fairqueue.demo.shipped import shipped_trace
from fairqueue.demo.trace import Trace
from fairqueue.demo.words import verdict
from tests.demo.made import job, plan
from tests.support.stopwatch import Stopwatch


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "report.html"


@pytest.fixture(scope="module")
def watch() -> Stopwatch:
    """Started before the demo is."""
    return Stopwatch()


@pytest.fixture(scope="module")
def outcome(report: Path, watch: Stopwatch) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        out = report.with_suffix(".json")
        with out.open("w") as file:
            patch.setattr("sys.stdout", file)
            status = run_demo(DemoOptions(seconds=16, workers=2, jobs=400, report=report, json=True))
    found: dict[str, Any] = json.loads(out.read_text())
    assert (status, found["faults"]) == (0, [])
    return found


@pytest.mark.parametrize("scheduler", ["fifo", "fair"])
def test_a_killed_worker_loses_nothing(outcome: dict[str, Any], scheduler: str) -> None:
    found = outcome[scheduler]
    assert (found["submitted"], found["lost"]) == (400, 0)
    assert found["killed"]["process"] == "worker-1"
    with pytest.raises(ProcessLookupError):
        os.kill(found["killed"]["pid"], 0)
    assert found["redelivered"] > 0
    assert found["run_twice"] <= found["redelivered"]
    assert found["leases_reclaimed"] >= found["redelivered"]


@pytest.mark.parametrize("scheduler", ["fifo", "fair"])
def test_no_slot_is_held_and_nothing_is_found_at_the_end(outcome: dict[str, Any], scheduler: str) -> None:
    found = outcome[scheduler]
    assert (found["slots_held"], found["audit_findings"], found["in_time"]) == (0, [], True)


@pytest.mark.parametrize("scheduler", ["fifo", "fair"])
def test_jobs_are_sent_when_they_are_due(outcome: dict[str, Any], watch: Stopwatch, scheduler: str) -> None:
    late = outcome[scheduler]["submitted_late_s"]
    assert late > 0
    watch.check_some(1, "each job to be sent", late)


def test_small_tenants_wait_less_when_it_is_fair(outcome: dict[str, Any]) -> None:
    assert outcome["fair"]["small"]["wait_p95_s"] < outcome["fifo"]["small"]["wait_p95_s"]
    assert outcome["fair"]["jain"] > outcome["fifo"]["jain"]


def test_the_report_is_written(outcome: dict[str, Any], report: Path) -> None:
    assert outcome["report"] == str(report)
    page = report.read_text(encoding="utf-8")
    assert "lcg-2005-cut.tsv" in page
    assert "acknowledge Hui Li" in page


async def test_a_replay_whose_time_is_over_is_stopped_and_leaves_the_queue_whole() -> None:
    cut = make_plan(Trace(shipped_trace()), seconds=30, slots=8, jobs=100)
    screen = PlainScreen(Console(file=io.StringIO()))
    stopped = await replay(cut, "fair", workers=2, stop_after_s=0.5, screen=screen)
    assert not stopped.in_time
    assert stopped.kill is None
    assert 0 < len(stopped.records) < 100
    assert (stopped.facts.held, stopped.facts.findings) == (0, ())
    assert verdict(stopped)[0].startswith("fair: stopped after")


def test_a_bad_log_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    bad = tmp_path / "bad.swf"
    bad.write_text("1 2 3\n")
    with pytest.raises(TraceError, match=r"bad\.swf, line 1: expected"):
        run_demo(DemoOptions(trace=bad, report=tmp_path / "report.html"))


async def test_a_replay_too_short_for_a_kill_says_so() -> None:
    one = plan([job(1, "a", run_s=0.01)], span_s=1.0)
    out = io.StringIO()
    done = await replay(one, "fair", workers=2, stop_after_s=20, screen=PlainScreen(Console(file=out)))
    assert (done.in_time, done.kill, verdict(done)) == (True, None, [])
    assert "fair: no worker was killed: with so few jobs" in out.getvalue()
