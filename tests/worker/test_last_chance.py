"""A message that one more crash would make a dead letter runs alone: it cannot take along who merely ran beside it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from fairqueue import FairQueue, Message, NewMessage, RetryPolicy, Worker
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.support.waiting import eventually
from tests.worker.running import all_done, running

TWO = RetryPolicy(max_crashes=2)


async def crashed(queue: FairQueue[Any], clock: ManualClock, *ids: str) -> None:
    """Messages of tenant a whose first delivery ended by expiry."""
    await queue.enqueue_many([NewMessage(id_, tenant="a", id=id_) for id_ in ids])
    assert len(await queue.claim(len(ids))) == len(ids)
    clock.advance(31)
    assert len((await queue.reclaim()).reclaimed) == len(ids)


async def test_nothing_runs_beside_a_message_on_its_last_chance(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=TWO)
    await crashed(queue, clock, "bad1", "bad2")
    await queue.enqueue_many([NewMessage("good", tenant=tenant) for tenant in "bcd" for _ in range(5)])
    at_once, seen = [0], []

    async def handle(message: Message[str]) -> None:
        at_once[0] += 1
        seen.append((message.payload, at_once[0]))
        for _ in range(3):
            await asyncio.sleep(0)
            if message.payload.startswith("bad"):
                assert at_once[0] == 1
        at_once[0] -= 1

    async with running(queue, handle, concurrency=10):
        await all_done(queue)
    assert [at for name, at in seen if name.startswith("bad")] == [1, 1]
    assert max(at for _, at in seen) > 1, "the others run side by side"


async def test_it_waits_for_the_others_and_nothing_new_is_claimed_meanwhile(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=TWO)
    await crashed(queue, clock, "bad")
    started: list[str] = []
    go_on = asyncio.Event()

    async def handle(message: Message[str]) -> None:
        started.append(message.payload)
        if message.payload == "long":
            await go_on.wait()

    await queue.enqueue("long", tenant="b")
    async with running(queue, handle, concurrency=10):
        await eventually(lambda: started == ["long"], "the long one to start")
        await eventually(lambda: in_flight(queue, 2), "the other one to be claimed")
        await queue.enqueue("new", tenant="c")
        await queue._engine.command("PING")
        assert started == ["long"]
        go_on.set()
        await all_done(queue)
    assert started == ["long", "bad", "new"]


async def in_flight(queue: FairQueue[Any], count: int) -> bool:
    return (await queue.stats()).in_flight == count


async def test_one_that_waits_when_the_worker_stops_is_released_uncounted(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=TWO)
    await crashed(queue, clock, "bad")
    await queue.enqueue("long", tenant="b")
    started: list[str] = []
    go_on = asyncio.Event()

    async def handle(message: Message[str]) -> None:
        started.append(message.payload)
        await go_on.wait()

    worker: Worker[str] = Worker(queue, handle, concurrency=10)
    task = asyncio.create_task(worker.run(signals=False))
    await eventually(lambda: started == ["long"], "the long one to start")
    await eventually(lambda: in_flight(queue, 2), "the other one to be claimed")
    worker.stop()
    await eventually(lambda: in_flight(queue, 1), "the one that waits to be given back")
    go_on.set()
    await task
    assert started == ["long"]
    found = await queue.get("a", "bad")
    assert found is not None
    assert (found.state, found.message.attempt, found.message.crashes) == ("ready", 1, 1)

    task = asyncio.create_task(worker.run(signals=False))
    await all_done(queue)
    worker.stop()
    await task
    assert started == ["long", "bad"], "the same worker runs it when it is started again"


async def test_a_worker_of_one_gives_no_message_special_treatment(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=TWO)
    await crashed(queue, clock, "bad1", "bad2", "bad3")
    order: list[str] = []
    async with running(queue, lambda message: order.append(message.payload), concurrency=1):
        await all_done(queue)
    assert order == ["bad1", "bad2", "bad3"]


async def test_one_that_hangs_keeps_the_others_waiting_for_a_visibility_timeout_at_most(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=TWO, visibility_timeout=1.5)
    await crashed(queue, clock, "hangs")
    await queue.enqueue_many([NewMessage("good", tenant=tenant) for tenant in "bcd" for _ in range(5)])
    go_on, good = asyncio.Event(), []

    async def handle(message: Message[str]) -> None:
        if message.payload == "hangs":
            await go_on.wait()
        else:
            good.append(message.tenant)

    async with running(queue, handle, concurrency=10):
        await eventually(lambda: len(good) == 15, "the others to be handled beside it")
        go_on.set()
        await all_done(queue)


async def test_it_runs_beside_others_that_do_not_end_in_time(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=TWO, visibility_timeout=2)
    await crashed(queue, clock, "bad")
    await queue.enqueue("long", tenant="b")
    go_on, started = asyncio.Event(), []

    async def handle(message: Message[str]) -> None:
        started.append(message.payload)
        if message.payload == "long":
            await go_on.wait()

    async with running(queue, handle, concurrency=10):
        await eventually(lambda: started == ["long", "bad"], "it to run beside the long one")
        await queue.enqueue("new", tenant="c")
        await eventually(lambda: started == ["long", "bad", "new"], "the worker to claim again")
        go_on.set()
        await all_done(queue)


async def test_a_worker_that_left_one_in_a_thread_claims_again_when_it_is_run_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=TWO)
    await crashed(queue, clock, "hangs")
    go_on, handled = threading.Event(), []

    def handle(message: Message[str]) -> None:
        handled.append(message.payload)
        if message.payload == "hangs":
            go_on.wait(60)

    worker: Worker[str] = Worker(queue, handle, concurrency=10, grace=0)
    task = asyncio.create_task(worker.run(signals=False))
    await eventually(lambda: handled == ["hangs"], "the one on its last chance to start")
    worker.stop()
    await task
    await queue.enqueue("other", tenant="b")
    task = asyncio.create_task(worker.run(signals=False))
    await eventually(lambda: handled == ["hangs", "other"], "the worker to claim again")
    go_on.set()
    worker.stop()
    await task
