"""Plans and replays made by hand, for the tests of what is computed and drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console

from fairqueue.demo.plan import Plan, PlannedJob
from fairqueue.demo.result import Delivery, JobRecord, Kill, QueueFacts, Replay


def console(out: IO[str], *, terminal: bool, term: str = "xterm", width: int = 80) -> Console:
    """One that does not look at the terminal, or the variables, of whoever runs the tests."""
    return Console(file=out, force_terminal=terminal, width=width, _environ={"TERM": term})


CLEAN = QueueFacts(reclaimed=0, healed=0, freed_late=0, held=0, findings=())


def plan(jobs: Sequence[PlannedJob], *, span_s: float = 10.0, in_log: int | None = None) -> Plan:
    return Plan(
        jobs=tuple(jobs),
        span_s=span_s,
        slots=8,
        tenant_limit=4,
        group_limit=6,
        in_log=len(jobs) if in_log is None else in_log,
        skipped=0,
        log_span_s=36_000.0,
        run_scale=1e-4,
        longest_run_s=1.0,
        shortened=0,
    )


def job(
    number: int, tenant: str, *, at_s: float = 0.0, run_s: float = 1.0, group: str | None = "g1"
) -> PlannedJob:
    return PlannedJob(f"job-{number}", tenant, group, at_s, run_s)


def ran(planned: PlannedJob, *starts: float, ends: Sequence[float | None] | None = None) -> JobRecord:
    """A record with a delivery at each of `starts` (seconds), each run to its end unless `ends` says otherwise."""
    if ends is None:
        ends = [start + planned.run_s for start in starts]
    pairs = zip(starts, ends, strict=True)
    return JobRecord(
        planned, [Delivery(f"worker-{n}", n, start, end) for n, (start, end) in enumerate(pairs, 1)]
    )


def replay(
    records: Sequence[JobRecord],
    *,
    scheduler: str = "fair",
    span_s: float = 10.0,
    kill: Kill | None = None,
    facts: QueueFacts = CLEAN,
    in_time: bool = True,
) -> Replay:
    jobs = [record.job for record in records]
    return Replay(scheduler, plan(jobs, span_s=span_s), records, 12.5, 0.01, kill, facts, in_time)
