"""The bell: every ring wakes a waiter at once, whatever the listener is doing."""

from __future__ import annotations

import asyncio
from typing import Any

from fairqueue._engine.bell import Bell
from fairqueue._engine.keys import key
from tests.conftest import MakeQueue
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually

POOL = "default"
SOON = 0.5  # far above a round trip, far below the seconds of a blocking pop


async def _nothing(_: Any) -> None:
    """Nobody rings for this bell but the test."""


async def test_one_listener_serves_ring_after_ring(make_queue: MakeQueue) -> None:
    engine = (await make_queue())._engine
    connections = 0

    async def connect(seconds: float) -> Any:
        nonlocal connections
        connections += 1
        return await engine.connection.dedicated(seconds)

    bell = Bell(engine.calls.root, [POOL], connect, _nothing, lambda _: None)
    for _ in range(20):
        waiting = asyncio.ensure_future(bell.wait(600))
        await asyncio.sleep(0)
        await engine.command("RPUSH", key(engine.calls.root, "bell", POOL), "1")
        await asyncio.wait_for(waiting, 60)
    assert connections == 1
    watch = Stopwatch()
    await bell.close()  # at this moment the listener is sending
    watch.check(SOON, "the listener to end")


async def test_who_waits_while_the_listener_goes_home_is_heard(make_queue: MakeQueue) -> None:
    engine = (await make_queue())._engine
    going, gone = asyncio.Event(), asyncio.Event()

    async def connect(seconds: float) -> Any:
        client = await engine.connection.dedicated(seconds)
        close = client.aclose

        async def slow() -> None:
            going.set()
            await gone.wait()
            await close()

        client.aclose = slow  # type: ignore[method-assign]
        return client

    bell = Bell(engine.calls.root, [POOL], connect, _nothing, lambda _: None)
    await bell.wait(0.001)  # nobody waits any more: the listener gives up after two quiet seconds
    await eventually(going.is_set, "the listener to close its connection")
    waiting = asyncio.ensure_future(bell.wait(600))
    await asyncio.sleep(0)
    await engine.command("RPUSH", key(engine.calls.root, "bell", POOL), "1")
    gone.set()
    await asyncio.wait_for(waiting, 60)
    await bell.close()


async def test_a_listener_that_is_cancelled_while_it_goes_home_leaves_no_connection(
    make_queue: MakeQueue,
) -> None:
    engine = (await make_queue())._engine
    going = asyncio.Event()
    clients: list[Any] = []  # or what nobody holds is closed by chance

    async def connect(seconds: float) -> Any:
        client = await engine.connection.dedicated(seconds)
        close = client.aclose

        async def not_begun() -> None:
            client.aclose = close  # type: ignore[method-assign]
            going.set()
            await asyncio.Event().wait()

        client.aclose = not_begun  # type: ignore[method-assign]
        clients.append(client)
        return client

    async def hung_up() -> bool:
        return "cmd=blpop" not in str(await engine.command("CLIENT", "LIST"))

    bell = Bell(engine.calls.root, [POOL], connect, _nothing, lambda _: None)
    await bell.wait(0.001)
    await eventually(going.is_set, "the listener to close its connection")
    assert not await hung_up()
    await bell.close()
    await eventually(hung_up, "the connection to be closed")
    assert len(clients) == 1
