"""Carries the plan out under load, lets the queue run dry, and takes stock of what is left."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairqueue import DeadLetter, SyncFairQueue
from fairqueue.maintenance import auditor
from tests.chaos import journal as lines
from tests.chaos import load
from tests.chaos.accounting import Stock
from tests.chaos.fleet import Counts, Fleet, Place, Process
from tests.chaos.journal import Journal
from tests.chaos.plan import (
    ANY,
    DRAINING,
    FREEZE,
    KILL,
    MAINTAINER,
    OPERATOR,
    OWNER,
    RUNNING,
    TERMINATE,
    WATCHER,
    WORKER,
    Action,
    plan,
)
from tests.chaos.watch import Watch

_TICK, _STALK = 0.01, 0.0003
_PHASE_PATIENCE, _DRAINING_PATIENCE = 0.4, 1.0
_PATIENCE = 120.0
_AUDIT_EVERY = 40
_PROCESSES_PER_KILL = 20
_CALM = 1.0
"""Seconds after the server is back until all have extended their leases: the accounting knows nothing of outages."""


@dataclass(slots=True)
class Done:
    """What was done, and how it ended."""

    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By role and what was done to it."""
    phases: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Of workers: by what was done and what they were doing."""
    counts: Counts = field(default_factory=Counts)
    absences: list[float] = field(default_factory=list)
    outages: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    stock: Stock | None = None

    @property
    def kills(self) -> int:
        """Processes that were there when the kill came, and are gone by it; the server's watcher among them."""
        return self.counts.killed + self.faults[WATCHER, KILL]


