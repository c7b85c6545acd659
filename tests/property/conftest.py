"""How long the properties are searched: the same examples every time in CI, new ones on a developer's machine.

PROPERTY_TIMES=20 tries twenty times as many, of each test and of the state machine, whatever settings they make for
themselves; they are new ones, in CI too, and no test has a time limit of its own. ``make search`` does that within a budget.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fairqueue import FairQueue
from fairqueue.testing import ManualClock

TIMES = int(os.environ.get("PROPERTY_TIMES", "1"))


def _multiply() -> None:
    """Whoever names a number of examples gets so many times as many: a decorator, a profile, or a test while it runs."""
    plain = settings.__init__

    def init(self: settings, parent: settings | None = None, **named: Any) -> None:
        if isinstance(number := named.get("max_examples"), int):
            named["max_examples"] = number * TIMES
        plain(self, parent, **named)

    settings.__init__ = init  # type: ignore[method-assign]


EXAMPLES = settings.default.max_examples  # of a test that names no number
if TIMES > 1:
    _multiply()

settings.register_profile(
    "property",
    max_examples=EXAMPLES,
    deadline=None,  # an example is dozens of round trips, and the machine may be busy
    derandomize=bool(os.environ.get("CI")) and TIMES == 1,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("property")

_names = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if TIMES > 1 else []:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(0), append=False)  # before the test's own


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
