"""The blocking client behind the names of the asyncio one, so that a test is written once for both.

Each call runs in a thread, as those of a program without an event loop would.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fairqueue import FairQueue, Lease, SyncFairQueue, SyncLease
from fairqueue.dead_letters import DeadLetters
from fairqueue.limits_control import LimitsControl
from fairqueue.sync_controls import SyncDeadLetters, SyncLimitsControl, SyncTenants
from fairqueue.tenants import Tenants

_TWINS: dict[type[Any], type[Any]] = {
    SyncFairQueue: FairQueue,
    SyncLease: Lease,
    SyncLimitsControl: LimitsControl,
    SyncTenants: Tenants,
    SyncDeadLetters: DeadLetters,
}


class Awaited:
    """``Awaited(sync_queue).claim(...)`` is to be awaited, and gives awaited leases."""

    def __init__(self, bare: Any) -> None:
        self._bare = bare

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._bare, name)
        if not callable(found):
            return _wrapped(found)
        twin = getattr(_TWINS[type(self._bare)], name)
        if inspect.isasyncgenfunction(twin):
            return lambda *args: _iterated(lambda: found(*args))
        if name == "keep_alive":
            return lambda: _entered(found())

        async def call(*args: Any, **options: Any) -> Any:
            bare = [_bare(each) for each in args]
            return _wrapped(await asyncio.to_thread(found, *bare, **options))

        return call


def _wrapped(value: Any) -> Any:
    if isinstance(value, list):
        return [_wrapped(each) for each in value]
    return Awaited(value) if type(value) in _TWINS else value


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return value._bare if isinstance(value, Awaited) else value


async def _iterated(begin: Callable[[], Any]) -> AsyncIterator[Any]:
    for item in await asyncio.to_thread(lambda: list(begin())):
        yield item


@asynccontextmanager
async def _entered(manager: Any) -> AsyncIterator[Any]:
    lease = await asyncio.to_thread(manager.__enter__)
    try:
        yield _wrapped(lease)
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)
