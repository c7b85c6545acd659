"""What is read off while the work runs: a client's round trips, the time of a server's scripts, percentiles."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fairqueue._engine.engine import Engine

T = TypeVar("T")


class RoundTrips:
    """Counts what a client sends and waits for; calls that go together count once.

    The blocking wait of an idle worker has a connection of its own and is not counted.
    """

    def __init__(self, engine: Engine) -> None:
        self.count = 0
        send = engine.connection.protected

        async def counted(once: Callable[[], Awaitable[T]], patience: float | None = None) -> T:
            self.count += 1
            return await send(once, patience)

        engine.connection.protected = counted  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class ScriptTime:
    """All script calls of a server since it started: how many, and the microseconds they took."""

    calls: int
    microseconds: int

    @classmethod
    async def read(cls, engine: Engine) -> ScriptTime:
        """As it is now. Two readings are subtracted rather than the statistics reset: those may be somebody's."""
        row = (await engine.command("INFO", "commandstats")).get("cmdstat_evalsha") or {}
        return cls(int(row.get("calls", 0)), int(row.get("usec", 0)))

    def since(self, earlier: ScriptTime) -> ScriptTime:
        """What was added after the earlier reading."""
        return ScriptTime(self.calls - earlier.calls, self.microseconds - earlier.microseconds)


class Stopwatch:
    """Seconds on the wall and of this process's processor time, from when it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        """On the wall; never zero, so that it can be divided by."""
        return max(time.perf_counter() - self._wall, 1e-9)

    @property
    def cpu_seconds(self) -> float:
        """Of this process, all its threads."""
        return time.process_time() - self._cpu


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed.

    >>> percentile([3, 1, 2, 4], 0.5)
    2
    """
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered), -int(-len(ordered) * share // 1)) - 1)]


async def server_of(engine: Engine) -> str:
    """The server's kind and version, for example ``valkey 9.1.2``."""
    info: dict[str, Any] = await engine.command("INFO", "server")
    kind = "valkey" if "valkey_version" in info else "redis"
    return f"{kind} {info.get(f'{kind}_version', '?')}"
