"""M: limits that are changed while the work runs."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, Message, NewMessage, Worker
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, names, put
from tests.faults.cases.actors import Cast
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually

# --- M1 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("M1")
async def test_limit_0_stops_a_tenant_and_nobody_else(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=5)])
    await queue.limits.set("tenant", "T", 0)
    for tenant in "TU":
        await put(queue, tenant, *"abcde")
    assert names(await queue.claim(10)) == [f"U/{id}" for id in "abcde"]
    for _ in range(50):
        clock.advance(0.1)
        assert await queue.claim(10) == []
    waiting = asyncio.ensure_future(queue.claim(10, wait=10))
    await asyncio.sleep(0)
    watch = Stopwatch()
    await queue.limits.set("tenant", "T", 2)
    assert names(await waiting) == ["T/a", "T/b"]
    watch.check(1, "the change to be followed")


@pytest.mark.case("M1")
async def test_none_is_unlimited_and_reset_is_the_default(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await put(queue, "T", *"abcdefgh")
    await queue.limits.set("tenant", "T", None)
    assert (await queue.limits.get("tenant", "T")).limit is None
    assert len(await claimed(queue, 5)) == 5
    await queue.limits.set("tenant", "T", 0)
    assert (await queue.limits.get("tenant", "T")).limit == 0
    await queue.limits.reset("tenant", "T")
    assert (await queue.limits.get("tenant", "T")).limit == 2
    assert await queue.claim(5) == []


@pytest.mark.case("M1")
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 1.5, "5", "", True, [5]])
async def test_what_is_no_limit_is_refused(make_queue: MakeQueue, value: Any) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    with pytest.raises(ValueError, match="expected limit to be an integer from 0"):
        await queue.limits.set("tenant", "T", value)
    with pytest.raises(ValueError, match="expected the default of limit 'tenant' to be an integer"):
        Limit("tenant", default=value)
    assert (await queue.limits.get("tenant", "T")).limit == 2


# --- M2 ----------------------------------------------------------------------------------------------------------


class Running:
    """A worker whose handlers run until they are let go, one by one."""

    def __init__(self, queue: FairQueue[Any]) -> None:
        self.started: list[str] = []
        self.ended: Counter[str] = Counter()
        self._go_on: dict[str, asyncio.Event] = {}
        self._worker = Worker(queue, self._handle)
        self._task = asyncio.ensure_future(self._worker.run(signals=False))

    async def _handle(self, message: Message[Any]) -> None:
        self.started.append(message.id)
        self._go_on[message.id] = asyncio.Event()
        await self._go_on[message.id].wait()
        self.ended[message.id] += 1

    async def end(self, *ids: str) -> None:
        for id_ in ids:
            self._go_on[id_].set()
        await eventually(lambda: all(self.ended[id_] for id_ in ids), f"{ids} to end")

    async def stop(self) -> None:
        for go_on in self._go_on.values():
            go_on.set()
        self._worker.stop()
        await self._task


@pytest.mark.case("M2")
@pytest.mark.parametrize("by", ["pause", "limit 0"])
async def test_what_is_stopped_before_it_started_does_not_start(make_queue: MakeQueue, by: str) -> None:
    """A worker claims only what it can start at once, so there is no list of claimed messages that would run all the same."""
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=3)])
    await put(queue, "T", *(f"m{n}" for n in range(10)))
    running = Running(queue)
    await eventually(lambda: running.started == ["m0", "m1", "m2"], "as many as the limit to start")
    if by == "pause":
        await queue.pause(tenant="T", by="ops")
    else:
        await queue.limits.set("tenant", "T", 0)
    await running.end("m0", "m1", "m2")
    await put(queue, "U", "other")
    await eventually(lambda: "other" in running.started, "another tenant's message to start")
    await eventually(lambda: nothing_held(queue), "the slots to be free")
    assert running.started == ["m0", "m1", "m2", "other"]
    waiting, _ = await queue.messages("T")
    assert [(one.message.id, one.state.value, one.message.attempt) for one in waiting] == [
        (f"m{n}", "ready", 0) for n in range(3, 10)
    ]
    await (queue.resume(tenant="T") if by == "pause" else queue.limits.reset("tenant", "T"))
    for n in range(3, 10):
        await eventually(lambda n=n: f"m{n}" in running.started, f"m{n} to start")  # type: ignore[misc]
        await running.end(f"m{n}")
    await running.end("other")
    await running.stop()
    assert sorted(running.started) == sorted([*(f"m{n}" for n in range(10)), "other"])
    assert running.ended == Counter(running.started)


@pytest.mark.case("M2")
async def test_what_was_enqueued_before_the_pause_and_the_worker_waits(make_queue: MakeQueue) -> None:
    """As reported: ten messages, a limit of ten, and no worker yet."""
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=10)])
    order = [f"m{n}" for n in range(10)]
    await put(queue, "T", *order)
    await queue.pause(tenant="T")
    running = Running(queue)
    await put(queue, "U", "other")
    await eventually(lambda: "other" in running.started, "another tenant's message to start")
    assert running.started == ["other"]
    assert await nothing_held(queue)
    waiting, _ = await queue.messages("T")
    assert [(one.message.id, one.message.attempt) for one in waiting] == [(id_, 0) for id_ in order]
    await queue.resume(tenant="T")
    await eventually(lambda: running.started == ["other", *order], "all to start in their order")
    await running.stop()
    assert running.ended == Counter(running.started)


async def nothing_held(queue: FairQueue[Any]) -> bool:
    return await holds(queue, 0)


# --- M3 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("M3")
async def test_a_limit_raised_and_lowered_by_another_process_is_followed_at_once(
    make_queue: MakeQueue, cast: Cast
) -> None:
    queue = await make_queue(clock=None, limits=[Limit("tenant", default=1)])
    await queue.enqueue_many([NewMessage(n, tenant="T", id=f"m{n}") for n in range(11)])
    other = await cast.actor()
    running = Running(queue)
    await eventually(lambda: running.started == ["m0"], "the first to start")
    watch = Stopwatch()
    await other.ask("set_limit", group="tenant", id="T", limit=5)
    await eventually(lambda: len(running.started) == 5, "four more to start")
    watch.check(1, "the change to be followed")
    assert not running.ended, "no completion was needed"

    await other.ask("set_limit", group="tenant", id="T", limit=2)
    state = await queue.limits.get("tenant", "T")
    assert (state.limit, state.held, state.free) == (2, 5, 0)
    for n in range(3):
        await running.end(f"m{n}")
        await eventually(lambda n=n: holds(queue, 4 - n), "its slot to be free")  # type: ignore[misc]
        assert len(running.started) == 5
    await running.end("m3")
    await eventually(lambda: len(running.started) == 6, "the next to start by itself")
    for n in range(4, 11):
        await eventually(lambda n=n: f"m{n}" in running.started, f"m{n} to start")  # type: ignore[misc]
        await running.end(f"m{n}")
    await running.stop()
    assert running.started == [f"m{n}" for n in range(11)]
    assert running.ended == Counter(running.started)
    assert (await queue.stats()).totals.reclaimed == 0


async def holds(queue: FairQueue[Any], expected: int) -> bool:
    return await held(queue, "tenant", "T") == expected
