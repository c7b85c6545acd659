"""A queue that is used on both sides of a fork: each side has its own connections, session and claims."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeQueue
from tests.support.processes import ROOT
from tests.support.stopwatch import Stopwatch

pytestmark = pytest.mark.filterwarnings("default")


def run(scenario: str, url: str, name: str, undisturbed: float | None = None) -> dict[str, Any]:
    """What the scenario saw; ``undisturbed``: the seconds its last part takes if nobody breaks a connection."""
    watch = Stopwatch()
    with watch.looking():
        done = subprocess.run(
            [sys.executable, "-m", "tests.client.fork_main", scenario, url, name],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr, done.stderr
    saw: dict[str, Any] = json.loads(done.stdout)
    if undisturbed is not None:
        watch.check(undisturbed, "the parent's connections to be undisturbed", *saw["span"])
    return saw


async def test_sync_clients_work_on_both_sides(server: str, namespace: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None)
    saw = run("sync_on_both_sides", server, namespace)
    assert len(saw["parent"]) + len(saw["child"]) <= 61
    assert not set(saw["parent"]) & set(saw["child"])
    left = await queue.claim(100)
    assert len(saw["parent"]) + len(saw["child"]) + len(left) == 61
    await queue.complete_many(left)


async def test_async_clients_work_on_both_sides(server: str, namespace: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None)
    saw = run("async_on_both_sides", server, namespace, undisturbed=4)
    assert not set(saw["parent"]) & set(saw["child"])
    assert saw["woken"] == "woken"
    left = await queue.claim(100)
    assert len(saw["parent"]) + len(saw["child"]) + len(left) == 45
    await queue.complete_many(left)


@pytest.mark.usefixtures("make_queue")
def test_a_claim_that_waits_during_the_fork_is_served(server: str, namespace: str) -> None:
    saw = run("parent_waits_in_a_claim", server, namespace, undisturbed=4)
    assert saw["created"] is True
    assert saw["got"] == ["from the child"]
    assert saw["then"] == ["from the parent"]
    assert saw["outcomes"] == ["done", "done"]


def test_a_child_that_closes_ends_nothing_of_the_parents(server: str, namespace: str) -> None:
    saw = run("child_closes_at_once", server, namespace, undisturbed=2)
    assert (saw["closed"], saw["got"]) == (None, "still here")


def test_a_child_that_ends_in_the_ordinary_way_disturbs_nobody(server: str, namespace: str) -> None:
    saw = run("child_ends_in_the_ordinary_way", server, namespace, undisturbed=2)
    assert (saw["status"], saw["outcome"]) == (0, "done")


def test_leases_stay_with_their_side(server: str, namespace: str) -> None:
    saw = run("leases_stay_with_their_side", server, namespace)
    assert saw == {"parent": ["m0", "m1"], "child": ["m2", "m3"], "again": []}


def test_the_embedded_server_stays_for_the_child(tmp_path: Path, namespace: str) -> None:
    saw = run("embedded_server_stays_for_the_child", f"embedded://{tmp_path}/data", namespace)
    assert saw["child"] == {"held": True, "payloads": [0, 1]}
