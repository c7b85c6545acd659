"""Fixtures of this directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.faults.record import Harm, note
from tests.support.fixtures import log, make_queue, make_server, module_proxy, own, proxy, start_worker

__all__ = ["injected", "log", "make_queue", "make_server", "module_proxy", "own", "proxy", "start_worker"]

_KINDS = {"test_server_trouble": "server", "test_cancelled_anywhere": "cancelled"}
_FAILURE = pytest.StashKey[type[BaseException] | None]()


@dataclass
class Injected(Harm):
    """What a test has injected, and the kind of its line in ``build/faults/``."""

    kind: str = ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield  # type: ignore[misc]
    if call.when == "call":
        item.stash[_FAILURE] = call.excinfo.type if call.excinfo else None
    return report  # type: ignore[return-value]


@pytest.fixture
def injected(request: pytest.FixtureRequest) -> Iterator[Injected]:
    """Counts what the test injects. It is noted when the test is over: one that fails is a problem."""
    counted = Injected(kind=_KINDS[Path(request.node.path).stem])
    yield counted
    if failure := request.node.stash.get(_FAILURE, AssertionError):  # as one that did not end
        counted.blame(failure)
    note(what=request.node.name, **asdict(counted))
