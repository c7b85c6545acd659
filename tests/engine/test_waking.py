"""Timely: whatever makes a message claimable wakes an idle claimer; none of these would do by looking now and then.

The second after which an idle claimer looks by itself is put off for these tests, so only a wake-up can end the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, Limit, RetryPolicy, consuming
from fairqueue._engine.keys import join
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import faults
from tests.conftest import MakeQueue
from tests.engine.tools import names, one, put, raw
from tests.support.waiting import eventually

FOREVER = 60.0
ORG = {"metadata": {"org": "x"}}


@pytest.fixture(autouse=True)
def no_idle_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "IDLE_LOOK", FOREVER)


async def idle(
    queue: FairQueue[Any], claimers: int = 1, **options: Any
) -> list[asyncio.Task[list[Lease[Any]]]]:
    """Claimers that have looked, found nothing, and wait for the bell."""

    async def waits() -> list[Lease[Any]]:
        return await queue.claim(wait=FOREVER, **options)

    tasks = [asyncio.ensure_future(waits()) for _ in range(claimers)]
    bell = queue._engine.bell(tuple(options.get("pools", ("default",))))
    await eventually(lambda: len(bell._waiters) == claimers, "the claimers to wait for the bell")

    async def blocked() -> bool:
        return (await queue._engine.command("INFO", "clients"))["blocked_clients"] >= 1

    await eventually(blocked, "the bell's connection to block on the server")
    return tasks


async def woken(tasks: list[asyncio.Task[list[Lease[Any]]]]) -> list[str]:
    done, pending = await asyncio.wait(tasks, timeout=60)
    assert not pending, "nobody woke the claimer"
    return [name for task in tasks if task in done for name in names(task.result())]


async def live(make_queue: MakeQueue, **options: Any) -> FairQueue[Any]:
    return await make_queue(clock=None, visibility_timeout=0.3, **options)


async def test_an_enqueue(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    tasks = await idle(queue)
    await put(await make_queue(clock=None), "a", "m")
    assert await woken(tasks) == ["a/m"]


async def test_an_enqueue_in_one_of_several_pools(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    tasks = await idle(queue, pools=("fast", "slow"))
    await put(queue, "a", "m", pool="slow")
    assert await woken(tasks) == ["a/m"]


async def test_a_due_time_that_was_known(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    await put(queue, "a", "m", delay=0.3)
    assert names(await queue.claim(wait=FOREVER)) == ["a/m"]


async def test_a_message_due_before_all_others(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    await put(queue, "a", "later", delay=3600)
    tasks = await idle(queue)
    await put(queue, "a", "sooner", delay=timedelta(seconds=0.3))
    assert await woken(tasks) == ["a/sooner"]


async def test_a_retry_due_before_all_others(make_queue: MakeQueue) -> None:
    queue = await live(make_queue, retry=RetryPolicy.fixed(0.3))
    await put(queue, "a", "m")
    lease = await one(queue)
    tasks = await idle(queue)
    await lease.fail("no")
    assert await woken(tasks) == ["a/m"]


async def full(make_queue: MakeQueue, limit: int = 1) -> tuple[FairQueue[Any], Lease[Any]]:
    """org x is full, m of tenant a waits at it."""
    queue = await live(
        make_queue, limits=[Limit("org", default=limit, key="org")], retry=RetryPolicy.fixed(60)
    )
    await put(queue, "holder", "h", **ORG)
    lease = await one(queue, visibility_timeout=FOREVER)
    await put(queue, "a", "m", **ORG)
    assert await queue.claim() == []
    return queue, lease


Freeing = Callable[[FairQueue[Any], Lease[Any]], Awaitable[object]]
FREEING: dict[str, Freeing] = {
    "complete": lambda _, lease: lease.complete(),
    "fail": lambda _, lease: lease.fail("no"),
    "dead_letter": lambda _, lease: lease.dead_letter("enough"),
    "release for later": lambda _, lease: lease.release(60),
    "a raised limit": lambda queue, _: queue.limits.set("org", "x", 2),
    "no limit": lambda queue, _: queue.limits.set("org", "x", None),
}


@pytest.mark.parametrize("how", FREEING)
async def test_a_freed_slot(make_queue: MakeQueue, how: str) -> None:
    queue, lease = await full(make_queue)
    tasks = await idle(queue)
    await FREEING[how](queue, lease)
    assert await woken(tasks) == ["a/m"]


async def test_a_limit_that_is_reset(make_queue: MakeQueue) -> None:
    queue = await live(make_queue, limits=[Limit("org", default=1, key="org")])
    await queue.limits.set("org", "x", 0)
    await put(queue, "a", "m", **ORG)
    tasks = await idle(queue)
    await queue.limits.reset("org", "x")
    assert await woken(tasks) == ["a/m"]


async def test_a_raised_default_of_another_client(make_queue: MakeQueue) -> None:
    queue, _ = await full(make_queue)
    tasks = await idle(queue)
    await make_queue(clock=None, limits=[Limit("org", default=2, key="org")])
    assert await woken(tasks) == ["a/m"]


async def test_a_release(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    await put(queue, "a", "m")
    lease = await one(queue)
    tasks = await idle(queue)
    await lease.release()
    assert await woken(tasks) == ["a/m"]


async def test_a_reclaim(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    await put(queue, "a", "m")
    await one(queue)
    tasks = await idle(queue)

    async def reclaimed() -> bool:
        return (await queue.reclaim()).reclaimed != []

    await eventually(reclaimed, "the lease to expire")
    assert await woken(tasks) == ["a/m"]


async def test_a_redrive(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    await put(queue, "a", "m")
    await (await one(queue)).dead_letter("enough")
    tasks = await idle(queue)
    await queue.dead_letters.redrive("a", "m")
    assert await woken(tasks) == ["a/m"]


async def test_a_healed_leak(make_queue: MakeQueue) -> None:
    queue = await live(make_queue, limits=[Limit("org", default=1, key="org")])
    await faults.leak_slot(queue, "org", "x", "ghost")
    await put(queue, "a", "m", **ORG)
    tasks = await idle(queue)
    await queue.reconcile()
    assert await woken(tasks) == ["a/m"]


async def test_a_promotion(make_queue: MakeQueue) -> None:
    """Somebody's maintenance moves what is due; the claimer had not known of it."""
    queue = await live(make_queue)
    tasks = await idle(queue)
    await raw(queue, "SET", "bell", "default", args=["away"])  # the enqueue cannot ring
    await put(queue, "a", "m", delay=0.001)
    await raw(queue, "DEL", "bell", "default")

    async def promoted() -> bool:
        return await promote(queue._engine) > 0

    await eventually(promoted, "the message to be due")
    assert await woken(tasks) == ["a/m"]


