"""A replay computed instead of run: enough of a scheduler to see what a plan will show.

Slots, limits, FIFO and start-time fair queueing over tenants are there; processes, a server and time are not.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque

from fairqueue.demo.plan import Plan, PlannedJob
from fairqueue.demo.result import Delivery, JobRecord, Replay
from tests.demo.made import CLEAN

Lane = tuple[str, str | None]


class Simulation:
    """One run of a plan; `run()` gives its replay."""

    def __init__(self, plan: Plan, scheduler: str) -> None:
        self._plan, self._scheduler = plan, scheduler
        self._lanes: dict[Lane, deque[tuple[int, PlannedJob]]] = defaultdict(deque)
        self._tags: dict[str, float] = defaultdict(float)
        self._held: Counter[tuple[str, str | None]] = Counter()
        self._ends: list[tuple[float, int, PlannedJob]] = []
        self._virtual_time = 0.0
        self._records: dict[str, JobRecord] = {}

    def run(self) -> Replay:
        for number, job in enumerate(self._plan.jobs):
            while self._ends and self._ends[0][0] <= job.at_s:
                self._finish()
            self._submit(number, job)
            self._fill(job.at_s)
        last = 0.0
        while self._ends:
            last = self._finish()
        records = [self._records[job.id] for job in self._plan.jobs]
        return Replay(self._scheduler, self._plan, records, last, 0.0, None, CLEAN, True)

    def _submit(self, number: int, job: PlannedJob) -> None:
        if not any(lane[0] == job.tenant and jobs for lane, jobs in self._lanes.items()):
            self._tags[job.tenant] = max(self._tags[job.tenant], self._virtual_time)
        self._lanes[job.tenant, job.group].append((number, job))

    def _finish(self) -> float:
        now, _, job = heapq.heappop(self._ends)
        self._held["tenant", job.tenant] -= 1
        self._held["group", job.group] -= 1
        self._fill(now)
        return now

    def _fill(self, now: float) -> None:
        while len(self._ends) < self._plan.slots and (lane := self._next_lane()) is not None:
            number, job = self._lanes[lane].popleft()
            self._virtual_time = max(self._virtual_time, self._tags[job.tenant])
            self._tags[job.tenant] += max(job.run_s, 0.001)
            self._held["tenant", job.tenant] += 1
            self._held["group", job.group] += 1
            end = now + job.run_s
            heapq.heappush(self._ends, (end, number, job))
            self._records[job.id] = JobRecord(job, [Delivery("simulated", 1, now, end)])

    def _next_lane(self) -> Lane | None:
        free = [lane for lane, jobs in self._lanes.items() if jobs and self._has_room(lane)]
        return min(free, key=self._order, default=None)

    def _has_room(self, lane: Lane) -> bool:
        tenant, group = lane
        return self._held["tenant", tenant] < self._plan.tenant_limit and (
            group is None or self._held["group", group] < self._plan.group_limit
        )

    def _order(self, lane: Lane) -> tuple[float, int]:
        first = self._lanes[lane][0][0]
        return (0.0 if self._scheduler == "fifo" else self._tags[lane[0]], first)
