"""Fixtures of the tests that break things: a proxy before the shared server, servers and workers of the test's own.

Imported by the conftest of each directory that uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairqueue import consuming
from tests.conftest import MakeQueue
from tests.support.processes import Log, Server, WorkerProcess
from tests.support.proxy import Proxy

__all__ = [
    "MakeServer",
    "StartWorker",
    "log",
    "make_queue",
    "make_server",
    "module_proxy",
    "no_idle_look",
    "own",
    "proxy",
    "start_worker",
]

MakeServer = Callable[..., Server]
StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def module_proxy(server: str) -> Iterator[Proxy]:
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def proxy(module_proxy: Proxy) -> Iterator[Proxy]:
    """A proxy before the shared server. A test's faults must all have happened by its end."""
    module_proxy.reset()
    yield module_proxy
    unmet = module_proxy.waiting
    module_proxy.reset()
    assert not unmet, f"{unmet} faults were ordered and never met"


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    """Starts servers that belong to the test; they are killed and removed after it."""
    made: list[Server] = []

    def make(**options: str) -> Server:
        made.append(Server(**options))
        return made[-1].start()

    yield make
    for server in made:
        server.remove()


@pytest.fixture
def own(make_server: MakeServer) -> Server:
    """A server of this test alone."""
    return make_server()


@pytest.fixture
def make_queue(proxy: Proxy, make_server: MakeServer, make_queue: MakeQueue) -> MakeQueue:
    """The same, whose checks run before the proxy and the servers are gone."""
    return make_queue


@pytest.fixture
def no_idle_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second after which an idle claimer looks by itself is put off: only a wake-up can end its wait."""
    monkeypatch.setattr(consuming, "IDLE_LOOK", 600.0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """What the handlers of worker processes do."""
    return Log(tmp_path / "handlers.log")


@pytest.fixture
def start_worker(server: str, namespace: str, log: Log, make_queue: MakeQueue) -> Iterator[StartWorker]:
    """Starts worker processes on this test's namespace and the server's clock; those that are left are killed."""
    made: list[WorkerProcess] = []

    def start(*, url: str = server, go: bool = True, **options: Any) -> WorkerProcess:
        made.append(WorkerProcess(url, namespace, log, **options))
        return made[-1].ready().go() if go else made[-1]

    yield start
    for worker in made:
        worker.kill()
