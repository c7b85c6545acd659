"""Locks end with their process, and a fork neither keeps nor breaks those of its parent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairqueue.embedded.locks import FileLock, is_locked

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_a_fork(check: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code != 2, "the check itself failed"
    return code == 0


def test_two_share_and_nobody_else_gets_it_alone(tmp_path: Path) -> None:
    first, second, third = (FileLock(tmp_path / "lock") for _ in range(3))
    assert first.take(exclusive=False)
    assert second.take(exclusive=False)
    assert not third.take(exclusive=True)
    first.release()
    assert not third.take(exclusive=True)
    second.release()
    assert third.take(exclusive=True)
    assert not first.take(exclusive=False)
    third.release()


def test_only_an_exclusive_holder_counts_as_locked(tmp_path: Path) -> None:
    holder = FileLock(tmp_path / "lock")
    holder.take(exclusive=False)
    assert not is_locked(tmp_path / "lock")
    holder.take(exclusive=True)
    assert is_locked(tmp_path / "lock")
    holder.release()
    assert not is_locked(tmp_path / "lock")


def test_a_fork_does_not_hold_its_parents_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.take(exclusive=True)
    assert in_a_fork(lambda: not lock.held)
    assert lock.held


def test_a_fork_that_releases_leaves_the_parents_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.take(exclusive=True)
    assert in_a_fork(lambda: lock.release() is None)
    assert is_locked(tmp_path / "lock")
    lock.release()


def test_a_fork_can_take_a_lock_of_its_own(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.take(exclusive=False)
    assert in_a_fork(lambda: lock.take(exclusive=False) and lock.held)
    lock.release()


def test_releasing_frees_the_lock_although_a_copy_of_it_is_open(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.take(exclusive=True)
    assert lock._descriptor is not None
    copy = os.dup(lock._descriptor)
    lock.release()
    assert not is_locked(tmp_path / "lock")
    os.close(copy)


def test_a_lock_on_a_file_that_was_deleted_is_not_held(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.take(exclusive=True)
    (tmp_path / "lock").unlink()
    assert not lock.held
    other = FileLock(tmp_path / "lock")
    assert other.take(exclusive=True)
    other.release()
    lock.release()
