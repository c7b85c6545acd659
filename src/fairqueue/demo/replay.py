"""One replay: a private server, a producer, worker processes, a ``kill -9``, and what was left at the end.

Only the public API of fairqueue is used here, as any program would.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fairqueue import FairQueue, Limit, NewMessage
from fairqueue.demo.crew import Crew
from fairqueue.demo.journal import JournalReader
from fairqueue.demo.plan import Plan, PlannedJob
from fairqueue.demo.progress import Screen, Snapshot
from fairqueue.demo.result import JobRecord, Kill, QueueFacts, Replay
from fairqueue.demo.words import no_kill
from fairqueue.demo.worker_process import JobPayload, WorkerOrder

Scheduler = Literal["fifo", "fair"]

SCHEDULERS: tuple[Scheduler, ...] = ("fifo", "fair")

KILL_AT = 0.4
"""When a worker is killed, as a part of the time in which jobs are submitted."""

VISIBILITY_S, RECLAIM_S = 2.0, 0.5
"""Short, so that what the killed worker held comes back while the replay still runs."""

LOOK_S = 0.2
"""How often the logs, the workers and the queue's counters are looked at."""

TICK_S, MOST_AT_ONCE = 0.005, 500
"""The producer sends what is due this often, so many jobs at a time."""

LIMITS = ("tenant", "group")


@dataclass(slots=True)
class _Run:
    """The state of one replay under way."""

    plan: Plan
    scheduler: Scheduler
    began: float
    logs: JournalReader
    ends_s: float
    submitted: list[str] = field(default_factory=list)
    killed: Kill | None = None
    late_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def records(self) -> list[JobRecord]:
        return [self.logs.records[name] for name in self.submitted]


