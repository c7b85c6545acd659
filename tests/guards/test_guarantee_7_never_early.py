"""Guarantee 7: a delayed message is not delivered before its time by the server's clock."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from fairqueue import NewMessage, RetryPolicy
from fairqueue._engine.keys import join, key
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import claimed, state

PROMOTE = without(
    "the due time", "includes/promote_due.lua", "'-inf', int(now), 'LIMIT'", "'-inf', '+inf', 'LIMIT'"
).also("includes/promote_due.lua", "tonumber(h.moved_at) > now", "false")
PUT_BACK = without(
    "the delay", "settle.lua", "if delay > 0 then make_delayed", "if delay < 0 then make_delayed"
)


@guard(
    "guarantee 7",
    "a delayed message comes at its time and not before",
    PROMOTE,
    without("the delay", "enqueue.lua", "row.state = row.due > now and 'd' or 'r'", "row.state = 'r'"),
)
async def test_a_delayed_message_is_never_early(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m", delay=60)
    clock.advance(59.999)
    assert await claimed(queue) == []
    clock.advance(0.001)
    assert await claimed(queue) == ["m"]


@guard(
    "guarantee 7",
    "a message for an instant comes then and not before",
    PROMOTE,
    without("the instant", "enqueue.lua", "due = tonumber(due) or now", "due = now"),
)
async def test_a_message_for_an_instant_is_never_early(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(1, tenant="a", id="m", at=clock.now + timedelta(hours=1))])
    clock.advance(3599)
    assert await claimed(queue) == []
    clock.advance(1)
    assert await claimed(queue) == ["m"]


@guard("guarantee 7", "a retry waits for its delay", PROMOTE, PUT_BACK)
async def test_a_retry_is_never_early(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(10))
    await queue.enqueue(1, tenant="a", id="m")
    await queue.fail_many(await queue.claim(), "oops")
    clock.advance(9.999)
    assert await claimed(queue) == []
    clock.advance(0.001)
    assert await claimed(queue) == ["m"]


@guard("guarantee 7", "a message released for later waits for its delay", PROMOTE, PUT_BACK)
async def test_a_delayed_release_is_never_early(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    await queue.release_many(await queue.claim(), delay=10)
    clock.advance(9.999)
    assert await claimed(queue) == []
    clock.advance(0.001)
    assert await claimed(queue) == ["m"]


@guard(
    "guarantee 7",
    "a client whose clock is an hour ahead gets nothing early and takes nothing back",
    without(
        "asking the server for the time",
        "fairqueue._engine.calls.call:Builder._call",
        "self.clock.now_ms() or 0",
        "self.clock.now_ms() or int(__import__('time').time() * 1000)",
    ),
)
async def test_the_clock_of_a_client_changes_nothing(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue(clock=None)
    await queue.enqueue(1, tenant="a", id="running")
    assert await claimed(queue) == ["running"]
    await queue.enqueue(2, tenant="a", id="later", delay=600)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    assert await claimed(queue) == []
    assert (await queue.reclaim()).reclaimed == []
    assert await state(queue, "a", "running") == "in_flight"


@guard(
    "guarantee 7",
    "a due time that was damaged brings no message before its time: the header says when",
    without("asking the header", "includes/promote_due.lua", "tonumber(h.moved_at) > now", "false"),
)
async def test_a_damaged_due_time_brings_nothing_early(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue("m", tenant="a", id="m", delay=60)
    await queue._engine.command("ZADD", key(queue._engine.calls.root, "delayed"), "-inf", join("a", "m"))
    assert await claimed(queue) == []
    clock.advance(60)
    assert await claimed(queue) == ["m"]
