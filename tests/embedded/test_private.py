"""embedded:// without a path: a server of one object, which ends with it and leaves nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fairqueue.embedded import EmbeddedServer
from fairqueue.errors import QueueUnavailableError
from tests.embedded.conftest import Actor, kill, server_pid, watcher_pid
from tests.embedded.wire import Wire, info
from tests.support.pids import gone
from tests.support.waiting import eventually_sync

Claim = Callable[..., EmbeddedServer]
Actors = Callable[..., Actor]


def test_two_private_servers_share_nothing(claim: Claim) -> None:
    first, second = claim(None), claim(None)
    assert first.path != second.path
    assert info(first.url, "run_id") != info(second.url, "run_id")


def test_closing_ends_the_server_and_removes_its_directory(claim: Claim) -> None:
    server = claim(None)
    valkey, watcher = server_pid(server.url), watcher_pid(server)
    assert server.path.stat().st_mode & 0o777 == 0o700
    server.close()
    assert gone(valkey)
    assert not server.path.exists()
    eventually_sync(lambda: gone(watcher), "the watcher to end too")
    server.close()


def test_an_owner_that_ends_without_closing_leaves_nothing(actor: Actors) -> None:
    owner = actor("-").go()
    valkey, directory = server_pid(owner.url), Path(owner.url.removeprefix("unix://")).parent
    owner.leave()
    assert gone(valkey)
    assert not directory.exists()


def test_an_owner_that_is_killed_leaves_nothing_for_long(actor: Actors) -> None:
    owner = actor("-").go()
    valkey, directory = server_pid(owner.url), Path(owner.url.removeprefix("unix://")).parent
    owner.kill()
    eventually_sync(lambda: gone(valkey), "the server to end")
    eventually_sync(lambda: not directory.exists(), "its directory to be removed")


def test_owner_and_server_killed_at_once_leave_nothing(actor: Actors) -> None:
    owner = actor("-").go()
    valkey, directory = server_pid(owner.url), Path(owner.url.removeprefix("unix://")).parent
    owner.kill()
    kill(valkey)
    eventually_sync(lambda: not directory.exists(), "its directory to be removed")


def test_a_private_server_that_was_killed_comes_back_with_its_data(claim: Claim) -> None:
    server = claim(None)
    with Wire(server.url) as wire:
        wire("SET", "k", "kept")
    kill(server_pid(server.url))
    with Wire(server.ensure()) as wire:
        assert wire("GET", "k") == b"kept"


def test_a_fork_that_closes_leaves_its_parents_private_server_alone(actor: Actors) -> None:
    owner = actor("-").go()
    child = int(owner.ask("fork close"))
    try:
        assert owner.ask("do PING") == "b'PONG'"
        assert owner.ask("ensure") == owner.url
    finally:
        os.kill(child, signal.SIGKILL)


def test_one_that_was_dropped_without_closing_is_ended(claim: Claim) -> None:
    from fairqueue.embedded import start_sync

    server = start_sync(None)
    path, valkey = server.path, server_pid(server.url)
    del server
    eventually_sync(lambda: gone(valkey) and not path.exists(), "the forgotten server to be ended")


def test_a_private_server_whose_directory_is_gone_cannot_come_back(claim: Claim, data: Path) -> None:
    server = claim(None)
    os.kill(watcher_pid(server), signal.SIGTERM)
    eventually_sync(lambda: not server.path.exists(), "the watcher to remove the directory")
    with pytest.raises(QueueUnavailableError, match="ended for good"):
        server.ensure()
