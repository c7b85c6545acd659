"""Several processes share the embedded server of a path, and any of them is killed at any time."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairqueue import FairQueue
from fairqueue.embedded.directory import DataDirectory
from fairqueue.testing import assert_whole
from tests.support.processes import ROOT
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually_sync

BACK_WITHIN = 2.0  # seconds


class Sender:
    """One process that sends."""

    def __init__(self, path: Path, noted: Path) -> None:
        noted.touch()
        self.noted = noted
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.client.sharing_main", f"embedded://{path}", str(noted)],
            stdin=subprocess.PIPE,
            cwd=ROOT,
        )

    def acknowledged(self) -> list[tuple[str, float]]:
        lines = self.noted.read_text().rpartition("\n")[0].splitlines()
        return [(id, float(at)) for id, at in (line.split() for line in lines)]

    def sends(self, more: int) -> Sender:
        """Waits until it has sent so many more."""
        before = len(self.acknowledged())
        eventually_sync(lambda: len(self.acknowledged()) >= before + more, f"{more} more messages to be sent")
        return self

    def gaps(self) -> list[tuple[float, float]]:
        return list(itertools.pairwise(at for _, at in self.acknowledged()))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)
        self._close()

    def stop(self) -> None:
        self._close()
        assert self._process.wait(60) == 0

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def start(path: Path, tmp_path: Path) -> Iterator[Callable[[], Sender]]:
    made: list[Sender] = []

    def make() -> Sender:
        made.append(Sender(path, tmp_path / f"sender-{len(made)}"))
        return made[-1]

    yield make
    for sender in made:
        sender.kill()


async def all_is_there(path: Path, *senders: Sender) -> None:
    """Every acknowledged message is stored, once, and the queue is whole."""
    async with FairQueue(f"embedded://{path}", "shared") as queue:
        await assert_whole(queue)
        acknowledged = {id for sender in senders for id, _ in sender.acknowledged()}
        stored: set[str] = set()
        leases: list[Any] = []
        while claimed := await queue.claim(500):
            leases += claimed
            stored |= {lease.message.id for lease in claimed}
            await queue.complete_many(claimed)
        assert acknowledged - stored == set()
        assert len(leases) == len(stored)


async def test_the_starter_is_killed_while_others_send(path: Path, start: Callable[[], Sender]) -> None:
    watch = Stopwatch()
    starter = start().sends(1)
    second, third = start(), start()
    second.sends(10)
    third.sends(10)
    with watch.looking():
        starter.kill()
        second.sends(50).stop()
        third.sends(50).stop()
    for sender in (second, third):
        watch.check_each(BACK_WITHIN, "a sender to be back", sender.gaps())
    await all_is_there(path, starter, second, third)


@pytest.mark.parametrize("what", ["server", "watcher", "both"])
async def test_server_or_watcher_is_killed_with_the_starter(
    path: Path, start: Callable[[], Sender], what: str
) -> None:
    watch = Stopwatch()
    starter = start().sends(1)
    second = start().sends(10)
    watcher = DataDirectory.at(path).watcher_process()
    assert watcher is not None
    async with FairQueue(f"embedded://{path}", "shared") as queue:
        server = int((await queue._engine.command("INFO", "server"))["process_id"])
    starter.kill()
    if what in {"watcher", "both"}:
        os.kill(watcher, signal.SIGKILL)
    if what in {"server", "both"}:
        os.kill(server, signal.SIGKILL)
    with watch.looking():
        second.sends(50).stop()
    watch.check_each(BACK_WITHIN, "the sender to be back", second.gaps())
    await all_is_there(path, starter, second)
