"""A test build of the scripts in which the k-th server command fails.

``redis.call`` raises, ``redis.pcall`` answers the error, exactly once; nothing is rolled back, as on a real server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fairqueue import FairQueue
from fairqueue._engine.calls import Call

ERRORS = ("ERR injected fault", "WRONGTYPE injected fault", "OOM injected fault")

_BUILD = """
local real, at = redis, 0
local function fired() real.call('SET', KEYS[1] .. 'call:fault', '1') end
local redis = setmetatable({
  call = function(...)
    at = at + 1
    if at == %(k)d then fired() error({ err = '%(error)s' }) end
    return real.call(...)
  end,
  pcall = function(...)
    at = at + 1
    if at == %(k)d then fired() return { err = '%(error)s' } end
    return real.pcall(...)
  end,
}, { __index = real })
"""


@dataclass
class Cut:
    """The k-th command of the next call of ``script`` fails."""

    script: str
    k: int
    error: str = ERRORS[0]
    called: bool = False

    async def reached(self, queue: FairQueue[Any]) -> bool:
        """Did the script have so many commands?"""
        return bool(await queue.engine.command("DEL", queue.engine.calls.root + "call:fault"))


def with_fault(source: str, k: int, error: str) -> str:
    """The script's text with the fault built in."""
    shebang, _, body = source.partition("\n")
    return shebang + "\n" + (_BUILD % {"k": k, "error": error}).replace("\n", " ") + body


@contextmanager
def cut(queue: FairQueue[Any], fault: Cut) -> Iterator[Cut]:
    """Within the block the first call of the script is run in its test build."""
    connection = queue.engine.connection
    words = connection._words

    def faulty(call: Call[Any]) -> list[Any]:
        if call.script.name != fault.script or fault.called:
            return words(call)
        fault.called = True
        source = with_fault(call.script.source, fault.k, fault.error)
        return ["EVAL", source, 1, queue.engine.calls.root, *call.args]

    connection._words = faulty  # type: ignore[method-assign]
    try:
        yield fault
    finally:
        connection._words = words  # type: ignore[method-assign]