class Chaos:
    """One run of so many kills. ``journal`` and ``log`` are written; the server's data are gone afterwards."""

    def __init__(self, seed: int, kills: int, journal: Path, log: Path, tell: Callable[[str], None]) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="fq-chaos-")).resolve()
        self._plan, self._kills, self._log, self._tell = plan(seed), kills, log, tell
        self._url = f"embedded://{self._home / 'data'}"
        self._fleet = Fleet(self._url, seed, journal, log, most_processes=_PROCESSES_PER_KILL * (kills + 20))
        self._watch = Watch(self._home / "data", journal)
        self._journal = Journal(journal, 0)
        self.done = Done(counts=self._fleet.counts)

    def run(self) -> Done:
        try:
            self._start()
            self._break()
            self._run_dry()
            self.done.stock = self._take_stock()
        finally:
            self._fleet.kill_all()
            self._watch.close()
            self._journal.close()
            self._end_server()
        self.done.absences, self.done.outages = self._watch.absences, self._watch.outages
        self.done.problems = self._watch.problems
        return self.done

    def _start(self) -> None:
        self._fleet.start_owners()
        self._until(lambda: self._watch.there, "the owners to have started the server")
        assert self._watch.url is not None
        self._fleet.start_others(self._watch.url)

    # --- breaking ------------------------------------------------------------------------------------------------

    def _break(self) -> None:
        """Goes on until so many have been killed: a kill that came too late is made up for by the next one."""
        for number, action in enumerate(self._plan, 1):
            self._pass(action.pause)
            self._until(lambda: not self._fleet.kills_pending, "whoever was killed to be gone")
            if self.done.kills >= self._kills:
                break
            if action.role == WATCHER:
                self._kill_watcher()
            else:
                self._fault(action)
            if number % _AUDIT_EVERY == 0:
                self._fleet.audit()
                self._tell(f"{number} faults, {self.done.kills} of {self._kills} kills")
        self._until(lambda: self._fleet.restored, "all to be back")

    def _fault(self, action: Action) -> None:
        place = self._chosen(action)
        process = place.process
        assert process is not None
        how = self._met_draining(process, action) if action.phase == DRAINING else self._met(process, action)
        self.done.faults[action.role, how] += 1

    def _met(self, process: Process, action: Action) -> str:
        """Waits for the phase, not for long; what it is doing in the end is written down."""
        wanted = action.phase
        self._stalk(lambda: wanted in (ANY, self._fleet.phase(process)), _PHASE_PATIENCE)
        if action.role == WORKER:
            self.done.phases[action.kind, self._fleet.phase(process)] += 1
        self._do(action, process)
        return action.kind

    def _met_draining(self, process: Process, action: Action) -> str:
        """The fault proper comes while it drains; if it has ended before, the SIGTERM was the fault."""
        self._stalk(lambda: self._fleet.phase(process) == RUNNING, _PHASE_PATIENCE)
        self._fleet.terminate(process, action.down)
        self._stalk(lambda: self._fleet.draining(process), _DRAINING_PATIENCE)
        if not self._fleet.draining(process):
            self.done.phases[TERMINATE, RUNNING] += 1
            return TERMINATE
        self.done.phases[action.kind, DRAINING] += 1
        self._do(action, process)
        return f"SIGTERM, then {action.kind}"

    def _do(self, action: Action, process: Process) -> None:
        if action.kind == KILL:
            self._fleet.kill(process, action.down)
        elif action.kind == TERMINATE:
            self._fleet.terminate(process, action.down)
        else:
            assert action.kind == FREEZE
            twin = action.twin and process.reason is None
            self._fleet.freeze(process, action.hold * load.VISIBILITY, twin)

    def _chosen(self, action: Action) -> Place:
        self._until(
            lambda: bool(self._fleet.steady(action.role)), f"a {action.role} that was left alone so far"
        )
        steady = self._fleet.steady(action.role)
        return steady[action.pick % len(steady)]

    def _kill_watcher(self) -> None:
        """Its server ends with it; whoever owns it starts both again. Nothing else happens meanwhile."""
        self._until(lambda: self._watch.watcher() is not None, "the watcher to have noted its number")
        pid = self._watch.watcher()
        assert pid is not None
        self._watch.kill_expected()
        self.done.faults[WATCHER, KILL] += 1
        os.kill(pid, signal.SIGKILL)
        self._until(lambda: self._watch.there, "the server to be back")
        self._pass(_CALM)

    # --- running dry ---------------------------------------------------------------------------------------------

    def _run_dry(self) -> None:
        self._wait_for_the_end(OWNER, OPERATOR)
        with SyncFairQueue[object](self._url, **load.options()) as queue:
            self._resume_all(queue)

            def is_dry() -> bool:
                stats = queue.stats()
                return not stats.ready + stats.delayed + stats.in_flight

            with suppress(AssertionError):  # what is left is wedged: the table says so
                self._until(is_dry, "nothing to be left", pause=0.2)
        self._wait_for_the_end(WORKER, MAINTAINER)

    def _resume_all(self, queue: SyncFairQueue[object]) -> None:
        for pause in list(queue.pauses()):
            selectors = (pause.tenant, pause.queue, pause.pool)
            self._journal.write(lines.RESUMING, selectors=selectors)
            queue.resume(*selectors)

    def _wait_for_the_end(self, *roles: str) -> None:
        asked = self._fleet.end(*roles)
        self._until(lambda: not any(one.lives for one in asked), f"the {' and '.join(roles)}s to end")

    def _take_stock(self) -> Stock:
        with SyncFairQueue[object](self._url, **load.options()) as queue:
            stats = queue.stats()
            findings = [_shown(finding) for finding in queue.audit().findings]
            dead: dict[str, tuple[str, int]] = {}
            waited: dict[str, float] = {}
            for tenant in load.TENANTS:
                cursor: str | None = None
                while True:
                    letters, cursor = queue.dead_letters.list(tenant, cursor=cursor)
                    dead |= {one.message.id: (one.reason, one.crashes) for one in letters}
                    waited |= {one.message.id: _waited(one) for one in letters}
                    if cursor is None:
                        break
                queue.dead_letters.purge(tenant)
            findings += [_shown(finding) for finding in queue.audit().findings]
            return Stock(
                waiting=stats.ready + stats.delayed + stats.in_flight,
                enqueued=stats.totals.enqueued, completed=stats.totals.completed,
                dead_lettered=stats.totals.dead_lettered, dead=dead, findings=findings,
                reclaimed=stats.totals.reclaimed, cancelled=stats.totals.cancelled, dropped=stats.totals.dropped,
                expired=stats.totals.expired, waited=waited,
            )  # fmt: skip

    def _end_server(self) -> None:
        pid = self._watch.watcher()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with suppress(OSError):
            shutil.copy(self._home / "data" / "server.log", self._log.with_name("server.log"))
        shutil.rmtree(self._home, ignore_errors=True)

    # --- time ----------------------------------------------------------------------------------------------------

    def _pass(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self._tick()
            time.sleep(_TICK)

    def _until(self, condition: Callable[[], bool], what: str, pause: float = _TICK) -> None:
        ends = time.monotonic() + _PATIENCE
        while not condition():
            assert time.monotonic() < ends, f"expected {what} within {_PATIENCE:g} s"
            self._tick()
            time.sleep(pause)

    def _stalk(self, condition: Callable[[], bool], patience: float) -> None:
        """Looks so often that a phase of a millisecond is met; goes on without it when it does not come."""
        ends = time.monotonic() + patience
        while not condition() and time.monotonic() < ends:
            time.sleep(_STALK)

    def _tick(self) -> None:
        self._fleet.tick()
        self._watch.look()


def _waited(letter: DeadLetter[object]) -> float:
    return (letter.dead_at - letter.message.enqueued_at).total_seconds()


def _shown(finding: auditor.Finding) -> str:
    return f"{finding.check} {finding.subject!r}: {finding.evidence}"
