"""A path too long for a unix socket: the socket lives in a short private directory that a file names."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairqueue.embedded import EmbeddedServer
from fairqueue.embedded.sockets import LONGEST_PATH
from tests.embedded.conftest import Actor, end_what_runs_in, ended, kill, server_pid, watcher_pid
from tests.embedded.wire import Wire, info
from tests.support.waiting import eventually_sync

Claim = Callable[..., EmbeddedServer]


@pytest.fixture
def long(data: Path) -> Iterator[Path]:
    path = data / ("a" * 120) / ("b" * 120)
    yield path
    end_what_runs_in(path)


def short_directory(server: EmbeddedServer) -> Path:
    return Path(server.url.removeprefix("unix://")).parent


def test_a_long_path_works_and_is_shared(claim: Claim, actor: Callable[..., Actor], long: Path) -> None:
    server = claim(long)
    other = actor(long).go()
    assert other.url == server.url
    assert other.ask("run_id") == info(server.url, "run_id")
    short = short_directory(server)
    assert len(os.fsencode(short / "server.sock")) <= LONGEST_PATH
    assert short.stat().st_mode & 0o777 == 0o700
    assert (long / "socket-directory").read_text() == str(short)
    assert (long / "appendonlydir").is_dir()


@pytest.mark.parametrize("surplus", [-1, 0, 1])
def test_the_longest_path_that_fits_needs_no_other_place(claim: Claim, data: Path, surplus: int) -> None:
    filler = LONGEST_PATH + surplus - len(os.fsencode(data)) - len("//server.sock")
    path = data / ("x" * filler)
    server = claim(path)
    try:
        assert (short_directory(server) == path) is (surplus <= 0)
    finally:
        server.close()
        end_what_runs_in(path)


def test_the_short_directory_goes_with_the_server_and_comes_again(claim: Claim, long: Path) -> None:
    server = claim(long)
    with Wire(server.url) as wire:
        wire("SET", "k", "kept")
    first = short_directory(server)
    server.close()
    eventually_sync(lambda: ended(server.directory), "the server to end")
    assert not first.exists()
    assert not (long / "socket-directory").exists()
    with Wire(claim(long).url) as wire:
        assert wire("GET", "k") == b"kept"


def test_the_short_directory_goes_with_a_watcher_that_is_asked_to_end(claim: Claim, long: Path) -> None:
    server = claim(long)
    os.kill(watcher_pid(server), signal.SIGTERM)
    eventually_sync(lambda: not short_directory(server).exists(), "the short directory to be removed")


def test_a_short_directory_that_was_cleaned_away_changes_the_url(claim: Claim, long: Path) -> None:
    server = claim(long)
    before = server.url
    shutil.rmtree(short_directory(server))
    kill(server_pid_of_lost(server))
    assert server.ensure() != before
    with Wire(server.url) as wire:
        assert wire("PING") == b"PONG"


def server_pid_of_lost(server: EmbeddedServer) -> int:
    """The number of a server nobody can connect to any more: that of its watcher, which takes it along."""
    return watcher_pid(server)


def test_a_short_directory_that_others_can_write_is_not_trusted(claim: Claim, long: Path) -> None:
    server = claim(long)
    planted = short_directory(server)
    valkey = server_pid(server.url)
    os.kill(watcher_pid(server), signal.SIGTERM)
    server.close()
    eventually_sync(lambda: ended(server.directory), f"server {valkey} to end")
    planted.mkdir(exist_ok=True)
    planted.chmod(0o777)
    (long / "socket-directory").write_text(str(planted))
    try:
        assert short_directory(claim(long)) != planted
    finally:
        planted.rmdir()
