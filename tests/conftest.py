"""A real server for every test, and the five checks after each."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any

import pytest

from fairqueue import FairQueue
from fairqueue.embedded import start_sync
from fairqueue.testing import ManualClock, assert_whole
from tests.support.cluster import Cluster
from tests.support.processes import Server
from tests.support.programs import other_program
from tests.support.told_at_once import tell_at_once
from tests.support.watch import WATCH, watch

_names = itertools.count(1)


@pytest.hookimpl(trylast=True)  # pytest's own reporter has to be there
def pytest_configure(config: pytest.Config) -> None:
    tell_at_once(config)
    watch()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    WATCH.begin()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """KEEP, SLOTS, OWNER, MOVES and CLEAN after every test, on each namespace that it used, whoever made the queue.

    Before the fixtures end, and with them the servers. A test that leaves a fault behind on purpose says so:
    ``@pytest.mark.leaves_findings``.
    """
    leaves = item.get_closest_marker("leaves_findings") is not None
    wrong = [] if leaves else WATCH.findings()
    yield
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a private server that lives as long as the test process.

    $FAIRQUEUE_TEST_SERVER is the URL of one that runs already; $FAIRQUEUE_TEST_PROGRAM a program to start, for ours.
    """
    if given := os.environ.get("FAIRQUEUE_TEST_SERVER"):
        yield given
        return
    if other_program():
        other = Server(appendonly="no")
        try:
            yield other.start().url
        finally:
            other.remove()
        return
    embedded = start_sync(None)
    yield embedded.url
    embedded.close()


MakeCluster = Callable[..., Cluster]


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """A cluster that lives as long as the test process; nodes that are only slow are not replaced."""
    shared = Cluster(node_timeout_ms=5000)
    try:
        yield shared.start()
    finally:
        shared.remove()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The shared cluster, empty and whole: as the last test left it until then, so that it can be looked at."""
    shared_cluster.reset()
    return shared_cluster


@pytest.fixture
def make_cluster() -> Iterator[MakeCluster]:
    """Starts clusters that belong to the test, for what takes nodes away; they are removed after it."""
    made: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        made.append(Cluster(**options))
        return made[-1].start()

    yield make
    for one in made:
        one.remove()


@pytest.fixture
def namespace() -> str:
    """A name no other test uses."""
    return f"test-{os.getpid()}-{next(_names)}"


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until it is advanced."""
    return ManualClock()


MakeQueue = Callable[..., Awaitable[FairQueue[Any]]]


@pytest.fixture
async def make_queue(
    server: str,
    namespace: str,
    clock: ManualClock,
    make_cluster: MakeCluster,
    request: pytest.FixtureRequest,
) -> AsyncIterator[MakeQueue]:
    """Makes connected clients of this test's namespace on a manual clock; ``clock=None`` for the server's.

    The five checks on these are made here and not with the others: when what the test started is gone, and by a client
    of the test, which may reach its server through a proxy. Clusters of the test are still there then.
    """
    queues: list[FairQueue[Any]] = []

    async def make(**options: Any) -> FairQueue[Any]:
        chosen = {"url": server, "name": namespace, "clock": clock, "reconcile_interval": 0} | options
        WATCH.checked_elsewhere(chosen["name"])
        queue: FairQueue[Any] = FairQueue(**chosen)
        await queue.connect()
        queues.append(queue)
        return queue

    yield make
    try:
        if request.node.get_closest_marker("leaves_findings") is None:
            for queue in {(queue.url, queue.name): queue for queue in queues}.values():
                await queue.connect()  # the test may have closed it
                await assert_whole(queue)
    finally:
        for queue in queues:
            await queue.close()
