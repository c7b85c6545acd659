"""All that a fault has left, as one text: two that are the same go on in the same way."""

from __future__ import annotations

import re

from tests.faults.scenes import Scene
from tests.support.dump import stored

_AT_RANDOM = re.compile(r"[0-9a-f]{16}(?=[a-z])|(?<=\d\.)[0-9a-f]{8}\b|(?<='revision', b')\d+")
"""Sessions, the ends of tokens, and when settings were declared, by the server's clock."""


async def left_by(scene: Scene) -> str:
    """All that is stored and all that the client knows; what is made at random is called by the order it comes in."""
    queue, engine = scene.queue, scene.queue._engine
    found = await stored(queue)
    held = [(one.token, one.deadline, one.lost.is_set(), one._held.settlement) for one in scene.leases]
    streams = [engine.claim_streams, engine.settle_streams, engine.enqueue_streams]
    known = [sorted(named) for named in (scene.accepted, scene.maybe, scene.ended)]
    everything = (
        sorted(found, key=lambda key: _AT_RANDOM.sub("", repr(key))),
        held,
        streams,
        known,
        scene.twice,
        scene.clock.now_ms(),
        bool(queue._consumer._tasks),
    )
    called: dict[str, str] = {}
    return _AT_RANDOM.sub(lambda found: called.setdefault(found[0], f"<{len(called)}>"), repr(everything))
