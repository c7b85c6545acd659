"""The server outlives any one client and not the last: whoever is there keeps it, whoever is gone does not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from fairqueue.embedded import EmbeddedServer
from fairqueue.embedded.locks import FileLock, is_locked
from fairqueue.embedded.server import DEFAULT_IDLE
from tests.embedded.conftest import Actor, ended, server_pid, watcher_pid
from tests.embedded.wire import Wire, info
from tests.support.pids import exists, gone
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually_sync

Claim = Callable[..., EmbeddedServer]
Actors = Callable[..., Actor]


def wait_until_ended(server: EmbeddedServer, deadline: float = 20) -> None:
    eventually_sync(lambda: ended(server.directory), f"the server in {server.path} to end", deadline)


def outlive_another(claim: Claim, data: Path) -> None:
    """Let as much time pass as a server of the same idle time needs to end, several times over."""
    for number in range(2):
        other = claim(data.with_name(f"clock{number}"))
        other.close()
        wait_until_ended(other)


def test_the_server_ends_after_the_last_claim_was_closed(claim: Claim, data: Path) -> None:
    first, second = claim(), claim()
    valkey, watcher = server_pid(first.url), watcher_pid(first)
    first.close()
    outlive_another(claim, data)
    assert exists(valkey), "one claim is left"
    second.close()
    wait_until_ended(second)
    assert gone(valkey)
    eventually_sync(lambda: gone(watcher), "the watcher to end too")
    assert not (data / "server.sock").exists()
    assert (data / "appendonlydir").is_dir()


def test_the_server_ends_after_the_last_client_was_killed(actor: Actors, claim: Claim, data: Path) -> None:
    first, second = actor(data).go(), actor(data).go()
    server = claim()
    server.close()
    valkey = server_pid(server.url)
    first.kill()
    outlive_another(claim, data)
    assert exists(valkey), "one client is left"
    second.kill()
    wait_until_ended(server)
    assert gone(valkey)


def test_the_server_ends_after_a_client_that_never_closed(actor: Actors, claim: Claim, data: Path) -> None:
    client = actor(data).go()
    valkey = server_pid(client.url)
    client.leave()
    eventually_sync(lambda: gone(valkey), "the server to end")


def test_the_server_outlives_its_last_client_by_the_idle_time(claim: Claim, data: Path) -> None:
    server = claim(idle=timedelta(seconds=1))
    began = time.monotonic()
    while time.monotonic() - began < 1.3:
        outlive_another(claim, data)
    watch = Stopwatch()
    server.close()
    wait_until_ended(server)
    assert watch.seconds > 0.7
    watch.check(3, "the server to end")


def test_with_the_default_idle_time_it_ends_within_15_seconds(actor: Actors, data: Path) -> None:
    client = actor(data, DEFAULT_IDLE.total_seconds()).go()
    valkey = server_pid(client.url)
    watch = Stopwatch()
    client.kill()
    eventually_sync(lambda: gone(valkey), "the server to end")
    watch.check(15, "the server to end")
    assert watch.seconds > 5, "a client that comes back within seconds finds it still there"


def test_a_fork_that_knows_nothing_of_us_does_not_keep_the_server(actor: Actors, data: Path) -> None:
    parent = actor(data).go()
    valkey = server_pid(parent.url)
    child = int(parent.ask("fork nothing"))
    try:
        parent.kill()
        eventually_sync(lambda: gone(valkey), "the server to end")
        assert not gone(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_fork_that_uses_the_server_keeps_it_when_its_parent_is_killed(
    actor: Actors, claim: Claim, data: Path
) -> None:
    parent = actor(data).go()
    valkey = server_pid(parent.url)
    child = int(parent.ask("fork ensure"))
    try:
        parent.kill()
        outlive_another(claim, data)
        assert exists(valkey)
    finally:
        os.kill(child, signal.SIGKILL)
    eventually_sync(lambda: gone(valkey), "the server to end")


def test_a_fork_that_closes_does_not_drop_its_parents_claim(actor: Actors, claim: Claim, data: Path) -> None:
    parent = actor(data).go()
    child = int(parent.ask("fork close"))
    try:
        outlive_another(claim, data)
        assert parent.ask("do PING") == "b'PONG'"
    finally:
        os.kill(child, signal.SIGKILL)


@contextmanager
def busy_connection(url: str) -> Iterator[list[BaseException]]:
    """A program that was given the plain URL of the socket and works with it."""
    stop, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            with Wire(url) as wire:
                while not stop.wait(0.01):
                    wire("PING")
        except (OSError, RuntimeError) as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join()


def test_a_program_that_works_with_the_plain_url_keeps_the_server(claim: Claim, data: Path) -> None:
    server = claim()
    valkey = server_pid(server.url)
    with busy_connection(server.url) as failures:
        server.close()
        outlive_another(claim, data)
        assert failures == []
        assert exists(valkey)
    wait_until_ended(server)


def test_an_open_connection_that_says_nothing_does_not_keep_the_server(claim: Claim) -> None:
    server = claim()
    with Wire(server.url) as inherited:
        inherited("PING")
        server.close()
        wait_until_ended(server)


def test_a_client_that_comes_while_the_server_is_being_ended_gets_a_new_one(claim: Claim, data: Path) -> None:
    """The end is held open: the server is frozen when its watcher wants it to end."""
    server = claim()
    old_run, valkey = info(server.url, "run_id"), server_pid(server.url)
    os.kill(valkey, signal.SIGSTOP)
    server.close()
    eventually_sync(
        lambda: is_locked(data / "clients.lock") and "SigPnd:\t0000000000004000" in pending(valkey),
        "the watcher to be ending the server",
    )
    urls: list[str] = []
    client = threading.Thread(target=lambda: urls.append(claim().url))
    client.start()
    refused = FileLock(data / "clients.lock")
    assert not refused.take(exclusive=False), "nobody gets in"
    assert urls == []
    os.kill(valkey, signal.SIGCONT)
    client.join(60)
    assert info(urls[0], "run_id") != old_run


def pending(pid: int) -> str:
    """The signals a process has not taken yet, of Linux; elsewhere the lock alone has to tell."""
    try:
        return Path(f"/proc/{pid}/status").read_text().replace("ShdPnd", "SigPnd")
    except OSError:
        return "SigPnd:\t0000000000004000"


def test_clients_that_come_and_go_around_the_idle_time_never_lose_a_connection(claim: Claim) -> None:
    idle = timedelta(seconds=0.04)
    runs = set()
    for number in range(24):
        server = claim(idle=idle)
        with Wire(server.url) as wire:
            for _ in range(20):
                assert wire("INCR", "visits")
            runs.add(info(server.url, "run_id"))
        last_seen = time.monotonic()
        server.close()
        pause = idle.total_seconds() * (0.6 + number / 12)
        eventually_sync(
            lambda ends=last_seen + pause: time.monotonic() > ends, "the watcher to be about to end it"
        )
    wait_until_ended(server)
    with Wire(claim(idle=idle).url) as wire:
        assert wire("GET", "visits") == b"480"
        runs.add(info(server.url, "run_id"))
    assert len(runs) > 1, "one came after an end"
