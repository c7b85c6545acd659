"""Waiting for work without polling: one blocking pop a set of pools, shared by everybody who waits here.

The pop is never cancelled while somebody may have rung: a token that was taken and is not followed by a claim is
given back, so a wake-up is not lost. Due times are the waiters' own timers; the pop times out on a coarse tick.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from .keys import key

if TYPE_CHECKING:
    from redis.asyncio import Redis

_log = logging.getLogger("fairqueue")

# A wake-up taken by a process that froze is made up for by the waiters' own looks, not by this. What is popped this
# seldom costs an idle client next to nothing, and a dead connection is still left within ten seconds.
BLOCK_SECONDS = 4
_READ_TIMEOUT = BLOCK_SECONDS + 3.0


class Bell:
    """The bell of some pools.

    Args:
        connect: opens the dedicated connection.
        give_back: rings again (a token was taken by us and nobody here will claim).
        lost: told when the connection breaks; an idle client notices an outage here first.
    """

    def __init__(
        self,
        root: str,
        pools: Sequence[str],
        connect: Callable[[float], Awaitable[Redis]],
        give_back: Callable[[Sequence[str]], Awaitable[object]],
        lost: Callable[[Exception], None],
    ) -> None:
        self._keys = [key(root, "bell", pool) for pool in pools]
        self._pools = pools
        self._connect, self._give_back, self._lost = connect, give_back, lost
        self._waiters: list[asyncio.Future[None]] = []
        self._listener: asyncio.Task[None] | None = None
        self._client: Redis | None = None  # the listener's, until it is closed

    async def wait(self, seconds: float) -> None:
        """Returns when the bell rang for this waiter or the time has passed, whichever is first."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._listener is None or self._listener.done():
            self._listener = asyncio.ensure_future(self._listen())
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif asyncio.current_task() and asyncio.current_task().cancelling():  # type: ignore[union-attr]
                await self._hand_on()  # rung for us, and we will not claim

    async def _hand_on(self) -> None:
        if not self._ring():
            await self._return_token()

    async def _return_token(self) -> None:
        with contextlib.suppress(Exception):  # costs the others at most a second
            await self._give_back(self._pools)

    def _ring(self) -> bool:
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False

    async def _listen(self) -> None:
        try:
            self._client = await self._connect(_READ_TIMEOUT)
            try:
                await self._ring_on(self._client)
            finally:
                await self._hang_up()
        except Exception as error:  # noqa: BLE001 - whatever redis-py raises on a lost connection
            self._lost(error)
            # The waiters' own timers go on, and their claims meet and survive the same trouble.
            _log.debug("the bell's connection was lost: %s", error)
            await asyncio.sleep(0.2)
        # Who came while the connection was being closed took this listener for a live one.
        if self._waiters:
            self._listener = asyncio.ensure_future(self._listen())

    async def _ring_on(self, client: Redis) -> None:
        wanted = True
        while wanted:
            popped = await self._pop(client)
            if popped and not self._ring():
                await self._return_token()
                return  # or this listener would take and return the token as fast as the server answers
            # goes on for a moment after the last waiter: the next claim will probably wait again
            wanted = popped or bool(self._waiters)

    async def _hang_up(self) -> None:
        """Closes the connection, or what a cancelled close has left open of it."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _pop(self, client: Redis) -> bool:
        popped = await client.blpop(self._keys, timeout=BLOCK_SECONDS)
        return popped is not None

    async def close(self) -> None:
        """Stops listening; a token the server may have given us meanwhile is given back."""
        listener, self._listener = self._listener, None
        if listener is None or listener.done():
            return
        while not listener.done():
            listener.cancel()  # again, since wait_for of Python 3.11, used in sending, may swallow it
            await asyncio.wait([listener], timeout=0.1)
        if not listener.cancelled():
            listener.exception()  # seen; there is nothing left to do about it
        with contextlib.suppress(Exception):
            await self._hang_up()  # on a busy machine the second cancel may have met it at this
        with contextlib.suppress(Exception):
            await self._give_back(self._pools)
