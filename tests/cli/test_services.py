"""``fairqueue maintain`` and ``fairqueue server``: they run until a signal comes."""

from __future__ import annotations

import json
import os
import signal

import pytest

from fairqueue import FairQueue, SyncFairQueue
from fairqueue.embedded.directory import DataDirectory
from tests.cli.command import Place
from tests.support.pids import gone
from tests.support.waiting import eventually_sync


def test_maintain_takes_back_what_a_dead_worker_held(place: Place) -> None:
    running = place.start("maintain", "--reclaim-interval", "0.1")
    running.until(f"maintaining {place.name}")
    with place.queue() as queue:
        queue.enqueue(1, tenant="acme", delay=0.2)
        eventually_sync(lambda: queue.claim(1, visibility_timeout=0.1), "the delayed message to be claimed")
        eventually_sync(lambda: queue.stats().totals.reclaimed == 1, "the expired lease to be reclaimed")
        assert queue.stats().ready == 1
    assert running.stop() == 0
    assert "Traceback" not in running.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_holds_an_embedded_server_and_prints_its_url(place: Place, number: int) -> None:
    directory = place.directory / "data"
    running = place.start("server", "--url", f"embedded://{directory}", "--json")
    running.until("\n")
    told = json.loads(running.out)
    assert told["path"] == str(directory)
    with SyncFairQueue(told["url"]) as queue:
        queue.enqueue(1, tenant="acme")
    running.signal(number)
    assert running.ends() == 0
    assert running.err == ""


async def test_server_starts_it_again_after_a_crash(place: Place) -> None:
    directory = place.directory / "data"
    running = place.start("server", "--url", f"embedded://{directory}")
    running.until("unix://")
    queue: FairQueue[int] = FairQueue(running.out.strip())
    async with queue:
        await queue.enqueue(1, tenant="acme")
        pid = (await queue._engine.command("INFO", "server"))["process_id"]
    os.kill(pid, signal.SIGKILL)
    eventually_sync(lambda: gone(pid), "the server to be gone")
    eventually_sync(lambda: _serves(directory, pid), "another server to run")
    assert running.stop() == 0


async def test_server_goes_on_trying_while_it_cannot_be_started(place: Place) -> None:
    directory = place.directory / "data"
    running = place.start("server", "--url", f"embedded://{directory}")
    running.until("unix://")
    async with FairQueue[int](running.out.strip()) as queue:
        await queue.enqueue(1, tenant="acme")
        pid = (await queue._engine.command("INFO", "server"))["process_id"]
    (manifest,) = directory.rglob("*.manifest")
    kept = manifest.read_bytes()
    manifest.write_bytes(b"not what it was")
    os.kill(pid, signal.SIGKILL)
    running.until("could not be started, trying again")
    manifest.write_bytes(kept)
    eventually_sync(lambda: _serves(directory, pid), "another server to run")
    assert running.stop() == 0


def _serves(directory: object, not_pid: int) -> bool:
    with SyncFairQueue(f"embedded://{directory}") as queue:
        return queue.stats().ready == 1


def test_the_directory_is_free_again_after_the_server_command(place: Place) -> None:
    directory = place.directory / "data"
    running = place.start("server", "--url", f"embedded://{directory}")
    running.until("unix://")
    assert running.stop() == 0
    watcher = DataDirectory.at(directory).watcher_process()
    assert watcher is None or not gone(watcher)  # it ends some seconds after its last client, by itself
