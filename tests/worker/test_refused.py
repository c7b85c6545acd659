"""A worker whose claims the server refuses is there when the cause is mended."""

from __future__ import annotations

import asyncio

import pytest

from fairqueue import Message, NewMessage
from fairqueue._engine.keys import key
from tests.conftest import MakeQueue
from tests.support.waiting import eventually
from tests.worker.running import all_done, running


async def test_a_broken_key_does_not_end_the_worker(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(clock=None)
    ran: list[int] = []

    async def handle(message: Message[int]) -> None:
        ran.append(message.payload)

    async with running(queue, handle):
        await queue.enqueue(1, tenant="a")
        await eventually(lambda: ran == [1], "the first message to run")
        await all_done(queue)
        where = key(
            queue._engine.calls.root, "body"
        )  # what it should hold nobody can write again: each claim looks
        await queue._engine.command("SET", where, "not what it was")
        await eventually(lambda: "refused a claim" in caplog.text, "a claim to be refused")
        await queue._engine.command("DEL", where)
        await queue.enqueue(2, tenant="a")
        await eventually(lambda: ran == [1, 2], "a message to run once the key is mended")


async def test_a_broken_key_does_not_cut_the_grace_short(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(clock=None)
    may_end = {"first": asyncio.Event(), "second": asyncio.Event()}
    ran: list[str] = []

    async def handle(message: Message[str]) -> None:
        try:
            await may_end[message.payload].wait()
        except asyncio.CancelledError:
            ran.append(f"{message.payload} cancelled")
            raise
        ran.append(message.payload)

    async with running(queue, handle, concurrency=2) as worker:
        await queue.enqueue_many([NewMessage(name, tenant="a") for name in may_end])
        await eventually(lambda: len(worker._deliveries.running) == 2, "both to run")
        where = key(queue._engine.calls.root, "body")
        aside = f"{where}-aside"
        await queue._engine.command("RENAME", where, aside)
        await queue._engine.command("SET", where, "not what it was")
        worker.stop()
        may_end["first"].set()
        await eventually(lambda: "refused a claim or settle" in caplog.text, "a settle to be refused")
        await queue._engine.command("RENAME", aside, where)
        may_end["second"].set()
    assert ran == ["first", "second"]
    stats = await queue.stats()
    assert (stats.totals.completed, stats.in_flight, stats.ready) == (2, 0, 0)
