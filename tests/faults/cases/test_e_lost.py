"""E: a message was taken by somebody who is no more, and nobody looks for it."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, NewMessage, RetryPolicy, Totals, Worker
from fairqueue.codec import JsonCodec
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.engine.tools import held, put, state
from tests.faults.cases.actors import Cast
from tests.faults.scale import WHOLE, sized
from tests.support.monitor import Seen, monitored
from tests.support.processes import ENDED, STARTED, Log
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually
from tests.support.working import working

VISIBILITY, RECLAIM = 1.0, 0.2
SLACK = (
    1.0  # for a busy machine: who was starved on it holds judgement back for half of the visibility timeout
)
QUICK = {"visibility_timeout": VISIBILITY, "reclaim_interval": RECLAIM}


async def all_completed(queue: FairQueue[Any], expected: int) -> bool:
    return (await queue.stats()).totals.completed == expected


# --- E1 ----------------------------------------------------------------------------------------------------------


class Survivors:
    """Whoever lives when a consumer has ended: they work off what it left, each message in a pool of its own."""

    def __init__(self, queue: FairQueue[Any]) -> None:
        self._queue = queue
        self._tasks: list[asyncio.Task[tuple[float, float]]] = []
        self._watch = Stopwatch()
        self._around = AsyncExitStack()

    async def __aenter__(self) -> Survivors:
        await self._around.enter_async_context(
            working(self._queue, print, pools=["none of theirs"])
        )  # it reclaims
        self._around.enter_context(self._watch.looking())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._around.aclose()

    def follow(self, n: int) -> None:
        """The n-th consumer has ended just now."""
        self._tasks.append(asyncio.ensure_future(self._handled(n, time.monotonic())))

    async def _handled(self, n: int, since: float) -> tuple[float, float]:
        while await state(self._queue, "T", f"m{n}") is not None:
            await self._queue.complete_many(await self._queue.claim(pools=[f"p{n}"], wait=0.5))
        return since, time.monotonic()

    async def all_handled(self, expected: int) -> Totals:
        """None of them later than its consumer's lease and the next reclaim, whatever became of the others."""
        spans = await asyncio.gather(*self._tasks)
        assert len(spans) == expected
        self._watch.check_each(VISIBILITY + RECLAIM + SLACK, "each message to be handled", spans)
        assert await held(self._queue, "tenant", "T") == 0
        totals = (await self._queue.stats()).totals
        assert (totals.enqueued, totals.completed) == (expected, expected)
        return totals


@pytest.mark.case("E1")
async def test_consumers_killed_while_they_wait_in_claim_lose_nothing(
    make_queue: MakeQueue, cast: Cast
) -> None:
    """A message is handled within visibility, reclaim interval and a second: who was starved holds judgement back so long."""
    rng, rounds = random.Random(1), sized(200)
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=5)], **QUICK)
    async with Survivors(queue) as survivors:
        for n in range(rounds):
            consumer = await cast.actor(visibility_timeout=VISIBILITY)
            consumer.tell("claim_and_block", pools=[f"p{n}"])
            await put(queue, "T", f"m{n}", pool=f"p{n}")
            await asyncio.sleep(rng.uniform(0, 0.02))
            consumer.kill()
            survivors.follow(n)
        totals = await survivors.all_handled(rounds)
    assert totals.reclaimed > 0 or not WHOLE, "of 200 that are killed about 30 have claimed and not completed"


@pytest.mark.case("E1")
async def test_claims_cancelled_while_they_wait_lose_nothing(make_queue: MakeQueue) -> None:
    rng, rounds = random.Random(2), 200
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=5)], **QUICK)

    async def consume(n: int) -> None:
        await queue.complete_many(await queue.claim(wait=5, pools=[f"p{n}"]))

    async with Survivors(queue) as survivors:
        for n in range(rounds):
            waiting = asyncio.ensure_future(consume(n))
            await put(queue, "T", f"m{n}", pool=f"p{n}")
            await asyncio.wait([waiting], timeout=rng.uniform(0, 0.02))
            waiting.cancel()
            await asyncio.wait([waiting])
            survivors.follow(n)
        await survivors.all_handled(rounds)


# --- E2 ----------------------------------------------------------------------------------------------------------


class Picky(JsonCodec):
    """Cannot decode what says so."""

    def decode(self, data: bytes) -> Any:
        if b"undecodable" in data:
            raise ZeroDivisionError("a decoder may raise anything")
        return super().decode(data)


