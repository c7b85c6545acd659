"""Connections that carry nothing any more, and connections that break: noticed in bounded time, never for good."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairqueue import FairQueue
from fairqueue._engine import driver
from tests.conftest import MakeQueue
from tests.support.proxy import Proxy, delay
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually

BOUND = 10.0  # seconds within which a silently dead connection is left for a new one


async def busy(queue: FairQueue[Any], connections: int, proxy: Proxy) -> None:
    """Opens that many pooled connections, all idle afterwards."""
    proxy.next("totals", delay(0.05), times=connections)
    await asyncio.gather(*(queue.stats() for _ in range(connections)))
    assert proxy.connections >= connections


@pytest.mark.parametrize("connections", [1, 6])
async def test_a_call_on_a_silently_dead_connection_takes_a_new_one(
    make_queue: MakeQueue, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    """However many dead ones the pool has: they died together, and one by one each would cost a timeout."""
    timeout = 1.5
    monkeypatch.setitem(driver.open_redis.__kwdefaults__, "socket_timeout", timeout)
    queue = await make_queue(url=proxy.url)
    await busy(queue, connections, proxy)
    proxy.silence()
    watch = Stopwatch()
    assert (await queue.enqueue(1, tenant="a")).created
    assert [lease.message.payload for lease in await queue.claim()] == [1]
    await asyncio.gather(*(queue.stats() for _ in range(connections)))
    assert watch.seconds >= timeout
    watch.check(2 * timeout, "one timeout to be enough for all of them")


async def test_a_waiting_claim_on_silently_dead_connections_is_served(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    other = await make_queue()
    claiming = asyncio.ensure_future(queue.claim(1, wait=30))
    await eventually(lambda: proxy.count("BLPOP") > 0, "the claim to wait")
    proxy.silence()
    watch = Stopwatch()
    await other.enqueue(1, tenant="a")
    (lease,) = await claiming
    watch.check(BOUND, "the claim to be served")
    assert await lease.complete() == "done"


async def test_a_waiting_claim_survives_broken_connections(make_queue: MakeQueue, proxy: Proxy) -> None:
    queue = await make_queue(url=proxy.url)
    other = await make_queue()
    for n in range(5):
        claiming = asyncio.ensure_future(queue.claim(1, wait=30))
        await eventually(lambda: proxy.connections > 0, "the claim to connect")
        proxy.cut()
        await other.enqueue(n, tenant="a")
        watch = Stopwatch()
        (lease,) = await claiming
        watch.check(3, "the claim to be served")
        assert lease.message.payload == n
        await lease.complete()


async def test_an_idle_client_finds_a_server_that_was_away(make_queue: MakeQueue, proxy: Proxy) -> None:
    queue = await make_queue(url=proxy.url)
    claiming = asyncio.ensure_future(queue.claim(1, wait=30))
    await eventually(lambda: proxy.count("BLPOP") > 0, "the claim to wait")
    proxy.refuse()
    await eventually(lambda: queue._engine.connection.lost_at is not None, "the loss to be noticed")
    other = await make_queue()
    await other.enqueue(1, tenant="a")
    proxy.refuse(False)
    watch = Stopwatch()
    (lease,) = await claiming
    watch.check(3, "the claim to be served")
    assert await lease.complete() == "done"


async def test_keep_alive_goes_through_broken_connections(make_queue: MakeQueue, proxy: Proxy) -> None:
    queue = await make_queue(url=proxy.url, clock=None, visibility_timeout=3)
    await queue.enqueue(1, tenant="a")
    (lease,) = await queue.claim()
    async with lease.keep_alive():
        for _ in range(3):
            seen = proxy.count("extend")
            proxy.cut()
            await eventually(lambda seen=seen: proxy.count("extend") > seen, "another extend")  # type: ignore[misc]
        assert (await (await make_queue(clock=None)).reclaim()).reclaimed == []
    assert await lease.complete() == "done"
