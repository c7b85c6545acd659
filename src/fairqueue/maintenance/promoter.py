"""Promote: messages whose time has come go to their lanes, and who waited for a token of a rate is woken.

Claims do the same on their way; this serves idle queues.
"""

from __future__ import annotations

from fairqueue._engine.engine import Engine

CHUNK = 200


async def promote(engine: Engine) -> int:
    """One pass; how many due messages were looked at."""
    promoted = 0
    while True:
        looked = await engine.run(engine.calls.promote(CHUNK))
        promoted += looked
        if looked < CHUNK:
            return promoted
