"""What the demo says in words, the same on the terminal and in the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fairqueue.demo.metrics import SHORTEST_S, figures
from fairqueue.demo.plan import Plan, seconds_for
from fairqueue.demo.result import JobRecord, Replay
from fairqueue.validation import counted

SETTLED_S = 1.0
"""A worker that lives has told the queue of an ended handler long before this many seconds have passed."""

DEFINITIONS = (
    (
        "FIFO, fair",
        (
            "FIFO gives a free worker slot to the message that came first, whoever sent it. Fair gives it to the user "
            "who has had the least worker time. Limits hold under both."
        ),
    ),
    (
        "Small and large tenants",
        (
            "A user is a tenant. It is small if it asks for no more than its equal share of all worker time (the work "
            "of all, divided by the number of users), else large."
        ),
    ),
    (
        "Wait",
        (
            "From the time a job was due to be submitted to the start of its first delivery. p50: half of the jobs "
            "waited no longer; p95: 95 % of them."
        ),
    ),
    (
        "Share of worker time",
        (
            "Of the worker time used while jobs were still being submitted. Over a whole replay the shares are the "
            "same under every scheduler, since every job is run in the end."
        ),
    ),
    (
        "Jain index",
        (
            "(sum x)² / (n · sum x²) over all n users, x being the part of its jobs' time in the system that a user's "
            "jobs were running: run times / (waits + run times). 1: nobody waits longer, for the work it asks for, "
            f"than anybody else. No time counts as less than {SHORTEST_S * 1000:.0f} ms."
        ),
    ),
    (
        "Lost, run twice",
        (
            "Counted from what the handlers themselves wrote down: submitted and never run to the end; run to the end "
            "more than once. A job cut off by kill -9 is delivered again when its lease expires."
        ),
    ),
    (
        "Leases taken back, begun again",
        (
            "A worker claims messages, then begins their handlers. All leases of the killed worker are taken back when "
            "they expire (the queue's count); begun again are those whose handler had begun by then (the handlers' own "
            "log). The others were claimed but not begun: their handlers began once."
        ),
    ),
    (
        "Slots",
        (
            "Every running message holds a slot of its user's limit and one of its group's. Those of the killed worker "
            "are freed in the step that takes its messages back; healed are those that only reconcile found."
        ),
    ),
)
"""Terms of the table and their meaning."""


def seconds(value: float | None) -> str:
    """A duration as people read it: milliseconds below a second; a dash for none.

    Example:
        >>> seconds(0.0123), seconds(3.456), seconds(None)
        ('12 ms', '3.46 s', '-')
    """
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 0.9995 else f"{value:.2f} s"


def column(scheduler: str) -> str:
    """The heading of a scheduler's column."""
    return "FIFO" if scheduler == "fifo" else scheduler


def describe_plan(source: str, plan: Plan, *, workers: int) -> Iterator[str]:
    """What is going to be run, and how it came from the log."""
    sent = Counter(job.tenant for job in plan.jobs)
    groups = len({job.group for job in plan.jobs} - {None})
    biggest, most = sent.most_common(1)[0]
    work = sum(plan.offered.values())
    of_work = (
        f", which are {plan.offered[biggest] / work:.0%} of the work (run times added up)" if work else ""
    )
    yield (
        f"{counted(len(plan.jobs), 'job')} of {counted(len(sent), 'user')} in {counted(groups, 'group')}, "
        f"{plan.log_span_s / 3600:,.1f} hours of {source}; {biggest} alone sent {most / len(plan.jobs):.0%} of the "
        f"jobs{of_work}."
    )
    yield from _left_out(plan)
    yield (
        f"Each replay: submitted in {plan.span_s:.1f} s to {counted(workers, 'worker process', 'worker processes')} "
        f"with {counted(plan.slots, 'slot')} together; at most {plan.tenant_limit} for one user and {plan.group_limit} for one group. Run times are "
        f"scaled by {plan.run_scale:.2g}, to {plan.longest_run_s:.1f} s at most ({counted(plan.shortened, 'job')} shortened)."
    )


