"""Limits over many processes, judged by the handlers' own log."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

from fairqueue import Limit, NewMessage
from tests.conftest import MakeQueue
from tests.support.fixtures import StartWorker
from tests.support.processes import ENDED, STARTED, Log
from tests.support.waiting import eventually
from tests.worker.running import all_done

PROCESSES, MESSAGES = 16, 160


async def test_sixteen_processes_never_run_more_than_the_limits_allow(
    make_queue: MakeQueue, start_worker: StartWorker, log: Log, tmp_path: Path
) -> None:
    """Two tenants of 5 each in one org of 8; the first of them hold their slots until all eight are held."""
    queue = await make_queue(
        clock=None, limits=[Limit("tenant", default=5), Limit("org", default=8, key="org")]
    )
    all_held = tmp_path / "all slots are held"
    messages: list[NewMessage[Any]] = [
        NewMessage(
            {"until": str(all_held)} if n < 10 else {"sleep": 0.004},
            tenant=f"t{n % 2}",
            id=f"m{n}",
            metadata={"org": "o"},
        )
        for n in range(MESSAGES)
    ]
    await queue.enqueue_many(messages)
    workers = start_worker(copies=PROCESSES, concurrency=1)
    await eventually(lambda: log.count(STARTED) == 8, "the org's eight slots to be held")
    all_held.touch()
    await all_done(queue)
    workers.signal(signal.SIGTERM)
    assert workers.wait() == 0
    starts = log.events(STARTED)
    assert Counter(event.id for event in starts) == {f"m{n}": 1 for n in range(MESSAGES)}
    assert log.count(ENDED) == MESSAGES
    assert len({event.pid for event in starts}) >= 8
    assert log.most_at_once(tenants=["t0"]) <= 5
    assert log.most_at_once(tenants=["t1"]) <= 5
    assert log.most_at_once() == 8
    for tenant in ("t0", "t1"):
        assert (await queue.limits.get("tenant", tenant)).held == 0
    assert (await queue.limits.get("org", "o")).held == 0
