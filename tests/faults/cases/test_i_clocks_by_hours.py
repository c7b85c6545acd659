"""I: wall clocks that are an hour off from before the program starts, or step by hours while it works."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from fairqueue import FairQueue, RetryPolicy
from tests.conftest import MakeQueue
from tests.faults.cases.test_i_clocks import instants, server_now
from tests.support.fixtures import StartWorker
from tests.support.processes import ENDED, ROOT, STARTED, Event, Log
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually, watched_until
from tests.support.wrong_clock import AHEAD, BACK, HOUR

VISIBILITY, SLACK, WAIT = 1.5, 2.0, 0.6
QUICK: dict[str, Any] = {"visibility_timeout": VISIBILITY, "reclaim_interval": 0.1}
either_way = pytest.mark.parametrize("wrong", [+HOUR, -HOUR], ids=["ahead", "behind"])


@pytest.fixture
async def queue(make_queue: MakeQueue) -> FairQueue[Any]:
    """A client whose clock is right, on the server's clock."""
    return await make_queue(clock=None, retry=RetryPolicy.fixed(WAIT))


def of(log: Log, what: str, id_: str) -> list[Event]:
    return [event for event in log.events(what) if event.id == id_]


async def lease_is_right(queue: FairQueue[Any], id_: str) -> None:
    """The stored deadline is at most a visibility timeout ahead of the server's now, and nothing like an hour behind."""
    held, now = await instants(queue, "deadlines"), await server_now(queue)
    if id_ in held:
        assert now - HOUR / 60 < held[id_] <= now + VISIBILITY


async def next_extend(queue: FairQueue[Any], id_: str) -> None:
    before = (await instants(queue, "deadlines"))[id_]

    async def extended() -> bool:
        return (await instants(queue, "deadlines"))[id_] > before

    await eventually(extended, "the lease to be extended")


async def watched_until_it_ends(queue: FairQueue[Any], log: Log, id_: str) -> None:
    await watched_until(
        lambda: of(log, ENDED, id_), lambda: lease_is_right(queue, id_), "the handler of it to end"
    )
    assert [event.attempt for event in of(log, STARTED, id_)] == [1]
    assert (await queue.stats()).totals.reclaimed == 0


@pytest.mark.case("I1")
@either_way
async def test_a_worker_that_is_an_hour_off_keeps_its_leases(
    queue: FairQueue[Any], start_worker: StartWorker, log: Log, wrong: float
) -> None:
    """A handler of two and a half leases; a worker whose clock is wrong the other way reclaims beside it."""
    await queue.enqueue({"sleep": 2.5 * VISIBILITY}, tenant="T", id="long")
    start_worker(queue=QUICK, wrong_clock=wrong, concurrency=1)
    await eventually(lambda: log.count(STARTED) == 1, "the handler to start")
    start_worker(queue=QUICK, wrong_clock=-wrong, concurrency=1)
    await watched_until_it_ends(queue, log, "long")


@pytest.mark.case("I1")
@either_way
async def test_the_message_of_a_killed_worker_comes_back_by_the_servers_clock(
    queue: FairQueue[Any], start_worker: StartWorker, log: Log, wrong: float
) -> None:
    await queue.enqueue({"sleep": 60, "first": 60}, tenant="T", id="m")
    lost = start_worker(queue=QUICK, wrong_clock=wrong, concurrency=1)
    await eventually(lambda: log.count(STARTED) == 1, "the handler to start")
    lost.kill()
    watch = Stopwatch()
    start_worker(queue=QUICK, wrong_clock=-wrong, concurrency=1)
    await eventually(lambda: log.count(STARTED) == 2, "it to run again")
    first, again = of(log, STARTED, "m")
    assert again.at - first.at >= VISIBILITY - 0.1, "not before its lease had expired"
    watch.check(VISIBILITY + SLACK, "it to run again")
    assert [first.attempt, again.attempt] == [1, 2]


@pytest.mark.case("I1")
@either_way
async def test_a_retry_asked_for_by_a_worker_that_is_an_hour_off_is_due_by_the_servers_clock(
    queue: FairQueue[Any], start_worker: StartWorker, log: Log, wrong: float
) -> None:
    await queue.enqueue({"fail": True}, tenant="T", id="m")
    watch = Stopwatch()
    start_worker(queue=QUICK, wrong_clock=wrong, concurrency=1)
    await eventually(lambda: log.count(ENDED) == 1, "the second attempt to end")
    first, again = of(log, STARTED, "m")
    assert again.at - first.at >= WAIT
    watch.check(WAIT + SLACK, "the retry", first.at, again.at)


