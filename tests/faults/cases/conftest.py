"""Fixtures of the cases, and the record of what became of each."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.conftest import MakeQueue
from tests.faults.cases.actors import Cast, Stage
from tests.faults.record import began, note
from tests.faults.scale import EVERY
from tests.support.fixtures import log, make_queue, make_server, module_proxy, proxy, start_worker
from tests.support.processes import Log

__all__ = ["log", "make_queue", "make_server", "module_proxy", "proxy", "start_worker"]

_OUTCOMES = pytest.StashKey[dict[str, str]]()


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if marker := item.get_closest_marker("case"):
        began("cases", case=marker.args[0], test=item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Writes down what became of each case, the checks after it included; docs/reliability.md is made of that."""
    report = yield
    outcomes: dict[str, str] = item.stash.setdefault(_OUTCOMES, {})
    outcomes[report.when] = report.outcome
    if report.when == "teardown" and (marker := item.get_closest_marker("case")):
        outcome = next((one for one in outcomes.values() if one != "passed"), "passed")
        note("cases", case=marker.args[0], test=item.nodeid, outcome=outcome, every=EVERY)
    return report
