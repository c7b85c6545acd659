"""The server goes away under a running worker: handlers go on, what they did is settled when it is back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, Message, NewMessage, QueueUnavailableError
from fairqueue.maintenance.service import Maintenance
from fairqueue.testing import faults
from tests.conftest import MakeQueue
from tests.support.fixtures import MakeServer, StartWorker
from tests.support.processes import ENDED, STARTED, Log, Server
from tests.support.proxy import Proxy, hold_reply, lose_request
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually
from tests.worker.running import all_done, running


async def away(seconds: float) -> None:
    """An outage of a certain length is what is tested: nothing happens meanwhile that could be waited for."""
    await asyncio.sleep(seconds)


async def test_restarted_after_longer_than_the_leases_no_handler_is_doubled(
    make_queue: MakeQueue, own: Server, start_worker: StartWorker, log: Log
) -> None:
    """Two processes, both of which would reclaim what looks expired; the handlers run all through the outage."""
    queue = await make_queue(url=own.url, clock=None, limits=[Limit("tenant", default=3)])
    visibility = 8  # seconds: extended within 2 s of the return, stalls included
    options = {"visibility_timeout": visibility, "reclaim_interval": 0.1}
    await queue.enqueue_many([NewMessage({"sleep": 15}, tenant=f"t{n % 2}", id=f"m{n}") for n in range(6)])
    for _ in range(2):
        start_worker(url=own.url, queue=options, concurrency=3)
    await eventually(lambda: log.count(STARTED) == 6, "all handlers to start")
    own.kill()
    await away(visibility + 0.3)  # every lease has expired, the last extend's too
    own.start()
    await all_done(queue)
    assert sorted(event.id for event in log.events(STARTED)) == [f"m{n}" for n in range(6)]
    assert log.count(ENDED) == 6
    totals = (await queue.stats()).totals
    assert (totals.completed, totals.reclaimed) == (6, 0)


async def test_who_starts_after_the_outage_judges_no_lease_of_before_it(
    make_queue: MakeQueue, make_server: MakeServer
) -> None:
    """The server loads its data for longer than leases are held back: it has run for long when it serves again."""
    own = make_server(appendonly="no", key_load_delay="4000", loading_process_events_interval_bytes="1024")
    queue = await make_queue(url=own.url, clock=None, visibility_timeout=2)
    own.command(
        "EVAL", "for n = 1, 500 do redis.call('SET', KEYS[1] .. n, string.rep('x', 500)) end", 1, "weight"
    )
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(2)])
    kept, lost = await queue.claim(2)
    own.command("SAVE")
    own.kill()
    await asyncio.to_thread(own.start)
    with Proxy(own.url) as proxy:
        quick = {"visibility_timeout": 2, "reclaim_interval": 0.05}
        async with FairQueue[Any](proxy.url, queue.name, **quick) as late:
            maintenance = Maintenance(late._engine)
            await maintenance.start()
            try:
                await eventually(lambda: proxy.count("reclaim") > 1, "a pass over all leases")
                assert await kept.extend() > lost.deadline
                await eventually(lambda: all_but_one_are_back(queue), "the one that nobody extended")
            finally:
                await maintenance.stop()
    assert await kept.complete() == "done"


async def all_but_one_are_back(queue: FairQueue[Any]) -> bool:
    stats = await queue.stats()
    return (stats.ready, stats.in_flight) == (1, 1)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Which of the two, in order."""
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [word for text in texts for word in ("away", "back") if text.startswith(f"the server is {word}")]


async def nothing(message: Message[Any]) -> None:
    """Completes."""


