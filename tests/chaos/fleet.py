"""The processes as seen from outside: started, signalled, reaped, and started again under the same names.

All are forked from this one process, which has imported everything and has neither threads nor connections of its own
client: a start costs milliseconds. What has to be done later (thaw one, start one again) waits in ``later``.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import journal as lines
from tests.chaos.board import STARTING, Board
from tests.chaos.journal import Journal
from tests.chaos.load import VISIBILITY
from tests.chaos.plan import DRAINING, MAINTAINER, OPERATOR, OWNER, WORKER
from tests.chaos.roles import AUDITOR, FOUND, Order, live

WORKERS, OWNERS, MAINTAINERS, OPERATORS = 6, 2, 2, 1


@dataclass(eq=False, slots=True)
class Process:
    """One process. ``reason``: what was done to it last that ends it; None: it has no reason to end."""

    pid: int
    order: Order
    place: Place | None
    reason: str | None = None
    frozen: bool = False
    was_starting: bool = False
    code: int | None = None

    @property
    def lives(self) -> bool:
        return self.code is None


@dataclass(eq=False, slots=True)
class Place:
    """Where a process of a role belongs: its name stays, whoever has it."""

    role: str
    name: str
    url: str
    odd: bool
    process: Process | None = None
    restarting: bool = False


@dataclass(slots=True)
class Counts:
    """Of the whole run."""

    started: int = 0
    restarts: int = 0
    twins: int = 0
    audits: int = 0
    audits_that_found: int = 0
    killed: int = 0
    """Processes that SIGKILL has ended, by their exit status: one that was gone before it came is none."""
    odd_ends: list[str] = field(default_factory=list)
    """Processes that ended by themselves, or not with 0 although they were asked to."""


class Fleet:
    """Made before anything is started. ``embedded``: the URL of the owners; half of the others use it too."""

    def __init__(self, embedded: str, seed: int, journal: Path, log: Path, most_processes: int) -> None:
        self.counts = Counts()
        self.places: list[Place] = []
        self._embedded, self._seed, self._path, self._log = embedded, seed, journal, log
        self._journal = Journal(journal, 0)
        self._board = Board(most_processes)
        self._numbers = itertools.count(1)
        self._processes: list[Process] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        gc.freeze()  # what is there now is not copied by every fork's first collection

    # --- starting ------------------------------------------------------------------------------------------------

    def start_owners(self) -> None:
        self._fill(OWNER, OWNERS, [self._embedded])

    def start_others(self, plain_url: str) -> None:
        """All but the owners: every other worker and maintainer keeps the embedded server alive too, the rest only use its socket."""
        self._fill(WORKER, WORKERS, [self._embedded, plain_url])
        self._fill(MAINTAINER, MAINTAINERS, [plain_url, self._embedded])
        self._fill(OPERATOR, OPERATORS, [plain_url])

    def _fill(self, role: str, number: int, urls: list[str]) -> None:
        for i in range(number):
            place = Place(role, f"{role[:2]}{i}", urls[i % len(urls)], odd=i % 3 == 1)
            self.places.append(place)
            place.process = self._start(place)

    def _start(self, place: Place) -> Process:
        return self._fork(place, place.role, place.name, place.url, place.odd)

    def audit(self) -> None:
        """Somebody looks whether all is as it should be, and ends."""
        self.counts.audits += 1
        self._fork(None, AUDITOR, AUDITOR, self._embedded, odd=False).reason = "when it has looked"

    def _fork(self, place: Place | None, role: str, name: str, url: str, odd: bool) -> Process:
        order = Order(next(self._numbers), role, name, url, self._seed, odd)
        pid = os.fork()
        if not pid:
            live(order, self._board, self._path, self._log)
        self._processes.append(Process(pid, order, place))
        self.counts.started += 1
        return self._processes[-1]

    def phase(self, process: Process) -> str:
        return self._board.phase(process.order.number)

    # --- breaking ------------------------------------------------------------------------------------------------

    def steady(self, role: str) -> list[Place]:
        """Places whose process is there and was left alone so far; it may still be starting."""
        return [
            place for place in self.places
            if place.role == role and place.process and place.process.lives
            and not place.process.frozen and place.process.reason is None
        ]  # fmt: skip

    def kill(self, process: Process, down: float) -> None:
        self._note(lines.KILLED, process)
        process.reason = lines.KILLED
        self._signal(process, signal.SIGKILL)
        self._restart_after(process, down)

    def terminate(self, process: Process, down: float) -> None:
        self._note(lines.TERMINATED, process)
        process.was_starting = self.phase(process) == STARTING
        process.reason = lines.TERMINATED
        self._signal(process, signal.SIGTERM)
        self._restart_after(process, down)

    def freeze(self, process: Process, seconds: float, twin: bool) -> None:
        """With a twin its place is somebody else's meanwhile, and it is asked to end some time after its thaw."""
        self._note(lines.FROZEN, process)
        process.frozen = True
        self._signal(process, signal.SIGSTOP)
        if twin and process.place and not process.place.restarting:
            self.counts.twins += 1
            process.place.process = self._start(process.place)
            self.after(seconds + VISIBILITY / 2, lambda: self._ask_to_end(process))
        self.after(seconds, lambda: self._thaw(process))

    def _thaw(self, process: Process) -> None:
        process.frozen = False
        if process.lives:
            self._note(lines.THAWED, process)
            self._signal(process, signal.SIGCONT)

    def _ask_to_end(self, process: Process) -> None:
        if process.lives and process.reason is None:
            self.terminate(process, 0)

    def _restart_after(self, process: Process, down: float) -> None:
        """Once: two signals to one process are one restart."""
        place = process.place
        if place is None or place.process is not process or place.restarting:
            return
        place.restarting = True
        self._restart_when_gone(place, process, down)

    def _restart_when_gone(self, place: Place, process: Process, down: float) -> None:
        if process.lives:
            self.after(0.02, lambda: self._restart_when_gone(place, process, down))
            return
        self.after(down, lambda: self._restart(place))

    def _restart(self, place: Place) -> None:
        place.restarting = False
        self.counts.restarts += 1
        place.process = self._start(place)

    def _signal(self, process: Process, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)

    def _note(self, what: str, process: Process) -> None:
        self._journal.write(what, process=process.order.number)

    # --- time ----------------------------------------------------------------------------------------------------

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), do))

    def tick(self) -> None:
        """Does what is due, and buries who has died."""
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()
        for process in [one for one in self._processes if one.lives]:
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                self._bury(process, os.waitstatus_to_exitcode(status))

    def _bury(self, process: Process, code: int) -> None:
        process.code = code
        self._processes.remove(process)
        self._note(lines.EXITED, process)
        self.counts.killed += code == -signal.SIGKILL
        if process.order.role == AUDITOR:
            self.counts.audits_that_found += code == FOUND
            expected = {0, FOUND}
        elif process.reason == lines.KILLED:
            expected = {-signal.SIGKILL, 0}
        else:  # SIGTERM before it could listen ends it, as it does any program
            expected = {0, -signal.SIGTERM} if process.was_starting else {0}
        if code not in expected or process.reason is None:
            self.counts.odd_ends.append(f"{process.order.role} {process.order.name} ended with {code}")

    def draining(self, process: Process) -> bool:
        return process.lives and self.phase(process) == DRAINING

    @property
    def kills_pending(self) -> bool:
        """Whether somebody was killed and has not been buried yet."""
        return any(one.reason == lines.KILLED for one in self._processes)

    # --- ending --------------------------------------------------------------------------------------------------

    @property
    def restored(self) -> bool:
        """Nothing is left to be done later: everybody runs."""
        return not self._later

    def end(self, *roles: str) -> list[Process]:
        """Asks all of these roles to end, and starts none of them again; who they are."""
        asked = [one for one in self._processes if one.order.role in roles]
        for process in asked:
            process.place = None
            if process.reason is None:
                self.terminate(process, 0)
        return asked

    def kill_all(self) -> None:
        """Whatever happens: nobody is left."""
        for process in self._processes:
            self._signal(process, signal.SIGKILL)
            os.waitpid(process.pid, 0)
        self._processes.clear()
        self._journal.close()
