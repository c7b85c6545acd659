"""Reclaim: every expired lease goes back to its queue, or, out of tries, to the dead letters, its slots freed."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairqueue._engine.engine import Engine

CHUNK = 100


@dataclass(frozen=True, slots=True)
class ReclaimReport:
    """What one pass did; each message is (tenant, id). One that was cancelled while it ran ends, and is in neither list."""

    reclaimed: list[tuple[str, str]] = field(default_factory=list)
    dead: list[tuple[str, str]] = field(default_factory=list)


async def reclaim(engine: Engine, patience: float | None = None, hold_ms: int = 0) -> ReclaimReport:
    """One pass over all leases that have expired by now.

    With ``patience`` 0 it does not ride through an outage: what has expired meanwhile is not to be judged at once,
    nor, for ``hold_ms`` after the server was first seen to serve again, what was claimed before.
    """
    report = ReclaimReport()
    while True:
        looked, reclaimed, dead = await engine.run_replayable(
            engine.calls.reclaim, CHUNK, hold_ms, patience=patience
        )
        report.reclaimed.extend(reclaimed)
        report.dead.extend(dead)
        if looked < CHUNK:
            return report
