"""Fixtures of this directory."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.faults.record import RUN, Harm, began, note, surroundings
from tests.support.fixtures import log, make_queue, make_server, module_proxy, own, proxy, start_worker

__all__ = ["injected", "log", "make_queue", "make_server", "module_proxy", "own", "proxy", "start_worker"]

_HERE = Path(__file__).parent
_KINDS = {"test_server_trouble": "server", "test_cancelled_anywhere": "cancelled"}
_FAILURE = pytest.StashKey[type[BaseException] | None]()


@dataclass
class Injected(Harm):
    """What a test has injected, and the kind of its line in ``build/faults/``."""

    kind: str = ""


def pytest_configure(config: pytest.Config) -> None:
    """The run says what it runs; its processes write its name into each of their lines."""
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        os.environ[RUN] = uuid.uuid4().hex[:12]
        began("run", whole=_is_whole(config), **surroundings())


def _is_whole(config: pytest.Config) -> bool:
    """All that is here, and no choice among it."""
    chosen = config.option.keyword or config.option.markexpr or config.option.deselect
    given = {(config.invocation_params.dir / one).resolve() for one in config.args}
    return given == {_HERE} and not chosen


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not hasattr(session.config, "workerinput") and RUN in os.environ:
        note("run", status=int(exitstatus))


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
    began(counted.kind, what=request.node.name)
    yield counted
    if failure := request.node.stash.get(_FAILURE, AssertionError):  # as one that did not end
        counted.blame(failure)
    harm = asdict(counted)
    note(harm.pop("kind"), what=request.node.name, **harm)