@pytest.mark.case("I1")
@either_way
async def test_a_delay_asked_for_by_a_command_that_is_an_hour_off_is_right(
    queue: FairQueue[Any], wrong: float
) -> None:
    words = ["fairqueue", "enqueue", "--url", queue.url, "--name", queue.name]
    words += ["--tenant", "T", "--id", "m", "--delay", "600", "{}"]
    before = await server_now(queue)
    clocked = [sys.executable, "-m", "tests.support.wrong_clock", str(wrong), *words]
    await asyncio.to_thread(subprocess.run, clocked, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    due = (await instants(queue, "delayed"))["m"]
    assert before + 599.9 <= due <= await server_now(queue) + 600.1
    info = await queue.get("T", "m")
    assert info is not None
    assert before - 0.1 <= info.message.enqueued_at.timestamp() <= await server_now(queue) + 0.1


@pytest.mark.case("I1")
@either_way
async def test_a_worker_that_is_an_hour_off_is_listed_with_the_servers_instants(
    queue: FairQueue[Any], start_worker: StartWorker, wrong: float
) -> None:
    """When it was seen, and since when it runs; and it is not forgotten for the hour."""
    before = await server_now(queue)
    for clock in (wrong, 0):
        start_worker(queue=QUICK, wrong_clock=clock)

    async def both() -> list[Any]:
        listed = [state async for state in queue.workers()]
        return listed if len(listed) == 2 else []

    for state in await eventually(both, "both to be listed"):
        for instant in (state.started_at, state.seen_at):
            assert before - 0.1 <= instant.timestamp() <= await server_now(queue) + 0.1


@pytest.mark.case("I1")
@pytest.mark.parametrize(
    "steps", [[AHEAD], [BACK], [AHEAD, BACK, BACK]], ids=["ahead", "back", "there and back and further"]
)
async def test_a_clock_that_steps_during_a_lease_changes_nothing(
    queue: FairQueue[Any], start_worker: StartWorker, log: Log, steps: list[Any]
) -> None:
    """What runs keeps its lease, what waits for its time waits as long as it was to, and the next one runs."""
    worker = start_worker(queue=QUICK, wrong_clock=0, concurrency=3)
    other = start_worker(queue=QUICK, wrong_clock=0, concurrency=3)
    await queue.enqueue({"sleep": 3 * VISIBILITY}, tenant="T", id="long")
    await queue.enqueue({"fail": True}, tenant="T", id="fails")
    await queue.enqueue({}, tenant="T", id="later", delay=2 * VISIBILITY)
    due = (await instants(queue, "delayed"))["later"]
    await eventually(lambda: of(log, STARTED, "long"), "the long one to start")
    for number in steps:
        await lease_is_right(queue, "long")
        for process in (worker, other):
            os.kill(process.pid, number)
        await next_extend(queue, "long")

    async def in_time() -> None:
        await lease_is_right(queue, "long")
        assert await server_now(queue) < due + 5 * SLACK

    await watched_until(lambda: of(log, STARTED, "later"), in_time, "the delayed one to start")
    assert await server_now(queue) >= due, "never early"
    await watched_until_it_ends(queue, log, "long")
    await eventually(lambda: of(log, ENDED, "fails"), "the one that failed")
    first, again = of(log, STARTED, "fails")
    assert again.at - first.at >= WAIT
    await queue.enqueue({}, tenant="T", id="after")
    await eventually(lambda: of(log, ENDED, "after"), "the workers to go on")


def test_the_clock_is_wrong_for_all_who_ask() -> None:
    """The tests above would prove nothing otherwise."""
    ask = "import datetime, time; print(time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(), "
    ask += "datetime.datetime.now(datetime.UTC).timestamp(), datetime.datetime.utcnow().timestamp())"
    install = f"from tests.support import wrong_clock; wrong_clock.install({HOUR}); {ask}"
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"TZ": "UTC"},
            capture_output=True,
            check=True,
        )
        for program in (ask, install)
    ]
    right, wrong = ([float(word) for word in done.stdout.split()] for done in said)
    assert all(HOUR <= off < HOUR + 60 for off in (b - a for a, b in zip(right, wrong, strict=True)))