async def test_a_mended_lane(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    tasks = await idle(queue)
    await put(queue, "a", "m")
    assert await woken(tasks) == ["a/m"]
    await put(queue, "b", "n")
    await raw(queue, "DEL", "ring", join("p", "default"))
    tasks = await idle(queue)
    await queue.audit(fix=True)
    assert await woken(tasks) == ["b/n"]


async def test_one_bell_wakes_as_many_as_there_is_work_for(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    tasks = await idle(queue, claimers=4)
    await put(queue, "a", "m1", "m2", "m3", "m4")
    assert sorted(await woken(tasks)) == ["a/m1", "a/m2", "a/m3", "a/m4"]


async def test_claimers_of_several_clients_are_woken_one_after_another(make_queue: MakeQueue) -> None:
    queues = [await live(make_queue) for _ in range(3)]
    tasks = [task for queue in queues for task in await idle(queue)]
    await put(queues[0], "a", "m1", "m2", "m3")
    assert sorted(await woken(tasks)) == ["a/m1", "a/m2", "a/m3"]


async def test_a_cancelled_claimer_hands_its_wake_up_on(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    first, second = await idle(queue, claimers=2)
    first.cancel()
    await put(queue, "a", "m")
    assert await woken([second]) == ["a/m"]


async def test_a_wait_ends_when_its_time_is_over(make_queue: MakeQueue) -> None:
    queue = await live(make_queue)
    assert await queue.claim(wait=0.1) == []
