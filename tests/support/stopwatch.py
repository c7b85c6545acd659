"""Times that are promised, judged on a machine that others use too.

A promise in seconds holds where processes get a CPU and a disk when they ask for them. Linux counts how long each had to
wait for a CPU (``/proc/<pid>/schedstat``), how long a virtual machine was without one (``/proc/stat``), and how long it
waited for its disks (``/proc/pressure/io``). A bound that was missed is forgiven as much as this process and those it
started were kept waiting in the very time that is judged, and never more than ``HARD`` times itself and two seconds (a
machine that stands still does so for everybody, however short the promise); where the kernel does not tell, nothing is
forgiven::

    watch = Stopwatch()
    ...
    watch.check(2, "to be back")                          # what has passed since it was made
    watch.check(2, "to be back", since, until)            # a part of that, by the monotonic clock

Of many times each is judged by what was waited for just then, if the watch looks all the while; so are processes that
are gone when it comes to the check::

    with watch.looking():
        ...
        spans.append((began, time.monotonic()))
    watch.check_each(1, "each to be claimed", spans)
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

HARD = 5
STANDSTILL = 2  # seconds
MARK = "FQ_STOPWATCH"  # in the environment of whoever is started from here: an embedded server has no parent that tells
_LOOKS_EVERY = 0.1  # seconds; a look costs some milliseconds
_REFRESHED_EVERY = 2.5  # seconds; the kernel sums up the waits for disks every 2


os.environ[MARK] = f"{os.environ.get(MARK, '')}/{os.getpid()}/"


@dataclass(frozen=True, slots=True)
class _Look:
    """At an instant: seconds that each thread of ours had waited for a CPU, all of us for the machine, some for a disk."""

    at: float
    cpu: dict[str, float]
    stolen: float
    disk: float


class Stopwatch:
    """Started when it is made."""

    def __init__(self) -> None:
        self._looks = [_look()]

    @property
    def seconds(self) -> float:
        """What has passed, all of it."""
        return time.monotonic() - self._looks[0].at

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Looks again and again meanwhile, in a thread."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOKS_EVERY):
                self.look()

        thread = threading.Thread(target=look, name="stopwatch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.look()

    def look(self) -> None:
        """Notes what was waited for until now."""
        self._looks.append(_look())

    def check(self, bound: float, what: str, since: float | None = None, until: float | None = None) -> None:
        """Fails unless that took less than ``bound`` seconds, those apart in which the machine kept it waiting.

        From the start of the watch, or ``since``, until now, or ``until``.
        """
        until = time.monotonic() if until is None else until
        self.check_each(bound, what, [(self._looks[0].at if since is None else since, until)])

    def check_some(self, bound: float, what: str, seconds: float) -> None:
        """Of a time that somebody else has measured since the start of the watch, nobody knows when exactly."""
        began = self._looks[0].at
        self.look()
        forgiven = 0.0 if seconds < bound else self._cpu(began, self._looks[-1].at)
        if bound <= seconds - forgiven:
            forgiven += self._disk(began, self._looks[-1].at)
        assert seconds < bound * HARD + STANDSTILL, (
            f"expected {what} within {bound:g} s, took {seconds:.2f} s"
        )
        assert seconds - forgiven < bound, (
            f"expected {what} within {bound:g} s, took {seconds:.2f} s; since the start it was kept waiting for "
            f"{forgiven:.2f} s"
        )

    def check_each(self, bound: float, what: str, spans: Iterable[tuple[float, float]]) -> None:
        """The same for each of these times; the longest one that fails is told."""
        missed = sorted((since - until, since, until) for since, until in spans if until - since >= bound)
        if missed:
            self.look()
        for _, since, until in missed:
            took = until - since
            assert took < bound * HARD + STANDSTILL, f"expected {what} within {bound:g} s, took {took:.2f} s"
            forgiven = self._cpu(since, until)
            if took - forgiven >= bound:
                forgiven += self._disk(since, until)
            assert took - forgiven < bound, (
                f"expected {what} within {bound:g} s, took {took:.2f} s, of which it was kept waiting for {forgiven:.2f} s"
            )

    def _cpu(self, since: float, until: float) -> float:
        """Between two looks no more than what has passed, however many waited at once."""
        waits = self._waits()
        return min(until - since, sum(wait for one, next_, wait in waits if next_ > since and one < until))

    def _waits(self) -> list[tuple[float, float, float]]:
        """From one look to the next: how long somebody waited. The kernel adds up a wait when it is over: then, and before."""
        waits, longer = [], dict[str, float]()
        for one, next_ in reversed(list(pairwise(self._looks))):
            passed, waited = next_.at - one.at, next_.stolen - one.stolen
            for thread, seconds in next_.cpu.items():
                its = seconds - one.cpu.get(thread, 0.0) + longer.get(thread, 0.0)
                waited += min(its, passed)
                longer[thread] = max(0.0, its - passed)
            waits.append((one.at, next_.at, min(waited, passed)))
        return waits

    def _disk(self, since: float, until: float) -> float:
        """As the kernel has summed it up by then."""
        while self._looks[-1].at < until + _REFRESHED_EVERY:
            time.sleep(until + _REFRESHED_EVERY - self._looks[-1].at + 0.01)
            self.look()
        before = max((look for look in self._looks if look.at <= since), default=self._looks[0], key=_at)
        after = min((look for look in self._looks if look.at >= until + _REFRESHED_EVERY), key=_at)
        return min(until - since, after.disk - before.disk)


def _at(look: _Look) -> float:
    return look.at


def _look() -> _Look:
    at = time.monotonic()
    cpu = {thread: seconds for pid in _ours() for thread, seconds in _delays(pid)}
    return _Look(at, cpu, _stolen(), _disk_waits())


def _ours() -> set[int]:
    """This process and all it has started, theirs too, those included that have left them."""
    children: dict[int, list[int]] = defaultdict(list)
    found, mark = [os.getpid()], f"/{os.getpid()}/".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is gone, or another user's
            pid, parent = int(folder.name), (folder / "stat").read_text().rpartition(")")[2].split()[1]
            children[int(parent)].append(pid)
            marks = (folder / "environ").read_bytes().partition(MARK.encode() + b"=")[2]
            if mark in marks.partition(b"\0")[0]:
                found.append(pid)
    for pid in found:
        found += children.pop(pid, ())
    return set(found)


def _delays(pid: int) -> Iterator[tuple[str, float]]:
    with suppress(OSError):
        for folder in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield folder.name, int((folder / "schedstat").read_text().split()[1]) / 1e9


def _stolen() -> float:
    """By whoever else the host of this machine serves."""
    with suppress(OSError, IndexError):
        return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _disk_waits() -> float:
    with suppress(OSError):
        return int(Path("/proc/pressure/io").read_text().split("total=")[1].split()[0]) / 1e6
    return 0.0
