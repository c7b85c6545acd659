"""Fixtures of this directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.record import note
from tests.support.fixtures import log, make_queue, make_server, module_proxy, own, proxy, start_worker

__all__ = ["injected", "log", "make_queue", "make_server", "module_proxy", "own", "proxy", "start_worker"]

_KINDS = {"test_server_trouble": "server", "test_cancelled_anywhere": "cancelled"}
_PASSED = pytest.StashKey[bool]()


@dataclass(slots=True)
class Injected:
    """How many faults a test has injected, and the kind of its line in ``build/faults/``."""

    kind: str
    faults: int = 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield  # type: ignore[misc]
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    return report  # type: ignore[return-value]


@pytest.fixture
def injected(request: pytest.FixtureRequest) -> Iterator[Injected]:
    """Counts what the test injects. It is noted when the test is over: one that fails is a problem."""
    counted = Injected(kind=_KINDS[Path(request.node.path).stem])
    yield counted
    problems = int(not request.node.stash.get(_PASSED, False))
    note(counted.kind, what=request.node.name, faults=counted.faults, problems=problems)
