"""The run: what comes is enqueued, claimed and completed on a private server, with the clock moved from event to event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeVar

from fairqueue.errors import BacklogFullError
from fairqueue.lease import Lease
from fairqueue.queue import FairQueue
from fairqueue.simulate.claims import Claims
from fairqueue.simulate.clockwork import Clockwork
from fairqueue.simulate.events import Arrival, Expiry, Finish, Pausing, Source, Token, Worker
from fairqueue.simulate.meter import GroupMeter, TenantMeter, Whole
from fairqueue.simulate.result import Simulated
from fairqueue.simulate.traffic import LONGEST, micros
from fairqueue.simulate.workload import TENANT_LIMIT, Workload

__all__ = ["simulate"]

T = TypeVar("T")
Progress = Callable[[float, int], None]


async def simulate(workload: Workload, progress: Progress | None = None) -> Simulated:
    """Runs the workload on the real engine, on a private server that ends with the run, and tells who got what.

    Time is virtual: a run of an hour takes as long as its messages take to pass through the queue. Handlers never fail,
    workers claim the moment they have room, and the server and the network take no time. Equal workloads give equal
    results.

    Args:
        workload: of ``load_workload`` or ``workload_of``.
        progress: called at each instant with the seconds so far and how many messages were sent.

    Raises:
        FairQueueError: the private server could not be started, or was lost.

    Example:
        >>> (await simulate(workload)).entries[0].wait_p95_s                    # doctest: +SKIP
        0.25
    """
    clockwork = Clockwork()
    async with FairQueue(
        "embedded://",
        limits=workload.limits,
        scheduler=workload.scheduler,
        quantum=workload.quantum,
        visibility_timeout=2 * LONGEST,  # no lease expires: what runs, runs to its end
        clock=clockwork.clock,
    ) as queue:
        await _configure(queue, workload)
        return await _Run(workload, queue, clockwork, progress).run()


async def _configure(queue: FairQueue[Any], workload: Workload) -> None:
    for (limit, id_), most in workload.own_limits.items():
        await queue.limits.set(limit, id_, most)
    default = {limit.name: limit.default for limit in workload.limits}.get(TENANT_LIMIT)
    for name, slots in workload.guarantees.items():
        most = workload.own_limits.get((TENANT_LIMIT, name), default)
        await queue.limits.set(TENANT_LIMIT, name, most, guaranteed=slots)
    for group, rate in workload.rates.items():
        await queue.limits.set_rate(*group, rate.n, per=rate.per_s, burst=rate.burst)
    for tenant in workload.tenants:
        for name in tenant.names():
            if tenant.weight != 1:
                await queue.tenants.set_weight(name, tenant.weight)
            if tenant.backlog is not None:
                await queue.limits.set_backlog(name, tenant.backlog)


class _Run:
    def __init__(
        self, workload: Workload, queue: FairQueue[Any], clockwork: Clockwork, progress: Progress | None
    ) -> None:
        self._workload, self._queue, self._clockwork = workload, queue, clockwork
        self._progress = progress
        self._until = micros(workload.duration_s)
        self._meters = [
            TenantMeter(name, tenant.name) for tenant in workload.tenants for name in tenant.names()
        ]
        self._groups: dict[tuple[str, str], GroupMeter] = {}
        self._defaults = {limit.name: limit.default for limit in workload.limits}
        self._waiting: dict[tuple[str, str], Arrival] = {}
        self._ready: Counter[str] = Counter()  # messages that wait, by pool
        self._token_at = 0
        self._standing: Counter[frozenset[tuple[str, str]]] = Counter()  # pauses, by their selectors
        self._bounded = {
            name for tenant in workload.tenants if tenant.backlog is not None for name in tenant.names()
        }
        self._workers = list(_workers(workload))
        self._claims = Claims(queue, workload.charge == "time", lambda: clockwork.now / 1e6)

    async def run(self) -> Simulated:
        for source in self._sources():
            self._expect(source)
        self._plan_pauses()
        while events := self._clockwork.next_instant(self._until):
            await self._finish(_of(events, Finish))
            self._expire(_of(events, Expiry))
            await self._pause(_of(events, Pausing))
            await self._arrive(_of(events, Source))
            await self._claim()
            if self._progress:
                self._progress(self._clockwork.now / 1e6, sum(meter.sent for meter in self._meters))
        return self._result()

    # --- arrivals --------------------------------------------------------------------------------------------

    def _sources(self) -> Iterator[Source]:
        meters = iter(self._meters)
        for tenant in self._workload.tenants:
            for _ in range(tenant.count):
                meter = next(meters)
                for number, stream in enumerate(tenant.streams):
                    when, runs = (
                        Random(f"{self._workload.seed}/{meter.name}/{number}/{what}")
                        for what in ("when", "runs")
                    )
                    times = stream.arrivals.times(when, self._workload.duration_s)
                    yield Source(meter, stream, number, times, runs)

    def _expect(self, source: Source) -> None:
        if (at := source.advance()) is not None:
            self._clockwork.add(at, source)

    async def _arrive(self, sources: list[Source]) -> None:
        """All that comes now: a burst is one call, in the order of the file."""
        arrivals: list[Arrival] = []
        for source in sources:
            arrivals.append(source.arrival(self._clockwork.now))
            while source.advance() == self._clockwork.now:
                arrivals.append(source.arrival(self._clockwork.now))
            if source.next_at is not None:
                self._clockwork.add(source.next_at, source)
        for arrival in await self._accepted(arrivals):
            self._waiting[arrival.source.meter.name, arrival.id] = arrival
            self._ready[arrival.source.stream.pool] += 1
            self._expect_expiry(arrival)

    async def _accepted(self, arrivals: list[Arrival]) -> list[Arrival]:
        """Enqueues them: those of a tenant with a bounded backlog one by one, as it is told of each that is refused."""
        together = [arrival for arrival in arrivals if arrival.source.meter.name not in self._bounded]
        if together:
            await self._queue.enqueue_many(arrival.message() for arrival in together)
        for arrival in arrivals if len(together) < len(arrivals) else ():
            if arrival.source.meter.name in self._bounded:
                try:
                    await self._queue.enqueue_many([arrival.message()])
                    together.append(arrival)
                except BacklogFullError:
                    arrival.source.meter.refused += 1
        return together

    def _expect_expiry(self, arrival: Arrival) -> None:
        """At the millisecond at which the server's rule says so: its clock has no finer instants."""
        expires_s = arrival.source.stream.expires_s
        if expires_s is not None:
            milliseconds = arrival.at // 1000 + max(1, round(expires_s * 1000))
            self._clockwork.add(milliseconds * 1000, Expiry(arrival))

    def _expire(self, expiries: list[Expiry]) -> None:
        """Those that have not started: the engine drops them by itself."""
        for arrival in (each.arrival for each in expiries):
            if self._waiting.pop((arrival.source.meter.name, arrival.id), None):
                self._ready[arrival.source.stream.pool] -= 1
                arrival.source.meter.expire(self._clockwork.now - arrival.at)

    # --- pauses ----------------------------------------------------------------------------------------------

    def _plan_pauses(self) -> None:
        for paused in self._workload.pauses:
            self._clockwork.add(micros(paused.from_s), Pausing(paused.selectors, begins=True))
            self._clockwork.add(micros(paused.until_s), Pausing(paused.selectors, begins=False))

    async def _pause(self, pausings: list[Pausing]) -> None:
        """The queue knows one pause of the same selectors: it ends with the last of those that overlap or meet."""
        changed = {}
        for each in pausings:
            selectors = frozenset(each.selectors.items())
            self._standing[selectors] += 1 if each.begins else -1
            changed[selectors] = each.selectors
        for selectors, named in changed.items():
            await (self._queue.pause if self._standing[selectors] else self._queue.resume)(**named)

    # --- workers ---------------------------------------------------------------------------------------------

    async def _finish(self, finished: list[Finish]) -> None:
        if not finished:
            return
        await self._claims.complete([each.lease for each in finished])
        for each in finished:
            each.worker.free += 1
            each.meter.done += 1
            self._hold(each.lease, -1)

    async def _claim(self) -> None:
        for worker in self._workers:
            if worker.free and any(self._ready[pool] for pool in worker.pools):
                for lease in await self._claims.claim(worker.free, worker.name, worker.pools):
                    self._start(lease, worker)
        self._expect_token()

    def _expect_token(self) -> None:
        """Whoever idles looks again when the queue says that something is due, as a worker does by its own timer."""
        idle = any(
            worker.free and any(self._ready[pool] for pool in worker.pools) for worker in self._workers
        )
        due_ms = self._claims.next_due_ms
        if idle and due_ms is not None:
            at = (self._clockwork.now // 1000 + max(due_ms, 1)) * 1000
            if at != self._token_at:
                self._token_at = at
                self._clockwork.add(at, Token())

    def _start(self, lease: Lease[Any], worker: Worker) -> None:
        now, message = self._clockwork.now, lease.message
        arrival = self._waiting.pop((message.tenant, message.id))
        ends = now + arrival.run
        meter = arrival.source.meter
        meter.start(now - arrival.at, min(ends, self._until) - now, arrival.cost)
        self._ready[message.pool] -= 1
        worker.free -= 1
        self._hold(lease, +1)
        self._clockwork.add(ends, Finish(lease, worker, meter))

    def _hold(self, lease: Lease[Any], by: int) -> None:
        for group in lease.message.groups:
            meter = self._groups.get(group)
            if meter is None:
                meter = self._groups[group] = GroupMeter(
                    self._workload.own_limits.get(group, self._defaults[group[0]])
                )
            meter.change(self._clockwork.now, by)

    # --- the end ---------------------------------------------------------------------------------------------

    def _result(self) -> Simulated:
        for arrival in self._waiting.values():
            arrival.source.meter.waits.append(self._until - arrival.at)
        workload, meters = self._workload, self._meters
        by_entry: dict[str, list[TenantMeter]] = {tenant.name: [] for tenant in workload.tenants}
        for meter in meters:
            by_entry[meter.entry].append(meter)
        whole = Whole.of(meters, self._until, workload.capacity)
        total = whole.share("all", meters)
        return Simulated(
            duration_s=workload.duration_s,
            seed=workload.seed,
            scheduler=workload.scheduler,
            capacity=workload.capacity,
            sent=total.sent,
            done=total.done,
            waiting=total.waiting,
            expired=total.expired,
            refused=total.refused,
            utilisation=total.utilisation,
            entries=tuple(whole.share(name, several) for name, several in by_entry.items()),
            tenants=tuple(whole.share(meter.name, [meter]) for meter in meters),
            limits=tuple(meter.use(group, self._until) for group, meter in sorted(self._groups.items())),
        )


def _of(events: list[Any], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


def _workers(workload: Workload) -> Iterator[Worker]:
    for kind, workers in enumerate(workload.workers, start=1):
        for number in range(1, workers.processes + 1):
            yield Worker(f"worker-{kind}-{number}", workers.pools, workers.concurrency)
