"""Ending messages on the server, as an operator: one wherever it is, or all that wait of a tenant."""

from __future__ import annotations

from typing import cast

from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import US, key
from fairqueue._engine.replies import text
from fairqueue.states import Cancelled
from fairqueue.validation import identifier

__all__ = ["cancel", "purge"]

_LAST = 2**45  # no message has a higher number


async def cancel(engine: Engine, tenant: str, id_: str) -> Cancelled:
    """One message, in one step of the server."""
    named = identifier("tenant", tenant), identifier("id", id_)
    return cast("Cancelled", await engine.run_replayable(engine.calls.cancel, *named))


async def purge(engine: Engine, tenant: str, queue: str | None) -> int:
    """How many of those that wait now. Walked over again until a walk finds none: what runs moves others about."""
    identifier("tenant", tenant)
    of_queue = "" if queue is None else identifier("queue", queue)
    newest, purged = await _newest(engine), 0
    while found := await _purge_once(engine, tenant, of_queue, newest):
        purged += found
    return purged


async def _newest(engine: Engine) -> int:
    """The number of the message that was accepted last; where the counter is damaged, beyond all there are."""
    stored = text(await engine.command("HGET", key(engine.calls.root, "counters"), "seq") or b"")
    return int(stored) if stored.isdecimal() else _LAST


async def _purge_once(engine: Engine, tenant: str, queue: str, newest: int) -> int:
    """What is delayed first: it may become ready meanwhile, and is met there."""
    purged = await _purge_place(engine, tenant, queue, "", newest)
    for lane in await engine.run(engine.calls.lanes(tenant)):
        if queue in ("", lane.name.split(US)[1]):
            purged += await _purge_place(engine, tenant, queue, lane.name, newest)
    return purged


async def _purge_place(engine: Engine, tenant: str, queue: str, lane: str, newest: int) -> int:
    cursor, more, purged = "0", True, 0
    while more:
        step = engine.run_replayable(engine.calls.purge, tenant, queue, lane, cursor, newest)
        cursor, more, found = await step
        purged += found
    return purged
