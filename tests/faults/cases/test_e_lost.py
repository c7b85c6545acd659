"""E: a message was taken by somebody who is no more, and nobody looks for it."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, NewMessage, RetryPolicy, Worker
from fairqueue.codec import JsonCodec
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.engine.tools import held, put, state
from tests.faults.cases.actors import Cast
from tests.support.processes import ENDED, STARTED, Log
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually

VISIBILITY, RECLAIM = 1.0, 0.2
SLACK = 1.5  # for a busy machine
QUICK = {"visibility_timeout": VISIBILITY, "reclaim_interval": RECLAIM}


async def all_completed(queue: FairQueue[Any], expected: int) -> bool:
    return (await queue.stats()).totals.completed == expected


# --- E1 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("E1")
async def test_consumers_killed_while_they_wait_in_claim_lose_nothing(
    make_queue: MakeQueue, cast: Cast
) -> None:
    """60 rounds, for 200."""
    rng, rounds = random.Random(1), 60
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=5)], **QUICK)
    for n in range(rounds):
        consumer = await cast.actor(visibility_timeout=VISIBILITY)
        consumer.tell("claim_and_block")
        await put(queue, "T", f"m{n}")
        await asyncio.sleep(rng.uniform(0, 0.02))
        consumer.kill()
    await worked_off(queue, rounds, within=VISIBILITY + RECLAIM + SLACK)


async def worked_off(queue: FairQueue[Any], expected: int, within: float) -> None:
    """A worker completes what is left, within that time."""
    watch = Stopwatch()
    worker = Worker(queue, lambda _: None)
    working = asyncio.ensure_future(worker.run(signals=False))
    await eventually(lambda: all_completed(queue, expected), "all to be completed")
    until = time.monotonic()
    worker.stop()
    await working
    watch.check(within, "the last of them to be handled", until=until)
    assert await held(queue, "tenant", "T") == 0
    assert (await queue.stats()).totals.enqueued == expected


@pytest.mark.case("E1")
async def test_claims_cancelled_while_they_wait_lose_nothing(make_queue: MakeQueue) -> None:
    rng = random.Random(2)
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=5)], **QUICK)

    async def consume() -> None:
        await queue.complete_many(await queue.claim(wait=5))

    for n in range(200):
        waiting = asyncio.ensure_future(consume())
        await put(queue, "T", f"m{n}")
        await asyncio.wait([waiting], timeout=rng.uniform(0, 0.02))
        waiting.cancel()
        await asyncio.wait([waiting])
    await worked_off(queue, 200, within=VISIBILITY + RECLAIM + SLACK)


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
    make_queue: MakeQueue, cast: Cast, log: Log, successor: bool
) -> None:
    queue = await make_queue(clock=None, **QUICK)
    await queue.enqueue({"sleep": 60, "once": True}, tenant="T", id="m")
    name = f"{socket.gethostname()}:same"
    first = await cast.actor("worker", worker={"name": name, "concurrency": 1}, **QUICK)
    await eventually(lambda: log.count(STARTED) == 1, "the first worker to start it")
    if not successor:
        await cast.actor("worker", worker={"name": "another"}, **QUICK)
    watch, killed = Stopwatch(), time.monotonic()
    first.kill()
    if successor:
        await cast.actor("worker", worker={"name": name}, **QUICK)
    await eventually(lambda: log.count(ENDED) == 1, "somebody to handle it")
    (start,) = [event for event in log.events(STARTED) if event.pid != first.pid]
    assert start.attempt == 2
    watch.check(VISIBILITY + RECLAIM + SLACK, "the next one to start it", killed, start.at)
    await eventually(lambda: all_completed(queue, 1), "it to be completed")