async def replay(
    plan: Plan, scheduler: Scheduler, *, workers: int, stop_after_s: float, screen: Screen
) -> Replay:
    """Run the plan once under ``scheduler`` with ``workers`` processes; stop it after ``stop_after_s`` at the latest.

    Raises:
        FairQueueError: the server or a worker could not be started, or ended by itself.
    """
    with tempfile.TemporaryDirectory(prefix="fairqueue-demo-", ignore_cleanup_errors=True) as directory:
        async with _queue(plan, scheduler) as queue:
            await queue.stats()  # connects, which starts the server: its address is known from here on
            crew = Crew(
                lambda process: _order(queue, scheduler, process, plan.slots // workers, directory),
                Path(directory),
            )
            async with crew:
                names = [f"worker-{number}" for number in range(1, workers + 1)]
                await asyncio.gather(*map(crew.start, names))
                began = time.monotonic()
                run = _Run(
                    plan,
                    scheduler,
                    began,
                    JournalReader(Path(directory), plan.jobs, began=began),
                    stop_after_s,
                )
                in_time = await _run(run, queue, crew, screen)
                wall_s = run.elapsed_s
            run.logs.poll()
            return Replay(
                scheduler,
                plan,
                run.records,
                wall_s,
                run.late_s,
                run.killed,
                await _facts(queue),
                in_time,
            )


def _queue(plan: Plan, scheduler: Scheduler) -> FairQueue[JobPayload]:
    return FairQueue(
        "embedded://",
        name=f"demo-{scheduler}",
        limits=[
            Limit("tenant", default=plan.tenant_limit),
            Limit("group", default=plan.group_limit, key="group"),
        ],
        scheduler=scheduler,
        visibility_timeout=VISIBILITY_S,
    )


def _order(
    queue: FairQueue[JobPayload], scheduler: Scheduler, process: str, slots: int, logs: str
) -> WorkerOrder:
    return WorkerOrder(process, queue.url, queue.name, scheduler, slots, VISIBILITY_S, RECLAIM_S, logs)


async def _run(run: _Run, queue: FairQueue[JobPayload], crew: Crew, screen: Screen) -> bool:
    """Submit everything, kill a worker on the way, watch until the queue is empty; False if the time ran out first."""
    tasks = [
        asyncio.create_task(_produce(run, queue)),
        asyncio.create_task(_kill_one(run, crew, screen)),
        asyncio.create_task(_watch(run, queue, crew, screen)),
    ]
    try:
        async with asyncio.timeout(run.ends_s):
            await asyncio.gather(*tasks)
    except TimeoutError:
        return False
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return True


async def _produce(run: _Run, queue: FairQueue[JobPayload]) -> None:
    """Send every job when it is due; all that is due together, so that after a stall the producer catches up."""
    jobs = run.plan.jobs
    while (sent := len(run.submitted)) < len(jobs):
        await asyncio.sleep(max(TICK_S, jobs[sent].at_s - run.elapsed_s))
        if batch := _due(jobs[sent : sent + MOST_AT_ONCE], run.elapsed_s):
            await queue.enqueue_many([_message(job) for job in batch])
            run.late_s = max(run.late_s, run.elapsed_s - batch[0].at_s)
            run.submitted += [job.id for job in batch]


def _due(jobs: Sequence[PlannedJob], now_s: float) -> list[PlannedJob]:
    return list(itertools.takewhile(lambda job: job.at_s <= now_s, jobs))


def _message(job: PlannedJob) -> NewMessage[JobPayload]:
    """The job as a message. Its cost is its run time, so a fair share is a share of worker time."""
    return NewMessage(
        JobPayload(run_s=job.run_s),
        tenant=job.tenant,
        id=job.id,
        metadata={} if job.group is None else {"group": job.group},
        cost=min(max(job.run_s, 0.001), 1000),
    )


async def _kill_one(run: _Run, crew: Crew, screen: Screen) -> None:
    """``kill -9`` a worker once it has handlers running, then start another one."""
    victim = "worker-1"
    await asyncio.sleep(KILL_AT * run.plan.span_s)
    while not run.logs.running.get(victim):
        if run.logs.done == len(run.plan.jobs):
            screen.note(no_kill(scheduler=run.scheduler))
            return  # so few jobs that it has none now and will never get one again
        await asyncio.sleep(TICK_S)
    run.killed = Kill(victim, crew.kill(victim), run.elapsed_s)
    screen.note(f"kill -9 {run.killed.pid} ({victim}) with {run.logs.running[victim]} handlers running")
    await crew.start("worker-1-again")


async def _watch(run: _Run, queue: FairQueue[JobPayload], crew: Crew, screen: Screen) -> None:
    """Show how it goes until everything was submitted and the queue says that it is empty."""
    while True:
        run.logs.poll()
        crew.check()
        stats = await queue.stats()
        screen.show(_snapshot(run, stats.ready + stats.delayed, stats.in_flight, len(crew.alive)))
        left = stats.ready + stats.delayed + stats.in_flight
        if not left and len(run.submitted) == len(run.plan.jobs):
            return
        await asyncio.sleep(LOOK_S)


def _snapshot(run: _Run, waiting: int, running: int, workers: int) -> Snapshot:
    return Snapshot(
        scheduler=run.scheduler,
        elapsed_s=run.elapsed_s,
        total=len(run.plan.jobs),
        submitted=len(run.submitted),
        done=run.logs.done,
        waiting=waiting,
        running=running,
        workers=workers,
    )


async def _facts(queue: FairQueue[JobPayload]) -> QueueFacts:
    """What the queue says at the end, after one pass of the reconciler."""
    await queue.reconcile()
    totals = (await queue.stats()).totals
    held = [state.held or 0 for limit in LIMITS async for state in queue.limits.list(limit)]
    report = await queue.audit()  # names what could not be counted
    return QueueFacts(
        reclaimed=totals.reclaimed,
        healed=totals.healed,
        freed_late=totals.freed_late,
        held=sum(held),
        findings=tuple(str(finding) for finding in report.findings),
    )
