"""``fairqueue worker --processes P``: a supervisor and its children, and what becomes of each when one is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Place, Running
from tests.cli.handlers import TEXT
from tests.support.pids import gone
from tests.support.waiting import eventually_sync

FIRST, SECOND = 1, 2


@pytest.fixture
def worked(place: Place) -> Place:
    place.write("shop", TEXT)
    return place


def pids(place: Place) -> set[int]:
    """Of the worker processes that have given a sign of life."""
    with place.queue() as queue:
        return {worker.pid for worker in queue.workers() if not gone(worker.pid)}


def two(place: Place, *words: str) -> tuple[Running, set[int]]:
    """A supervisor and the process numbers of its two children."""
    running = place.start("worker", "--processes", "2", *words)
    return running, eventually_sync(lambda: len(found := pids(place)) == 2 and found, "two children to work")


def begun(place: Place, message: int) -> int:
    """Puts a message; the process number of the child that began it."""
    with place.queue() as queue:
        queue.enqueue(message, tenant="acme", id=str(message))
    line = eventually_sync(
        lambda: [line for line in place.log() if line.startswith(f"began {message} ")], "a handler to begin"
    )[0]
    return int(line.split()[-1])


def test_the_work_is_done_and_a_signal_drains_all(worked: Place) -> None:
    running, children = two(worked, "shop:until_told")
    assert begun(worked, FIRST) in children
    running.signal(signal.SIGINT)
    running.until("2 worker processes drain")
    (worked.directory / "go").touch()
    assert running.ends() == 0
    assert sum(line.startswith("ended") for line in worked.log()) == 1
    assert all(map(gone, children))
    with worked.queue() as queue:
        assert queue.stats().totals.completed == 1


def test_a_child_that_was_killed_is_replaced(worked: Place) -> None:
    running, children = two(worked, "shop:quick")
    victim = min(children)
    os.kill(victim, signal.SIGKILL)
    running.until("killed by SIGKILL: another one in")
    after = eventually_sync(lambda: len(found := pids(worked)) == 2 and found, "two children to work again")
    assert len(after - children) == 1
    assert running.stop() == 0


def test_a_child_that_is_killed_while_it_drains_is_a_failure(worked: Place) -> None:
    running, _ = two(worked, "shop:for_ever", "--grace", "3600")
    busy = begun(worked, FIRST)
    running.signal()
    running.until("2 worker processes drain")
    os.kill(busy, signal.SIGKILL)
    assert running.ends() == 1


def test_a_second_signal_cuts_the_grace_of_all_short(worked: Place) -> None:
    running, _ = two(worked, "shop:for_ever", "--grace", "3600")
    begun(worked, FIRST)
    running.signal()
    eventually_sync(lambda: running.err.count(" drains: ") == 2, "both children to drain")
    running.signal()
    assert running.ends() == 0
    assert "told again: the worker processes wait no longer" in running.err
    with worked.queue() as queue:
        found = queue.get("acme", "1")
    assert found is not None
    assert (found.message.attempt, found.state.value) == (0, "ready")


def test_children_of_a_killed_supervisor_drain_and_end(worked: Place) -> None:
    running, children = two(worked, "shop:until_told")
    begun(worked, FIRST)
    running.kill()
    eventually_sync(lambda: running.err.count(" drains: ") == 2, "both children to drain")
    (worked.directory / "go").touch()
    eventually_sync(lambda: all(map(gone, children)), "no child to be left")
    with worked.queue() as queue:
        assert queue.stats().totals.completed == 1


BOSS = """
import logging, sys
from fairqueue.supervisor import Supervisor

logging.basicConfig(level="INFO")
sys.exit(Supervisor(lambda number: [*sys.argv[1:], str(number)], 2, grace=5).run())
"""

CHILD = """
import os, pathlib, signal, socket, sys

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGUSR1, lambda *_: os._exit(2))
part = pathlib.Path(__file__).with_name("part")
part.write_text(str(os.getpid()))
part.replace(part.with_name(sys.argv[1]))
line = socket.socket(fileno=int(sys.argv[3]))
line.send(b"r")
line.recv(1)
"""


class Boss:
    """A supervisor of two children that do nothing, and what it says."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "boss.py").write_text(BOSS)
        (directory / "child.py").write_text(CHILD)
        self.python = directory / "python"
        self.python.symlink_to(sys.executable)
        with (directory / "said").open("w") as out:
            words = [sys.executable, directory / "boss.py", self.python, directory / "child.py"]
            self.process = subprocess.Popen(words, stderr=out)

    def child(self, number: int) -> int | None:
        """Its process number, if it is there and ready."""
        found = self._directory / str(number)
        return int(found.read_text()) if found.exists() and not gone(int(found.read_text())) else None

    def says(self, words: str) -> bool:
        return words in (self._directory / "said").read_text()


@pytest.fixture
def boss(tmp_path: Path) -> Iterator[Boss]:
    boss = Boss(tmp_path)
    try:
        yield boss
    finally:
        boss.process.kill()  # no child outlives its line to it
        boss.process.wait(60)


def both(boss: Boss) -> tuple[int, int]:
    first = eventually_sync(lambda: boss.child(FIRST), "a first child")
    return first, eventually_sync(lambda: boss.child(SECOND), "a second child")


def test_one_that_cannot_be_started_for_a_moment_does_not_end_the_others(boss: Boss) -> None:
    """The interpreter is being replaced, say, by a deployment."""
    first, second = both(boss)
    boss.python.unlink()
    os.kill(second, signal.SIGKILL)
    eventually_sync(lambda: boss.says("process 2 cannot be started"), "it to be tried")
    boss.python.symlink_to(sys.executable)
    eventually_sync(lambda: boss.child(SECOND), "another second child")
    assert boss.child(FIRST) == first
    boss.process.terminate()
    assert boss.process.wait(60) == 0


def test_one_whose_handler_ends_it_with_the_status_of_wrong_use_is_replaced(boss: Boss) -> None:
    first, second = both(boss)
    os.kill(second, signal.SIGUSR1)
    eventually_sync(lambda: boss.child(SECOND) not in (None, second), "another second child")
    assert boss.says("process 2 ended, exit status 2: another one in")
    assert boss.child(FIRST) == first
    boss.process.terminate()
    assert boss.process.wait(60) == 0


def test_a_process_that_hears_no_signal_ends_with_its_supervisor_all_the_same() -> None:
    ours, theirs = socket.socketpair()
    script = (
        "import signal, sys, time\n"
        "from fairqueue.lifeline import Lifeline\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "Lifeline(int(sys.argv[1]), patience=0.1).say_ready()\n"
        "time.sleep(600)\n"
    )
    words = [sys.executable, "-c", script, str(theirs.fileno())]
    with ours, subprocess.Popen(words, pass_fds=[theirs.fileno()]) as child:
        theirs.close()
        assert ours.recv(1) == b"r"
        ours.close()
        assert child.wait(60) == 1


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("", 2, "expected module 'broken' to have 'handle'"),
        ("raise OSError('no database')", 1, "OSError: no database"),
    ],
)
def test_what_keeps_the_first_child_from_working_is_said_once(
    place: Place, text: str, status: int, said: str
) -> None:
    place.write("broken", text)
    done = place.run("worker", "broken:handle", "--processes", "3")
    assert (done.status, said in done.error) == (status, True), done
