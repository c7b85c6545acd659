"""``fairqueue worker --processes P``: a supervisor and its children, and what becomes of each when one is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

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
