"""All that is stored of a namespace."""

from __future__ import annotations

from typing import Any

from fairqueue import FairQueue
from fairqueue._engine.scan import escaped, scan

_ALL_THERE_IS = """
local found = {}
for i, name in ipairs(ARGV) do
  local type = redis.call('TYPE', name).ok
  local value
  if type == 'hash' then value = redis.call('HGETALL', name)
  elseif type == 'zset' then value = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
  elseif type == 'set' then value = redis.call('SMEMBERS', name)
  elseif type == 'list' then value = redis.call('LRANGE', name, 0, -1)
  else value = { redis.call('GET', name) } end
  found[i] = { name, type, value }
end
return found
"""


async def stored(queue: FairQueue[Any]) -> list[tuple[bytes, bytes, list[Any]]]:
    """Each key, its type and what it holds: of a hash the sorted pairs, of a sorted set members and scores in turn."""
    engine = queue._engine
    names = [name async for name in scan(engine, "SCAN", None, escaped(engine.calls.root) + "*")]
    found = []
    for name, kind, value in await engine.command("EVAL", _ALL_THERE_IS, 0, *names):
        pairs = zip(value[::2], value[1::2], strict=True) if kind == b"hash" else value
        found.append((name, kind, sorted(pairs) if kind in (b"hash", b"set") else value))
    return found
