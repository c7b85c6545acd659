"""Bounded backlogs: more than so many messages of a tenant do not wait, and a refusal stores nothing of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairqueue import BacklogFullError, ConfigurationError, FairQueue, NewMessage, QueueFullError, RetryPolicy
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, one, put, raw, state


async def refused(queue: FairQueue[Any], *messages: NewMessage[Any]) -> BacklogFullError:
    with pytest.raises(BacklogFullError) as caught:
        await queue.enqueue_many(messages)
    return caught.value


def new(tenant: str, *ids: str, **options: Any) -> list[NewMessage[Any]]:
    return [NewMessage(id_, tenant=tenant, id=id_, **options) for id_ in ids]


async def test_what_is_ready_and_delayed_counts_and_what_runs_does_not(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.limits.set_backlog("a", 2)
    await put(queue, "a", "runs")
    await one(queue)
    await put(queue, "a", "ready")
    await put(queue, "a", "delayed", delay=60)
    error = await refused(queue, *new("a", "more"))
    assert (error.tenant, error.depth, error.limit, error.stored) == ("a", 2, 2, ())
    assert str(error) == "expected at most 2 messages of tenant 'a' to wait, 2 do: 1 more was refused"
    assert isinstance(error, QueueFullError)
    assert await state(queue, "a", "more") is None
    assert await claimed(queue) == ["ready"]
    await put(queue, "a", "more")


async def test_of_a_batch_all_of_a_tenant_or_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.limits.set_backlog("a", 3)
    await put(queue, "a", "a1", "a2")
    error = await refused(queue, *new("a", "a1", "a3", "a4", "a3"), *new("b", "b1"))
    assert (error.tenant, error.depth, error.limit, error.stored) == ("a", 2, 3, ("a1", "b1"))
    assert (await queue.stats("a")).ready == 2
    assert await state(queue, "b", "b1") == "ready"
    await put(queue, "a", "a1", "a3")


async def test_a_large_batch_goes_in_calls_and_nothing_follows_a_refusal(make_queue: MakeQueue) -> None:
    """The third call would have room for its few, but they are later than those that were refused."""
    queue = await make_queue()
    await queue.limits.set_backlog("a", 700)
    ids = [f"m{n:04}" for n in range(1010)]
    error = await refused(queue, *new("a", *ids), *new("b", "b1"))
    assert error.stored == (*ids[:500], "b1")
    assert (await queue.stats("a")).ready == 500


async def test_what_comes_back_is_never_refused(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(5))
    await put(queue, "a", "m0", "m1", "m2")
    failed, dead, released = await queue.claim(3)
    await queue.limits.set_backlog("a", 0)
    await refused(queue, *new("a", "more"))
    await failed.fail("no")
    await dead.dead_letter("no")
    await released.release()
    await queue.dead_letters.redrive("a", "m1")
    clock.advance(5)
    assert sorted(await claimed(queue)) == ["m0", "m1", "m2"]


async def test_it_is_shown_and_removed(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    assert (await queue.tenants.get("a")).backlog is None
    await queue.limits.set_backlog("a", 0)
    assert (await queue.tenants.get("a")).backlog == 0
    await queue.limits.set_backlog("a", None)
    assert (await queue.tenants.get("a")).backlog is None
    await put(queue, "a", "m")


async def test_two_clients_together_never_exceed_it(make_queue: MakeQueue) -> None:
    queues = [await make_queue() for _ in range(2)]
    await queues[0].limits.set_backlog("a", 5)

    async def produce(queue: FairQueue[Any], name: str) -> int:
        stored = 0
        for n in range(6):
            try:
                await put(queue, "a", f"{name}{n}")
                stored += 1
            except BacklogFullError:
                pass
        return stored

    assert sum(await asyncio.gather(produce(queues[0], "x"), produce(queues[1], "y"))) == 5
    assert (await queues[0].stats("a")).ready == 5


async def test_a_damaged_bound_is_named_and_bounds_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await raw(queue, "HSET", "backlogs", args=("a", "many"))
    await put(queue, "a", "m")
    assert [(one.check, one.subject) for one in (await queue.audit(fix=True)).findings] == [
        ("CLEAN", "backlogs/a")
    ]
    assert (await queue.audit()).ok


@pytest.mark.parametrize("limit", [-1, 1.5, "10", True])
async def test_what_is_no_number_is_refused(make_queue: MakeQueue, limit: Any) -> None:
    queue = await make_queue()
    with pytest.raises(ConfigurationError):
        await queue.limits.set_backlog("a", limit)
