"""Any process of the group may be killed with kill -9, in any combination: the others go on within 2 seconds."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairqueue.embedded import EmbeddedServer, starter
from fairqueue.embedded.binary import server_binary
from fairqueue.embedded.locks import FileLock, is_locked
from tests.embedded.conftest import Actor, ended, kill, server_pid, watcher_pid
from tests.embedded.wire import Wire, info
from tests.support.pids import exists, gone
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually_sync

Claim = Callable[..., EmbeddedServer]
Actors = Callable[..., Actor]


@contextmanager
def within_two_seconds() -> Iterator[None]:
    watch = Stopwatch()
    yield
    watch.check(2, "to be back")


def kept(url: str, key: str) -> object:
    with Wire(url) as wire:
        return wire("GET", key)


def keep(url: str, key: str) -> None:
    with Wire(url) as wire:
        assert wire("SET", key, "kept") == b"OK"


def test_the_starter_killed_leaves_the_others_connected(actor: Actors, claim: Claim, data: Path) -> None:
    starter_process = actor(data).go()
    other = claim()
    with Wire(other.url) as connection:
        connection("SET", "k", "kept")
        starter_process.kill()
        assert connection("GET", "k") == b"kept"
        with within_two_seconds():
            assert other.ensure() == other.url
        assert connection("GET", "k") == b"kept", "the same connection, the same server"


def test_the_server_killed_is_started_once_more_and_has_its_data(
    actor: Actors, claim: Claim, data: Path
) -> None:
    server = claim()
    others = [actor(data).go() for _ in range(3)]
    keep(server.url, "k")
    before = info(server.url, "run_id")
    kill(server_pid(server.url))
    with within_two_seconds():
        for each in others:
            each.say("ensure")
        url = server.ensure()
        assert {each.heard() for each in others} == {url}
        assert kept(url, "k") == b"kept"
    runs = {each.ask("run_id") for each in others}
    assert runs == {info(url, "run_id")}
    assert before not in runs
    assert (data / "server.log").read_text().count("Ready to accept connections") == 2


def test_the_watcher_killed_takes_the_server_with_it_and_both_come_back(claim: Claim) -> None:
    server = claim()
    keep(server.url, "k")
    old_server, old_watcher = server_pid(server.url), watcher_pid(server)
    kill(old_watcher)
    with within_two_seconds():
        assert kept(server.ensure(), "k") == b"kept"
    eventually_sync(lambda: gone(old_server), "the old server to have let go of everything")
    assert server_pid(server.url) != old_server
    assert watcher_pid(server) != old_watcher


@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux can have a child end with its parent")
def test_the_watcher_killed_leaves_no_server_even_if_nobody_comes(
    actor: Actors, claim: Claim, data: Path
) -> None:
    server = claim()
    orphan = server_pid(server.url)
    kill(watcher_pid(server))
    eventually_sync(lambda: gone(orphan), "the server to end with its watcher")


def test_a_server_without_a_watcher_is_replaced_by_the_next_client(claim: Claim, data: Path) -> None:
    """Where the kernel cannot end it with its watcher; here the server never had one."""
    data.mkdir(mode=0o700)
    socket_path = data / "server.sock"
    options = [
        "--port",
        "0",
        "--unixsocket",
        str(socket_path),
        "--dir",
        str(data),
        "--appendonly",
        "yes",
        "--save",
        "",
    ]
    with subprocess.Popen([server_binary(), *options], stdout=subprocess.DEVNULL) as orphan:
        try:
            eventually_sync(lambda: starter.accepts(socket_path), "the orphan to listen")
            keep(f"unix://{socket_path}", "k")
            with within_two_seconds():
                server = claim()
            assert orphan.wait(60) == 0, "ended in an orderly way"
        finally:
            orphan.kill()
    assert kept(server.url, "k") == b"kept"
    assert watcher_pid(server)


def test_starter_watcher_and_server_killed_at_once_are_recovered_from(
    actor: Actors, claim: Claim, data: Path
) -> None:
    starter_process = actor(data).go()
    server = claim()
    keep(server.url, "k")
    os.kill(watcher_pid(server), signal.SIGSTOP)  # it must not tidy up before it is killed itself
    kill(server_pid(server.url))
    kill(watcher_pid(server))
    starter_process.kill()
    with within_two_seconds():
        assert kept(server.ensure(), "k") == b"kept"


def test_a_stale_socket_and_a_stale_process_number_do_no_harm(claim: Claim, data: Path) -> None:
    server = claim()
    keep(server.url, "k")
    watcher, valkey = watcher_pid(server), server_pid(server.url)
    os.kill(watcher, signal.SIGSTOP)
    kill(valkey)
    kill(watcher)
    server.close()
    eventually_sync(lambda: ended(server.directory), "the locks to be free")
    assert (data / "server.sock").exists(), "stale"
    with subprocess.Popen(["sleep", "60"]) as bystander:
        try:
            namespace = server.directory.watcher_lock.read_text().split()[1]
            server.directory.watcher_lock.write_text(f"{bystander.pid} {namespace}\n")
            again = claim()
            assert kept(again.url, "k") == b"kept"
            assert bystander.poll() is None, "a number of an earlier watcher is nobody's"
        finally:
            bystander.kill()


def test_a_starter_killed_in_the_middle_hands_the_start_to_the_next(
    actor: Actors, claim: Claim, data: Path
) -> None:
    """It is stopped when it holds the start lock, and a second one waits for it."""
    first, second = actor(data, idle=10), actor(data, idle=10)  # whoever starts it, it is there until the end
    first.say("go")
    eventually_sync(
        lambda: (data / "start.lock").exists() and is_locked(data / "start.lock"), "a start under way"
    )
    os.kill(first.pid, signal.SIGSTOP)
    second.say("go")
    first.kill()
    with within_two_seconds():
        url = second.heard()
    assert info(url, "run_id") == info(claim().url, "run_id")
    assert (data / "server.log").read_text().count("Ready to accept connections") == 1


def test_a_frozen_watcher_whose_server_died_is_replaced(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter, "WEDGED_AFTER", 0.3)
    server = claim()
    keep(server.url, "k")
    frozen = watcher_pid(server)
    os.kill(frozen, signal.SIGSTOP)
    kill(server_pid(server.url))
    assert kept(server.ensure(), "k") == b"kept"
    eventually_sync(lambda: gone(frozen), "the frozen watcher to have been ended")


def test_a_directory_removed_under_a_running_server_starts_anew(claim: Claim, data: Path) -> None:
    server = claim()
    old = server_pid(server.url)
    data.rename(data.with_name("moved"))
    with within_two_seconds():
        url = server.ensure()
    assert server_pid(url) != old
    run = info(url, "run_id")
    eventually_sync(lambda: gone(old), "the server of the moved directory to end")
    assert info(url, "run_id") == run, "the old one did not take the new one's socket along"


def test_data_survive_an_orderly_end(claim: Claim) -> None:
    server = claim()
    keep(server.url, "k")
    server.close()
    eventually_sync(lambda: ended(server.directory), "the server to end")
    assert kept(claim().url, "k") == b"kept"


def test_a_lock_of_a_killed_process_is_free(actor: Actors, data: Path) -> None:
    holder = actor(data).go()
    lock = FileLock(data / "clients.lock")
    assert is_locked(data / "watcher.lock")
    assert exists(holder.pid)
    holder.kill()
    eventually_sync(lambda: lock.take(exclusive=True), "the dead client's lock to be free")
    lock.release()
