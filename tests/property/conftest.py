"""How long the properties are searched: the same examples every time in CI, new ones on a developer's machine."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fairqueue import FairQueue
from fairqueue.testing import ManualClock

settings.register_profile(
    "property",
    deadline=None,  # an example is dozens of round trips, and the machine may be busy
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("property")

_names = itertools.count(1)


class Stage:
    """A server and an event loop; each example plays in a namespace of its own."""

    def __init__(self, url: str, runner: asyncio.Runner) -> None:
        self._url, self._runner = url, runner

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def awaited() -> Any:
            return await work()

        return self._runner.run(awaited())

    def queue(self, **options: Any) -> FairQueue[Any]:
        """A client in a new namespace, on a clock that stands still unless one is given."""
        name = f"property-{next(_names)}"
        return FairQueue(**({"url": self._url, "name": name, "clock": ManualClock()} | options))

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[FairQueue[Any]]:
        async with self.queue(**options) as queue:
            yield queue


@pytest.fixture
def stage(server: str) -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        yield Stage(server, runner)
