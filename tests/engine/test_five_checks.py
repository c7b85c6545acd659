"""The five checks are made after every test, of whatever queue it used: here, that a test which leaves a fault fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.processes import ROOT

TESTS = """
import asyncio
from threading import Thread

import pytest

from fairqueue import FairQueue, SyncFairQueue
from fairqueue.testing import faults
from tests.support.watch import WATCH


async def leak(url, name):
    async with FairQueue(url, name) as queue:
        await faults.leak_slot(queue, "tenant", "a", "ghost")


def elsewhere(url, name):
    watched = Thread(target=lambda: asyncio.run(leak(url, name)))
    watched.start()
    watched.join()


async def test_leaks_by_a_queue_of_its_own(server):
    await leak(server, "own")


async def test_leaks_on_a_private_server():
    await leak("embedded://", "private")


def test_leaks_on_a_server_of_a_directory(tmp_path):
    elsewhere(f"embedded://{tmp_path}/data", "directory")


def test_leaks_by_a_client_nobody_saw(tmp_path):
    elsewhere(f"embedded://{tmp_path}/data", "unseen")
    WATCH.begin()
    WATCH.use_directory(tmp_path / "data")


def test_leaves_a_message_and_is_whole(server):
    with SyncFairQueue(server, "whole") as queue:
        queue.enqueue(1, tenant="a")
        queue.claim()


@pytest.mark.leaves_findings
async def test_says_that_it_leaks(server):
    await leak(server, "told")
"""


def test_a_test_that_leaves_a_fault_fails_whoever_made_the_queue(tmp_path: Path) -> None:
    path = tmp_path / "test_made_up.py"
    path.write_text(TESTS, encoding="utf-8")
    words = ["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    failed = [
        line.split(" - ")[0].partition("::")[2]
        for line in done.stdout.splitlines()
        if line.startswith("ERROR ")
    ]
    assert failed == [
        "test_leaks_by_a_queue_of_its_own",
        "test_leaks_on_a_private_server",
        "test_leaks_on_a_server_of_a_directory",
        "test_leaks_by_a_client_nobody_saw",
    ], done.stdout
    assert "6 passed, 4 errors" in done.stdout
    for name in ("own", "private", "directory", "unseen"):
        assert f"{name}: SLOTS 'tenant/a/a/ghost': a slot is held without a lease behind it" in done.stdout
