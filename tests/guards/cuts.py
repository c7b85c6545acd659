"""A script that is cut: before its k-th server command it ends with an error, and what it wrote before stays.

Unlike a single command that fails, a cut cannot be survived by the script itself: the order of its writes is all there
is. The cut build of a script is the script under a ``redis`` table that counts commands.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from fairqueue._engine.calls import Call
from tests.guards.scenario import Queue

MOST = 300  # commands of one script in these tests; more means that the cuts do not happen

_COUNTING = """
local redis = (function(server)
  local where, done = 'cut:' .. KEYS[1], 0
  local last = tonumber(server.call('GET', where) or nil)
  local function step()
    done = done + 1
    if last and done > last then
      server.call('DEL', where)
      error('cut')
    end
  end
  return setmetatable({
    call = function(...) step() return server.call(...) end,
    pcall = function(...) step() return server.pcall(...) end,
  }, { __index = server })
end)(redis)
"""


@dataclass(slots=True)
class Round:
    """A queue, and the knife for one call of one script on it."""

    queue: Queue
    script: str
    commands: int
    reached: bool = True

    @contextlib.asynccontextmanager
    async def knife(self) -> AsyncIterator[None]:
        """The script's first call in the body ends after this round's number of commands."""
        connection, where = self.queue.engine.connection, "cut:" + self.queue.engine.calls.root
        words, called = connection._words, False

        def cut_once(call: Call[Any]) -> list[Any]:
            nonlocal called
            if call.script.name != self.script or called:
                return words(call)
            called = True
            shebang, _, body = call.script.source.partition("\n")
            return ["EVAL", shebang + _COUNTING + body, 1, self.queue.engine.calls.root, *call.args]

        await self.queue.engine.command("SET", where, self.commands)
        connection._words = cut_once  # type: ignore[method-assign]
        try:
            yield
        finally:
            connection._words = words  # type: ignore[method-assign]
        assert called, f"{self.script} was not called"
        self.reached = await self.queue.engine.command("DEL", where) == 0

    def __str__(self) -> str:
        return f"{self.script} cut after {self.commands} commands"


async def every_cut(queue: Queue, script: str) -> AsyncIterator[Round]:
    """A round for each command the script makes, and a last one in which it runs to its end.

    Whoever takes the round leaves the queue empty and whole for the next one.
    """
    for commands in count():
        assert commands < MOST, f"{script} was never run to its end"
        one = Round(queue, script, commands)
        yield one
        if not one.reached:
            return
