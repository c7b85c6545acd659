"""From a job log to a replay: which jobs are taken, and how their times are scaled so that workers are short.

Submit times and run times are scaled by two different numbers. The first makes the log's span fit the time
that was asked for; the second makes the work offered :data:`LOAD` times what the workers can do meanwhile,
because fairness shows only where somebody has to wait. A run may take at most :data:`LONGEST_RUN` of the span
(the log has jobs of a few seconds and of two days); how many were shortened to that is in the plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairqueue.demo.trace import Trace, TraceError, TraceJob

LOAD = 1.2
"""Work offered during the span, in multiples of what the workers can do in it."""

LONGEST_RUN = 0.2
"""The longest scaled run, as a part of the span: longer ones would still run when all others have gone."""

SPAN = 0.66
"""The part of one replay's time in which jobs are submitted; the rest is for draining what waits then."""

FIXED_S = 2.5
"""Seconds of each replay that do not scale: starting a server and the workers, stopping them, the audit."""

MOST_JOBS_PER_S = 750
"""Jobs a second that two cores carry with several processes, the handlers' log and the live progress."""

TENANT_LIMIT, GROUP_LIMIT = 0.5, 0.75
"""The limits of a tenant and of a group, as parts of all worker slots."""


class PlannedJob(NamedTuple):
    """One message of the replay: ``at_s`` seconds after its start, ``run_s`` seconds in the handler."""

    id: str
    tenant: str
    group: str | None
    at_s: float
    run_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What both replays run: the jobs in submit order, and how they came from the log."""

    jobs: tuple[PlannedJob, ...]
    span_s: float
    slots: int
    tenant_limit: int
    group_limit: int
    in_log: int
    skipped: int
    log_span_s: float
    run_scale: float
    longest_run_s: float
    shortened: int

    @property
    def whole(self) -> bool:
        """Whether every job of the log that ever ran is in the replay."""
        return len(self.jobs) == self.in_log

    @property
    def work_s(self) -> float:
        """Seconds of worker time that all jobs together ask for."""
        return sum(job.run_s for job in self.jobs)

    @property
    def offered(self) -> dict[str, float]:
        """Seconds of worker time that each tenant asks for."""
        work: defaultdict[str, float] = defaultdict(float)
        for job in self.jobs:
            work[job.tenant] += job.run_s
        return dict(work)


def make_plan(trace: Trace, *, seconds: float, slots: int, jobs: int | None = None) -> Plan:
    """The plan for one replay of at most ``seconds`` on ``slots`` worker slots.

    Args:
        trace: The job log.
        seconds: Wall time of one replay, start and end included.
        slots: Handlers that run at once, all workers together.
        jobs: How many jobs to take; None takes as many as the time allows (:func:`most_jobs`). Fewer than the
            log has are taken evenly over the whole log, every k-th job.

    Raises:
        TraceError: the log is bad, or has no job.
    """
    span_s = _span(seconds)
    taken, in_log = _take(trace, min(jobs or most_jobs(seconds), most_jobs(seconds)))
    first, last = taken[0].submit_s, taken[-1].submit_s
    time_scale = span_s / (last - first) if last > first else 0.0
    cap = LONGEST_RUN * span_s
    run_scale = _run_scale([job.run_s for job in taken], LOAD * slots * span_s, cap)
    return Plan(
        jobs=tuple(
            PlannedJob(
                f"job-{n:06}",
                job.user,
                job.group,
                (job.submit_s - first) * time_scale,
                min(job.run_s * run_scale, cap),
            )
            for n, job in enumerate(taken, 1)
        ),
        span_s=span_s,
        slots=slots,
        tenant_limit=max(1, round(TENANT_LIMIT * slots)),
        group_limit=max(1, round(GROUP_LIMIT * slots)),
        in_log=in_log,
        skipped=trace.skipped,
        log_span_s=last - first,
        run_scale=run_scale,
        longest_run_s=cap,
        shortened=sum(job.run_s * run_scale > cap for job in taken),
    )


def most_jobs(seconds: float) -> int:
    """How many jobs a replay of ``seconds`` can take on a small machine."""
    return max(1, int(MOST_JOBS_PER_S * _span(seconds)))


def seconds_for(jobs: int) -> float:
    """The shortest replay, in seconds, that can take this many jobs."""
    return jobs / MOST_JOBS_PER_S / SPAN + FIXED_S


def _span(seconds: float) -> float:
    return SPAN * (seconds - FIXED_S)


def _take(trace: Trace, most: int) -> tuple[list[TraceJob], int]:
    """At most ``most`` jobs spread evenly over the log, in submit order, and how many the log has.

    The log is read twice rather than held: only what is taken stays in memory.
    """
    total = sum(1 for _ in trace)
    if not total:
        raise TraceError(f"{trace.path}: expected at least one job that ran, got none")
    most = min(most, total)
    taken = [job for n, job in enumerate(trace) if (n + 1) * most // total > n * most // total]
    return sorted(taken, key=lambda job: job.submit_s), total


def _run_scale(runs: Sequence[float], wanted: float, cap: float) -> float:
    """The factor by which ``runs``, each cut to ``cap`` afterwards, add up to ``wanted`` (as nearly as they can)."""
    positive = [run for run in runs if run > 0]
    if not positive:
        return 0.0
    low, high = 0.0, cap / min(positive)  # at `high` every run is cut: more is not to be had
    for _ in range(100):
        middle = (low + high) / 2
        if sum(min(run * middle, cap) for run in positive) < wanted:
            low = middle
        else:
            high = middle
    return high
