"""What a stopwatch forgives: what it was kept waiting in the time that is judged, and nothing else."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
import redis

from fairqueue.embedded import start_sync
from tests.support import stopwatch
from tests.support.stopwatch import Stopwatch, _Look
from tests.support.waiting import eventually_sync


class Machine:
    """Its clock, and how long threads have waited, as told."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu: dict[str, float] = {"1": 50.0}
        self.stolen, self.disk = 3.0, 7.0

    def look(self) -> _Look:
        return _Look(self.now, dict(self.cpu), self.stolen, self.disk)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def passes(self, seconds: float, waited: float = 0.0, thread: str = "1") -> None:
        self.now += seconds
        self.cpu[thread] = self.cpu.get(thread, 0.0) + waited


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(stopwatch, "_look", machine.look)
    monkeypatch.setattr(stopwatch, "time", machine)
    return machine


def test_what_is_in_time_is(machine: Machine) -> None:
    watch = Stopwatch()
    machine.passes(0.9)
    watch.check(1, "it")


def test_what_is_late_on_a_quiet_machine_is_late(machine: Machine) -> None:
    watch = Stopwatch()
    machine.passes(1.1)
    with pytest.raises(AssertionError, match=r"expected it within 1 s, took 1\.10 s"):
        watch.check(1, "it")


@pytest.mark.parametrize(("waited", "in_time"), [(1.1, True), (0.9, False)])
def test_what_it_was_kept_waiting_is_forgiven(machine: Machine, waited: float, in_time: bool) -> None:
    watch = Stopwatch()
    machine.passes(2, waited, thread="of another process, just started")
    assert is_passed(watch, 1) is in_time


def test_a_wait_before_or_after_the_time_that_is_judged_forgives_nothing(machine: Machine) -> None:
    watch = Stopwatch()
    machine.passes(10, waited=10)
    watch.look()
    since = machine.now
    machine.passes(2)
    watch.look()
    until = machine.now
    machine.passes(10, waited=10)
    assert not is_passed(watch, 1, since, until)


def test_several_that_wait_at_once_forgive_no_more_than_the_time_that_passed(machine: Machine) -> None:
    watch = Stopwatch()
    machine.passes(0.5, waited=5)
    watch.look()
    machine.passes(1.5)
    assert not is_passed(watch, 1)


def test_a_wait_that_was_longer_than_a_look_is_that_of_the_looks_before(machine: Machine) -> None:
    """The kernel adds it up when it is over."""
    watch = Stopwatch()
    machine.passes(1.5)
    watch.look()
    machine.passes(0.5, waited=1.5)
    assert is_passed(watch, 1)


def test_never_more_than_several_times_the_bound_is_forgiven(machine: Machine) -> None:
    watch = Stopwatch()
    machine.passes(7, waited=7)
    assert not is_passed(watch, 1)


def test_a_machine_that_was_not_there_is_forgiven(machine: Machine) -> None:
    watch = Stopwatch()
    machine.passes(2)
    machine.stolen += 1.5
    assert is_passed(watch, 1)


def test_a_wait_for_the_disk_is_forgiven(machine: Machine) -> None:
    watch = Stopwatch()
    machine.passes(2)
    machine.disk += 1.5
    assert is_passed(watch, 1)


def test_each_of_many_is_judged_by_its_own_time(machine: Machine) -> None:
    watch, spans = Stopwatch(), []
    for waited in (1.5, 0.0):
        since = machine.now
        machine.passes(2, waited)
        watch.look()
        spans.append((since, machine.now))
    watch.check_each(1, "it", spans[:1])
    with pytest.raises(AssertionError, match="took 2"):
        watch.check_each(1, "it", spans)


@pytest.mark.parametrize(("waited", "in_time"), [(1.1, True), (0.9, False)])
def test_of_a_time_that_others_measured_it_is_not_known_when_it_was(
    machine: Machine, waited: float, in_time: bool
) -> None:
    watch = Stopwatch()
    machine.passes(20, waited)
    if in_time:
        watch.check_some(1, "it", 2)
    else:
        with pytest.raises(AssertionError, match="within 1 s, took 2"):
            watch.check_some(1, "it", 2)


def test_it_looks_all_the_while_in_a_thread() -> None:
    watch = Stopwatch()
    with watch.looking():
        eventually_sync(lambda: len(watch._looks) > 2, "two looks")
    assert [look.at for look in watch._looks] == sorted(look.at for look in watch._looks)


def is_passed(watch: Stopwatch, bound: float, since: float | None = None, until: float | None = None) -> bool:
    try:
        watch.check(bound, "it", since, until)
    except AssertionError:
        return False
    return True


def test_threads_of_processes_that_were_started_are_looked_at() -> None:
    """The real kernel; where it does not tell, there are none."""
    look = stopwatch._look()
    assert min(look.stolen, look.disk) >= 0
    assert all(seconds >= 0 for seconds in look.cpu.values())


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the kernel does not tell")
def test_so_are_those_that_are_nobodys_children() -> None:
    """The server belongs to a process that has left the one that started it."""
    with closing(start_sync(None)) as server, redis.Redis.from_url(server.url) as client:
        assert {os.getpid(), client.info("server")["process_id"]} <= stopwatch._ours()
