"""A worker whose claims the server refuses is there when the cause is mended."""

from __future__ import annotations

import pytest

from fairqueue import Message
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
        where = key(queue._engine.calls.root, "leases")
        await queue._engine.command("SET", where, "not what it was")
        await eventually(lambda: "refused a claim" in caplog.text, "a claim to be refused")
        await queue._engine.command("DEL", where)
        await queue.enqueue(2, tenant="a")
        await eventually(lambda: ran == [1, 2], "a message to run once the key is mended")
