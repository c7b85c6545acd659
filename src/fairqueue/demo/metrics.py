"""The figures of the demo's table, each with the definition it is printed under.

**small and large tenants**  A tenant is small if it asks for no more than its equal share of all worker time
(the work of all tenants divided by their number), else large. Max-min fairness promises a small tenant
hardly any wait whatever the large ones send.

**wait**  From the time a job was due to be submitted to the start of its first delivery. A percentile is the
smallest wait that at least that part of the jobs did not exceed (nearest rank).

**share**  Part of the worker time used while jobs were still being submitted. Over a whole replay the shares are
the same under every scheduler, since every job is run; who waits for whom shows only while work keeps coming.

**Jain index**  ``(sum x)^2 / (n * sum x^2)`` over all tenants, where x is the part of its jobs' time in the system
that they were running: all run times / all (wait + run) times. 1 means that nobody is kept waiting longer, for
the work it asks for, than anybody else; 1/n that one tenant alone is served without waiting. As in the bounded
slowdown of the scheduling literature, no time counts as less than :data:`SHORTEST_S`: else the few milliseconds
that any queue needs would weigh more than seconds of waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fairqueue.demo.result import JobRecord, Replay
from fairqueue.fairness import jain_index, percentile

SHORTEST_S = 0.02
"""Times below this many seconds count as this many in the Jain index."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a set of tenants in one replay. Times are seconds; None where no job was ever started."""

    tenants: int
    jobs: int
    wait_p50_s: float | None
    wait_p95_s: float | None
    share: float


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """One tenant in one replay: what it asked for, how long it waited, the part of its time that it ran."""

    tenant: str
    jobs: int
    work_s: float
    wait_p50_s: float | None
    wait_p95_s: float | None
    running: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything the table says of one replay."""

    small: Summary
    large: Summary
    jain: float
    submitted: int
    lost: int
    run_twice: int
    redelivered: int
    by_tenant: Mapping[str, TenantFigures]


def percentile_if_any(values: Sequence[float], part: float) -> float | None:
    """The percentile; None of none."""
    return percentile(values, part) if values else None


def small_tenants(offered: Mapping[str, float]) -> frozenset[str]:
    """The tenants that ask for no more than their equal share of all the work offered."""
    equal_share = sum(offered.values()) / len(offered) if offered else 0.0
    return frozenset(tenant for tenant, work in offered.items() if work <= equal_share * (1 + 1e-9))


def figures(replay: Replay) -> Figures:
    """All figures of one replay, from its handlers' own log."""
    small = small_tenants(replay.plan.offered)
    by_tenant = _grouped(replay.records)
    used = _worker_time(replay)
    each = {tenant: _of_tenant(tenant, records) for tenant, records in by_tenant.items()}
    return Figures(
        small=_summary([r for t, r in by_tenant.items() if t in small], used, small),
        large=_summary([r for t, r in by_tenant.items() if t not in small], used, used.keys() - small),
        jain=jain_index([tenant.running for tenant in each.values()]),
        submitted=len(replay.records),
        lost=sum(record.completions == 0 for record in replay.records),
        run_twice=sum(record.completions > 1 for record in replay.records),
        redelivered=sum(len(record.deliveries) > 1 for record in replay.records),
        by_tenant=each,
    )


def waits(records: Iterable[JobRecord]) -> list[float]:
    """The waits of all jobs that were started, in seconds."""
    return [record.wait_s for record in records if record.wait_s is not None]


def _grouped(records: Iterable[JobRecord]) -> dict[str, list[JobRecord]]:
    grouped: dict[str, list[JobRecord]] = defaultdict(list)
    for record in records:
        grouped[record.job.tenant].append(record)
    return dict(grouped)


def _summary(
    tenants: Sequence[Sequence[JobRecord]], used: Mapping[str, float], names: Iterable[str]
) -> Summary:
    waited = [wait for records in tenants for wait in waits(records)]
    total = sum(used.values())
    return Summary(
        tenants=len(tenants),
        jobs=sum(len(records) for records in tenants),
        wait_p50_s=percentile_if_any(waited, 0.5),
        wait_p95_s=percentile_if_any(waited, 0.95),
        share=sum(used.get(name, 0.0) for name in names) / total if total else 0.0,
    )


def _of_tenant(tenant: str, records: Sequence[JobRecord]) -> TenantFigures:
    waited = waits(records)
    done = [(record.job.run_s, stay) for record in records if (stay := record.in_system_s) is not None]
    ran = sum(max(SHORTEST_S, run) for run, _ in done)
    stayed = sum(max(SHORTEST_S, stay) for _, stay in done)
    return TenantFigures(
        tenant=tenant,
        jobs=len(records),
        work_s=sum(record.job.run_s for record in records),
        wait_p50_s=percentile_if_any(waited, 0.5),
        wait_p95_s=percentile_if_any(waited, 0.95),
        running=min(1.0, ran / stayed) if stayed else 1.0,
    )


def _worker_time(replay: Replay) -> dict[str, float]:
    """Seconds of worker time each tenant used while jobs were still being submitted."""
    until = replay.plan.span_s
    stopped = replay.kill.at_s if replay.kill else until
    used: dict[str, float] = defaultdict(float)
    for record in replay.records:
        for delivery in record.deliveries:
            end = stopped if delivery.end_s is None else delivery.end_s
            used[record.job.tenant] += max(0.0, min(end, until) - min(delivery.start_s, until))
    return dict(used)