@pytest.mark.case("E2")
async def test_what_cannot_be_handed_over_strands_none_of_its_batch(make_queue: MakeQueue) -> None:
    """A group function raises at enqueue, where it refuses that message alone: a claim calls none."""
    queue = await make_queue(limits=[Limit("tenant", default=10)], codec=Picky())
    payloads = [0, 1, "undecodable", *range(3, 10)]
    await queue.enqueue_many([NewMessage(p, tenant="T", id=f"m{n}") for n, p in enumerate(payloads)])
    leases = await queue.claim(10)
    assert [lease.message.id for lease in leases] == [f"m{n}" for n in range(10) if n != 2]
    assert await held(queue, "tenant", "T") == 9
    (letter,), _ = await queue.dead_letters.list("T")
    assert (letter.message.id, letter.reason, letter.attempts, letter.raw) == (
        "m2", "undecodable", 1, b'"undecodable"',
    )  # fmt: skip
    assert await queue.complete_many(leases) == ["done"] * 9


@pytest.mark.case("E2")
async def test_a_message_no_handler_knows_strands_none_of_its_batch(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=10)], retry=RetryPolicy.fixed(5, max_attempts=2))
    tasks = {"known": lambda: None}
    await queue.enqueue_many(
        [NewMessage("unknown" if n == 2 else "known", tenant="T", id=f"m{n}") for n in range(10)]
    )
    worker = Worker(queue, lambda message: tasks[message.payload](), concurrency=10)
    working = asyncio.ensure_future(worker.run(signals=False))
    await eventually(lambda: all_completed(queue, 9), "the other nine to be completed")
    await eventually(lambda: has_state(queue, "m2", "delayed"), "the third to wait for its retry")
    assert await held(queue, "tenant", "T") == 0
    clock.advance(5)
    await eventually(lambda: has_state(queue, "m2", "dead"), "the third to be dead")
    worker.stop()
    await working
    (letter,), _ = await queue.dead_letters.list("T")
    assert (letter.attempts, letter.error) == (2, "KeyError: 'unknown'")


async def has_state(queue: FairQueue[Any], id_: str, expected: str) -> bool:
    return await state(queue, "T", id_) == expected


@pytest.mark.case("E2")
async def test_a_group_function_that_raises_refuses_its_own_message(make_queue: MakeQueue) -> None:
    def group_of(message: NewMessage[Any]) -> str:
        return str(message.payload["group"])

    queue = await make_queue(limits=[Limit("made", default=5, key=group_of)])
    with pytest.raises(ValueError, match="made"):
        await queue.enqueue({"no": "group"}, tenant="T")
    assert (await queue.enqueue({"group": "g"}, tenant="T", id="good")).created
    assert [message.id for message in await drain(queue)] == ["good"]


# --- E3 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("E3")
@pytest.mark.parametrize("successor", [False, True], ids=["nothing restarted", "restarted under its name"])
async def test_a_killed_workers_message_is_handled_by_those_that_live(
    make_queue: MakeQueue, server: str, cast: Cast, log: Log, successor: bool
) -> None:
    """Within visibility, reclaim interval and a second, for a machine whose workers are starved; the successor takes the name
    within 100 ms, by the server's clock: it was forked before and is told then."""
    queue = await make_queue(clock=None, **QUICK)
    await queue.enqueue({"sleep": 60, "once": True}, tenant="T", id="m")
    name = f"{socket.gethostname()}:same"
    first = await cast.actor("worker", worker={"name": name, "concurrency": 1}, **QUICK)
    await eventually(lambda: log.count(STARTED) == 1, "the first worker to start it")
    role, named = ("substitute", name) if successor else ("worker", "another")
    other = await cast.actor(role, worker={"name": named}, **QUICK)
    async with monitored(server) as monitor:
        watch = Stopwatch()
        with watch.looking():
            first.kill()
            killed, by_the_wall = time.monotonic(), time.time()
            if successor:
                other.tell("begin")
            await eventually(lambda: log.count(ENDED) == 1, "somebody to handle it")
        seen = await monitor.seen()
    (start,) = [event for event in log.events(STARTED) if event.pid != first.pid]
    assert (start.attempt, start.pid) == (2, other.pid)
    watch.check(VISIBILITY + RECLAIM + SLACK, "the next one to start it", killed, start.at)
    if successor:
        began = next(one.at for one in seen if is_beat(one, name, other.pid)) - by_the_wall
        watch.check(0.1, "the successor to bear the name", killed, killed + began)
    await eventually(lambda: all_completed(queue, 1), "it to be completed")


def is_beat(seen: Seen, name: str, pid: int) -> bool:
    """A worker of that name says that it lives."""
    beat = seen.in_script and seen.words[0] == b"HSET" and seen.words[2] == name.encode()
    return beat and json.loads(seen.words[3])["pid"] == pid
