"""Fixtures of the cases, and the record of what became of each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeQueue
from tests.faults.cases.actors import Cast, Stage
from tests.support.fixtures import log, make_queue, make_server, module_proxy, proxy, start_worker
from tests.support.processes import ROOT, Log

__all__ = ["log", "make_queue", "make_server", "module_proxy", "proxy", "start_worker"]

RESULTS = ROOT / "build" / "faults" / "cases.jsonl"


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


@pytest.fixture
def cast(stage: Stage, server: str, namespace: str, log: Log, make_queue: MakeQueue) -> Iterator[Cast]:
    """Actors: processes that are quickly started, frozen and killed. Gone before the checks after the test."""
    cast = Cast(stage, server, namespace, log)
    yield cast
    cast.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Writes down what became of each case, the checks after it included; docs/reliability.md is made of that."""
    report = yield
    outcomes: dict[str, Any] = item.stash.setdefault(_OUTCOMES, {})
    outcomes[report.when] = report.outcome
    if report.when == "teardown" and (marker := item.get_closest_marker("case")):
        outcome = next((one for one in outcomes.values() if one != "passed"), "passed")
        _note({"case": marker.args[0], "test": item.nodeid, "outcome": outcome, "at": time.time()})
    return report


_OUTCOMES = pytest.StashKey[dict[str, Any]]()


def _note(result: dict[str, Any], path: Path = RESULTS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, json.dumps(result).encode() + b"\n")  # one write: lines of several processes never mix
    finally:
        os.close(file)
