"""Which shared groups a tenant with a guarantee uses: found by a walk over all messages, of what came before it was noted."""

from __future__ import annotations

from .engine import Engine

_BEGINS = ""


async def find_uses(engine: Engine, tenant: str, *, first: bool = False) -> None:
    """Looks at every message, in bounded steps. ``first``: the tenant is to get its first guarantee."""
    cursor = _BEGINS if first else "0"
    while True:
        cursor = await engine.run(engine.calls.find_uses(tenant, cursor))
        if cursor == "0":
            return