def _left_out(plan: Plan) -> Iterator[str]:
    if not plan.whole:
        yield (
            f"The log has {plan.in_log:,} jobs; {len(plan.jobs):,} spread evenly over it are taken. All of them "
            f"need --seconds {2 * seconds_for(plan.in_log):,.0f}."
        )
    if plan.skipped:
        yield f"{counted(plan.skipped, 'job')} of the log never ran, by its own account: left out."


def describe_kill(replays: Sequence[Replay]) -> Iterator[str]:
    """When which worker was killed, in each replay; or that none was."""
    for replay in replays:
        if replay.kill is None:
            if replay.in_time:
                yield no_kill(replay.scheduler)
        else:
            yield (
                f"{column(replay.scheduler)}: {replay.kill.process} was ended by kill -9 after {replay.kill.at_s:.1f} s "
                f"and another one started; all was done after {replay.wall_s:.1f} s. "
                f"The producer was at most {seconds(replay.late_s)} late."
            )


def no_kill(scheduler: str) -> str:
    """That nobody was killed, and why."""
    return (
        f"{column(scheduler)}: no worker was killed: with so few jobs worker-1 had none running when it was its time. "
        "Take a longer log, or more of it (--jobs), to see a kill."
    )


def describe_taken_back(replays: Sequence[Replay]) -> Iterator[str]:
    """Why more leases were taken back than handlers begun again, where it is so."""
    for replay in replays:
        taken, again = replay.facts.reclaimed, figures(replay).redelivered
        if replay.kill is not None and taken > again:
            yield (
                f"{column(replay.scheduler)}: {counted(taken, 'lease')} taken back, of "
                f"{counted(again, 'handler')} that had begun and of {counted(taken - again, 'message')} that the killed "
                "worker had claimed and not begun."
            )


def untold(replay: Replay) -> list[JobRecord]:
    """Jobs run twice because the killed worker had run them to their end and was killed before it could say so."""
    if (kill := replay.kill) is None:
        return []
    return [
        record
        for record in replay.records
        if record.completions > 1
        and any(
            delivery.process == kill.process
            and delivery.end_s is not None
            and kill.at_s - delivery.end_s < SETTLED_S
            for delivery in record.deliveries
        )
    ]


def describe_price(replays: Sequence[Replay]) -> Iterator[str]:
    """Why large tenants wait longer when it is fair, where they do."""
    fifo, fair = (figures(replay).large.wait_p95_s for replay in replays)
    if fifo is not None and fair is not None and fair > fifo:
        yield (
            "Large tenants wait longer under fair (p95): the workers and the work are the same, so what small tenants no "
            "longer wait is waited by those who ask for more than an equal share."
        )


def describe_untold(replays: Sequence[Replay]) -> Iterator[str]:
    """Why jobs ran twice after the kill, if any did."""
    for replay in replays:
        if jobs := len(untold(replay)):
            yield (
                f"{column(replay.scheduler)}: {jobs} run twice: ended in the killed worker just before the kill, too late "
                "for it to tell the queue. At-least-once delivery runs such a job again."
            )


def verdict(replay: Replay) -> list[str]:
    """What went wrong in this replay, a line each; empty if nothing did.

    A job that the killed worker ran to the end just before it could say so is run again, as at-least-once
    delivery must; any other job run twice is a fault.
    """
    found, which = figures(replay), column(replay.scheduler)
    twice = found.run_twice - len(untold(replay))
    unsent = len(replay.plan.jobs) - found.submitted
    faults = [
        (not replay.in_time, f"stopped after {replay.wall_s:.0f} s, before everything was done"),
        (bool(unsent), f"{counted(unsent, 'job')} not submitted"),
        (bool(found.lost), f"{counted(found.lost, 'job')} submitted and not run to the end"),
        (bool(twice), f"{counted(twice, 'job')} run twice that the killed worker had no part in"),
        (bool(replay.facts.held), f"{counted(replay.facts.held, 'slot')} still held"),
        *((True, f"audit() found: {finding}") for finding in replay.facts.findings),
    ]
    return [f"{which}: {text}" for wrong, text in faults if wrong]
