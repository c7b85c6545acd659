"""Handlers that end in ways nobody asked for end their message all the same."""

from __future__ import annotations

import asyncio

import pytest

from fairqueue import Limit, Message, RetryPolicy
from tests.conftest import MakeQueue
from tests.support.waiting import eventually
from tests.worker.running import all_done, running


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise self


async def test_an_exception_without_a_text_is_a_failed_attempt(make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=1)], retry=RetryPolicy.none())

    async def handle(message: Message[int]) -> None:
        if message.id == "bad":
            raise UnspeakableError

    await queue.enqueue(1, tenant="t", id="bad")
    await queue.enqueue(1, tenant="t", id="ok")
    async with running(queue, handle):
        await all_done(queue)
    (letter,), _ = await queue.dead_letters.list("t")
    assert letter.message.id == "bad"
    assert letter.error is not None
    assert letter.error.startswith("UnspeakableError")


async def test_a_handler_whose_task_is_cancelled_from_inside_has_failed(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """And says so at each attempt."""
    queue = await make_queue(clock=None, retry=RetryPolicy.fixed(0, max_attempts=3))
    runs: list[int] = []

    async def handle(message: Message[int]) -> None:
        runs.append(message.attempt)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    await queue.enqueue(1, tenant="t", id="m")

    async def is_dead() -> bool:
        return await queue.dead_letters.count("t") == 1

    async with running(queue, handle):
        await eventually(is_dead, "the message to be out of tries")
    assert runs == [1, 2, 3]
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        f"handler failed for message 'm' of tenant 't' (attempt {attempt}): "
        "RuntimeError: the handler's task was cancelled from inside"
        for attempt in runs
    ]
