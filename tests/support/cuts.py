"""A test build of the scripts in which the k-th server command fails; nothing is rolled back, as on a real server.

Either it alone fails (``redis.call`` raises, ``redis.pcall`` answers the error), which a script may survive; or the
script is cut there: that command and all after it raise, so the order of its writes is all there is::

    with cut(queue, Cut("settle", 3)) as fault:              # the third command of the next settle fails
        ...
    assert await fault.reached(queue)

    async for one in every_cut(queue, "settle"):             # cut before each command in turn, then run to its end
        async with one.knife():
            ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from fairqueue import FairQueue
from fairqueue._engine.calls import Call

ERRORS = ("ERR injected fault", "WRONGTYPE injected fault", "OOM injected fault")
MOST = 300  # commands of one script in these tests; more means that the cuts do not happen

_BUILD = """
local redis = (function(server)
  local done = 0
  local function fails()
    done = done + 1
    if done == %(k)d then server.call('SET', KEYS[1] .. 'call:fault', '1') end
    return done == %(k)d or (%(ends)s and done > %(k)d)
  end
  return setmetatable({
    call = function(...)
      if fails() then error({ err = '%(error)s' }) end
      return server.call(...)
    end,
    pcall = function(...)
      if fails() then
        if %(ends)s then error({ err = '%(error)s' }) end
        return { err = '%(error)s' }
      end
      return server.pcall(...)
    end,
  }, { __index = server })
end)(redis)
"""


@dataclass
class Cut:
    """The k-th command of the next call of ``script`` fails; with ``ends`` so does every one after it."""

    script: str
    k: int
    error: str = ERRORS[0]
    ends: bool = False
    called: bool = False

    async def reached(self, queue: FairQueue[Any]) -> bool:
        """Did the script have so many commands?"""
        return bool(await queue._engine.command("DEL", queue._engine.calls.root + "call:fault"))

    def build(self, source: str) -> str:
        """The script's text with the fault built in; lines keep their numbers."""
        shebang, _, body = source.partition("\n")
        shebang = shebang.replace("no-writes,", "")  # it writes down that the command was reached
        values = {"k": self.k, "error": self.error, "ends": "true" if self.ends else "false"}
        # The script is a function of its own there: Lua allows 200 locals in one, and the longest scripts have them all.
        fault = (_BUILD % values).replace("\n", " ")
        return f"{shebang}\n{fault} return (function() {body}\nend)()"


@contextmanager
def cut(queue: FairQueue[Any], fault: Cut) -> Iterator[Cut]:
    """Within the block the first call of the script is run in its test build."""
    connection = queue._engine.connection
    words = connection._words

    def faulty(call: Call[Any]) -> list[Any]:
        if call.script.name != fault.script or fault.called:
            return words(call)
        fault.called = True
        return ["EVAL", fault.build(call.script.source), 1, queue._engine.calls.root, *call.sending()]

    connection._words = faulty  # type: ignore[method-assign]
    try:
        yield fault
    finally:
        connection._words = words  # type: ignore[method-assign]


@dataclass(slots=True)
class Round:
    """A queue, and the knife for one call of one script on it."""

    queue: FairQueue[Any]
    script: str
    commands: int
    reached: bool = True

    @asynccontextmanager
    async def knife(self) -> AsyncIterator[None]:
        """The script's first call in the body ends after this round's number of commands."""
        with cut(self.queue, Cut(self.script, self.commands + 1, ends=True)) as fault:
            yield
        assert fault.called, f"{self.script} was not called"
        self.reached = await fault.reached(self.queue)

    def __str__(self) -> str:
        return f"{self.script} cut after {self.commands} commands"


async def every_cut(queue: FairQueue[Any], script: str) -> AsyncIterator[Round]:
    """A round for each command the script makes, and a last one in which it runs to its end.

    Whoever takes the round leaves the queue empty and whole for the next one.
    """
    for commands in count():
        assert commands < MOST, f"{script} was never run to its end"
        one = Round(queue, script, commands)
        yield one
        if not one.reached:
            assert commands > 0, f"{script} was never cut"
            return