async def test_an_outage_and_its_end_are_told_once(
    make_queue: MakeQueue, own: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Though bell, heartbeat, maintenance and claims all meet it, again and again."""
    queue = await make_queue(url=own.url, clock=None, reclaim_interval=0.05)
    async with running(queue, nothing):
        await eventually(lambda: queue._engine._bells, "the worker to be idle")
        own.kill()
        await eventually(lambda: told(caplog), "the outage to be told")
        await eventually(lambda: caplog.text.count("reclaim failed") > 2, "several to have met it")
        assert told(caplog) == ["away"]
        own.start()
        await eventually(lambda: told(caplog)[1:], "the end of it to be told")
        assert told(caplog)[:2] == ["away", "back"]
        assert "the server is back after " in caplog.text


async def test_that_an_embedded_server_died_is_told(
    make_queue: MakeQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(url=f"embedded://{tmp_path}/queue", clock=None)
    async with running(queue, nothing):
        await eventually(lambda: queue._engine._bells, "the worker to be idle")
        process = (await queue._engine.command("INFO", "server"))["process_id"]
        os.kill(process, signal.SIGKILL)
        await eventually(lambda: told(caplog)[1:], "its death and its return to be told")
    assert told(caplog)[:2] == ["away", "back"]


async def test_a_server_that_was_never_there_is_told_by_the_error_alone(
    own: Server, caplog: pytest.LogCaptureFixture
) -> None:
    own.kill()
    queue: FairQueue[Any] = FairQueue(own.url)
    with pytest.raises(QueueUnavailableError):
        await queue.connect()
    assert caplog.records == []


async def test_what_was_finished_during_the_outage_is_settled_after_it(
    make_queue: MakeQueue, own: Server, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(url=own.url, clock=None)
    starts: list[tuple[str, int]] = []
    ended: list[str] = []
    go = asyncio.Event()

    async def handle(message: Message[Any]) -> None:
        starts.append((message.id, message.attempt))
        await go.wait()
        ended.append(message.id)

    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(8)])
    async with running(queue, handle, concurrency=4):
        await eventually(lambda: len(starts) == 4, "the handlers to start")
        own.kill()
        go.set()
        await eventually(lambda: len(ended) == 4, "the handlers to go on")
        own.start()
        watch = Stopwatch()
        await all_done(queue)
        watch.check(5, "all to be settled")
    assert sorted(starts) == [(f"m{n}", 1) for n in range(8)]
    assert (await queue.stats()).totals.completed == 8


@pytest.mark.parametrize("trouble", ["REPLICAOF", "CUT", "SCRIPT FLUSH", "FLUSHALL"])
async def test_a_worker_survives(make_queue: MakeQueue, own: Server, trouble: str) -> None:
    queue = await make_queue(url=own.url, clock=None, limits=[Limit("tenant", default=2)])
    seen: list[str] = []

    async def handle(message: Message[Any]) -> None:
        seen.append(message.id)

    async with running(queue, handle):
        await queue.enqueue(1, tenant="a", id="before")
        await eventually(lambda: seen == ["before"], "it to work")
        match trouble:
            case "REPLICAOF":
                own.command("REPLICAOF", "127.0.0.1", "1")
                await away(0.5)
                own.command("REPLICAOF", "NO", "ONE")
            case "CUT":
                own.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            case _:
                own.command(*trouble.split())
        watch = Stopwatch()
        await queue.enqueue(1, tenant="a", id="after")
        await eventually(lambda: "after" in seen, "it to go on")
        watch.check(5, "it to go on")
    assert [limit.default for limit in (await make_queue(url=own.url, clock=None))._engine.limits] == [2]


async def test_idle_on_silently_dead_connections_it_is_back_within_ten_seconds(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """The bell, the claims, the extends and the maintenance: none of them waits for ever."""
    queue = await make_queue(url=proxy.url, clock=None, visibility_timeout=30)
    other = await make_queue(clock=None)
    started: list[str] = []

    async def handle(message: Message[Any]) -> None:
        started.append(message.id)
        await asyncio.sleep(0)

    async with running(queue, handle):
        await eventually(lambda: proxy.count("BLPOP") > 0, "the worker to be idle")
        proxy.silence()
        watch = Stopwatch()
        await other.enqueue(1, tenant="a")
        await eventually(lambda: started, "the message to be handled")
        watch.check(10, "it to be back")


async def test_a_drain_during_an_outage_settles_when_the_server_is_back(
    make_queue: MakeQueue, own: Server
) -> None:
    queue = await make_queue(url=own.url, clock=None)
    came, go = asyncio.Event(), asyncio.Event()

    async def handle(message: Message[Any]) -> None:
        came.set()
        await go.wait()

    await queue.enqueue(1, tenant="a")
    async with running(queue, handle, grace=60) as worker:
        await came.wait()
        own.kill()
        worker.stop()
        go.set()
        await away(0.3)
        own.start()
    totals = (await queue.stats()).totals
    assert (totals.completed, totals.released) == (1, 0)


async def test_an_outage_during_the_hand_over_of_a_batch_strands_nobody(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """The undecodable one cannot be buried just then; the others of its batch run all the same."""
    queue = await make_queue(url=proxy.url, clock=None, visibility_timeout=5, reclaim_interval=0.1)
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(3)])
    await faults.overwrite(queue, "body", "a", "m1", b"{bad\xff")
    queue._engine.connection._patience = 0.1
    seen: list[tuple[str, int]] = []

    async def handle(message: Message[Any]) -> None:
        seen.append((message.id, message.attempt))
        proxy.reset()

    proxy.next("settle", lose_request(), times=1000)
    async with running(queue, handle, concurrency=10):
        await eventually(lambda: len(seen) == 2, "the others to run")
        await all_done(await make_queue(clock=None))
    assert sorted(seen) == [("m0", 1), ("m2", 1)]
    ((dead,), _) = await queue.dead_letters.list("a")
    assert (dead.message.id, dead.raw) == ("m1", b"{bad\xff")


async def test_connections_that_break_again_and_again_do_not_hold_reclaim_back_for_good(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """More often than every half visibility timeout, each time for a moment: others could extend all the while."""
    home = await make_queue(clock=None)
    await home.enqueue(1, tenant="a", id="m")
    await home.claim(1, visibility_timeout=0.4)  # its owner dies
    queue = await make_queue(url=proxy.url, clock=None, visibility_timeout=0.8, reclaim_interval=0.1)
    attempts: list[int] = []

    async def handle(message: Message[Any]) -> None:
        attempts.append(message.attempt)

    async def run_after_another_cut() -> bool:
        seen = len(proxy.requests)
        proxy.cut()
        await eventually(lambda: len(proxy.requests) > seen, "the worker to connect again")
        return bool(attempts)

    async with running(queue, handle):
        await eventually(run_after_another_cut, "the message to be reclaimed")
        await all_done(home)
    assert attempts == [2]
    assert (await home.stats()).totals.reclaimed == 1


async def test_frozen_in_the_middle_of_a_reclaim_the_next_one_is_held_back(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """The answer waits while the process does; right after it the leases have not been extended yet."""
    queue = await make_queue(url=proxy.url, clock=None, visibility_timeout=3, reclaim_interval=0.05)
    maintenance, gate = Maintenance(queue._engine), threading.Event()
    await queue.reclaim()  # the server knows the scripts
    passes = proxy.count("reclaim")
    proxy.next("reclaim", hold_reply(gate))
    await maintenance.start()
    try:
        await eventually(lambda: proxy.count("reclaim") > passes, "a pass to be under way")
        await queue.enqueue(1, tenant="a")
        (lease,) = await queue.claim()
        time.sleep(3.2)  # noqa: ASYNC251 - nothing of this process runs: its lease expires
        gate.set()
        await eventually(lambda: maintenance._doubt.left, "the freeze to be noticed")
        assert proxy.count("reclaim") == passes + 1
        await lease.extend()
    finally:
        await maintenance.stop()
    assert await lease.complete() == "done"
