"""A queue that was closed stays closed until its program opens it again."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fairqueue import FairQueue, Message, NewMessage, QueueClosedError, Worker
from tests.conftest import MakeQueue
from tests.support.proxy import Proxy, delay
from tests.support.waiting import eventually


def every_use(queue: FairQueue[Any]) -> dict[str, Callable[[], Any]]:
    async def all_of(items: Any) -> list[Any]:
        return [item async for item in items]

    return {
        "enqueue": lambda: queue.enqueue(1, tenant="a"),
        "enqueue_many": lambda: queue.enqueue_many([NewMessage(1, tenant="a")]),
        "claim": queue.claim,
        "claim that waits": lambda: queue.claim(wait=60),
        "stats": queue.stats,
        "get": lambda: queue.get("a", "m"),
        "messages": lambda: queue.messages("a"),
        "queues": lambda: all_of(queue.queues("a")),
        "workers": lambda: all_of(queue.workers()),
        "limits.set": lambda: queue.limits.set("tenant", "a", 1),
        "limits.list": lambda: all_of(queue.limits.list("tenant")),
        "tenants.get": lambda: queue.tenants.get("a"),
        "tenants.list": lambda: all_of(queue.tenants.list()),
        "dead_letters.count": lambda: queue.dead_letters.count("a"),
        "dead_letters.redrive_all": lambda: queue.dead_letters.redrive_all("a"),
        "dead_letters.tenants": lambda: all_of(queue.dead_letters.tenants()),
        "reclaim": queue.reclaim,
        "reconcile": queue.reconcile,
        "audit": queue.audit,
    }


async def test_every_use_after_close_says_so_and_connects_to_nothing(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    await queue.close()
    await queue.close()
    await eventually(lambda: proxy.connections == 0, "all connections to be closed")
    asked = len(proxy.requests)
    lease_uses = {
        "extend": lease.extend,
        "complete": lease.complete,
        "many": lambda: queue.fail_many([lease]),
    }
    for use in (every_use(queue) | lease_uses).values():
        with pytest.raises(QueueClosedError, match="the queue is closed"):
            await use()
    assert (proxy.connections, len(proxy.requests)) == (0, asked)


async def test_connect_opens_it_again_and_leases_go_on(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a")
    (lease,) = await queue.claim()
    await queue.close()
    with pytest.raises(QueueClosedError):
        await lease.complete()
    await queue.connect()
    assert await lease.complete() == "done"


async def test_entered_twice_it_works_twice(server: str, namespace: str) -> None:
    queue: FairQueue[Any] = FairQueue(server, namespace)
    for n in range(2):
        async with queue:
            assert (await queue.enqueue(n, tenant="a", id=f"m{n}")).created
    with pytest.raises(QueueClosedError):
        await queue.stats()
    async with queue:
        assert len(await queue.claim(2)) == 2


async def test_closed_before_its_first_use(server: str) -> None:
    queue: FairQueue[Any] = FairQueue(server)
    await queue.close()
    with pytest.raises(QueueClosedError):
        await queue.stats()


async def test_a_private_server_is_not_started_anew_behind_the_programs_back() -> None:
    queue: FairQueue[Any] = FairQueue("embedded://")
    async with queue:
        await queue.enqueue(1, tenant="a")
    with pytest.raises(QueueClosedError):
        await queue.claim()
    async with queue:
        assert (await queue.stats()).ready == 0, "a private server is another one each time"


async def test_a_claim_that_waits_while_it_is_closed_ends(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    waiting = asyncio.ensure_future(queue.claim(wait=60))
    await eventually(lambda: queue._engine._bells, "the claim to wait")
    await queue.close()
    with pytest.raises(QueueClosedError):
        await asyncio.wait_for(waiting, 60)


async def test_calls_under_way_at_close_are_done_and_leave_nothing_behind(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    proxy.next("enqueue", delay(0.2), times=3)
    calls = [asyncio.ensure_future(queue.enqueue(n, tenant="a", id=f"m{n}")) for n in range(3)]
    await eventually(lambda: proxy.count("enqueue") == 3, "the calls to be under way")
    await queue.close()
    assert [sent.created for sent in await asyncio.gather(*calls)] == [True] * 3
    await eventually(lambda: proxy.connections == 0, "all connections to be closed")


async def nothing(message: Message[Any]) -> None:
    """A handler."""


async def test_a_worker_whose_queue_is_closed_ends_with_that_error(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue()
    task = asyncio.ensure_future(Worker(queue, nothing).run(signals=False))
    await eventually(lambda: queue._engine._bells, "the worker to wait for work")
    with caplog.at_level(logging.ERROR):
        await queue.close()
        with pytest.raises(QueueClosedError):
            await asyncio.wait_for(task, 60)
    assert caplog.records == []


async def test_a_worker_opens_the_queue_that_its_last_run_closed(
    make_queue: MakeQueue, server: str, namespace: str
) -> None:
    queue = await make_queue(clock=None)
    done = threading.Semaphore(0)

    async def handle(message: Message[Any]) -> None:
        done.release()

    worker: Worker[Any] = Worker(FairQueue(server, namespace), handle)
    for n in range(2):
        await queue.enqueue(n, tenant="a")
        thread = threading.Thread(target=worker.run_sync)
        thread.start()
        assert await asyncio.to_thread(done.acquire, timeout=60)
        worker.stop()
        await asyncio.to_thread(thread.join, 20)
    assert (await queue.stats()).totals.completed == 2
