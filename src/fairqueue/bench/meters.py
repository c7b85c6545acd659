"""What is read off while the work runs: the time of a server's scripts, seconds, and what server it is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from fairqueue._engine.engine import Engine


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


async def server_of(engine: Engine) -> str:
    """The server's kind and version, for example ``valkey 9.1.2``."""
    info: dict[str, Any] = await engine.command("INFO", "server")
    kind = "valkey" if "valkey_version" in info else "redis"
    return f"{kind} {info.get(f'{kind}_version', '?')}"
