"""All that a fault has left, as one text: two that are the same go on in the same way."""

from __future__ import annotations

import re

from fairqueue._engine.scan import escaped, scan
from tests.faults.scenes import Scene

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


_AT_RANDOM = re.compile(r"[0-9a-f]{16}(?=[a-z])|(?<=\d\.)[0-9a-f]{8}\b|(?<='revision', b')\d+")
"""Sessions, the ends of tokens, and when settings were declared, by the server's clock."""


async def left_by(scene: Scene) -> str:
    """All that is stored and all that the client knows; what is made at random is called by the order it comes in."""
    queue, engine = scene.queue, scene.queue._engine
    names = [name async for name in scan(engine, "SCAN", None, escaped(engine.calls.root) + "*")]
    stored = []
    for name, kind, value in await engine.command("EVAL", _ALL_THERE_IS, 0, *names):
        pairs = zip(value[::2], value[1::2], strict=True) if kind == b"hash" else value
        stored.append((name, kind, sorted(pairs) if kind in (b"hash", b"set") else value))
    held = [(one.token, one.deadline, one.lost.is_set(), one._held.settlement) for one in scene.leases]
    streams = [engine.claim_streams, engine.settle_streams, engine.enqueue_streams]
    known = [sorted(named) for named in (scene.accepted, scene.maybe, scene.ended)]
    everything = (
        sorted(stored, key=lambda key: _AT_RANDOM.sub("", repr(key))),
        held,
        streams,
        known,
        scene.twice,
        scene.clock.now_ms(),
        bool(queue._consumer._tasks),
    )
    called: dict[str, str] = {}
    return _AT_RANDOM.sub(lambda found: called.setdefault(found[0], f"<{len(called)}>"), repr(everything))
