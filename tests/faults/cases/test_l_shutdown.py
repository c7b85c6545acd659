"""L: a worker that is stopped loses what it still works on."""

from __future__ import annotations

import signal
import time

import pytest

from tests.conftest import MakeQueue
from tests.engine.tools import ids, put
from tests.faults.cases.actors import Cast
from tests.support.fixtures import StartWorker
from tests.support.processes import ENDED, STARTED, Log
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually

VISIBILITY, HANDLER = 1.0, 3.0


@pytest.mark.case("L1")
async def test_leases_are_extended_until_the_last_handler_has_ended(
    make_queue: MakeQueue, start_worker: StartWorker, cast: Cast, log: Log
) -> None:
    """A second worker reclaims every 50 ms."""
    queue = await make_queue(clock=None)
    first = start_worker(queue={"visibility_timeout": VISIBILITY}, pools=["first"], concurrency=1, grace=10)
    await cast.actor(
        "worker",
        visibility_timeout=VISIBILITY,
        reclaim_interval=0.05,
        worker={"pools": ["default", "second"]},
    )
    await queue.enqueue({"sleep": HANDLER}, tenant="T", id="m", pool="first")
    await eventually(lambda: log.count(STARTED) == 1, "it to start")
    first.signal(signal.SIGTERM)
    watch = Stopwatch()

    async def draining() -> bool:
        """A message it would claim at once, were it not for the signal, is left."""
        info = await queue.get("T", "later")
        return info is not None and info.state == "ready" and log.count(ENDED) == 1

    with watch.looking():
        await put(queue, "T", "later", pool="first")
        await eventually(draining, "the handler to end")
        assert first.wait() == 0
        gone = time.monotonic()
    (ended,) = log.events(ENDED)
    watch.check(1, "the worker to end after its handler", ended.at, gone)
    assert [(event.id, event.attempt, event.pid) for event in log.events(STARTED)] == [("m", 1, first.pid)]
    totals = (await queue.stats()).totals
    assert (totals.completed, totals.claimed, totals.reclaimed, totals.released) == (1, 1, 0, 0)
    leases = await queue.claim(pools=["first"])
    assert ids(leases) == ["later"]
