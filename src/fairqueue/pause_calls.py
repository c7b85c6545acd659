"""Pausing and resuming on the server: what is paused starts nothing new, from the next claim on, until it is resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairqueue._engine.calls import SELECTORS, Selectors
from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import RS, US, key
from fairqueue._engine.replies import text
from fairqueue.clock import from_ms
from fairqueue.errors import ConfigurationError
from fairqueue.states import Pause
from fairqueue.validation import expected, identifier

Given = tuple[str | None, str | None, str | None]
"""Tenant, queue and pool; None: any."""


async def pause(engine: Engine, given: Given, by: object, reason: object) -> bool:
    """Whether the pause is new; one that stands gets the new ``by`` and ``reason``."""
    selectors, words = _selected(given), (_words("by", by), _words("reason", reason))
    return await engine.run_replayable(engine.calls.pause, selectors, *words)


async def resume(engine: Engine, given: Given) -> bool:
    """Whether the pause stood. Who waits at it is let go in bounded steps, also what an earlier resume left."""
    selectors = _selected(given)
    stood, more = await engine.run_replayable(engine.calls.resume, selectors)
    while more:
        _, more = await engine.run_replayable(engine.calls.resume, selectors)
    return stood


async def pauses(engine: Engine) -> AsyncIterator[Pause]:
    """Every pause, in the order in which they began to stand."""
    stored = await engine.command("HGETALL", key(engine.calls.root, "pauses"))
    named = stored if isinstance(stored, dict) else dict(zip(stored[::2], stored[1::2], strict=True))
    found = [
        pause_of(text(name), text(value)) for name, value in named.items() if name.count(RS.encode()) == 2
    ]
    for one in sorted(found, key=lambda pause: pause.since or from_ms(0)):
        yield one


def pause_of(name: str, value: str) -> Pause:
    """A pause as it is stored."""
    tenant, queue, pool = (selector or None for selector in name.split(RS))
    since, by, reason = (*value.split(US, 2), "", "")[:3]
    at = from_ms(int(since)) if since.isdecimal() and len(since) <= 14 else None
    return Pause(tenant=tenant, queue=queue, pool=pool, by=by or None, reason=reason or None, since=at)


def _selected(given: Given) -> Selectors:
    if all(one is None for one in given):
        raise ConfigurationError(
            "expected a tenant, a queue, a pool, or several of them to pause or resume, got none"
        )
    tenant, queue, pool = (
        "" if one is None else identifier(name, one) for name, one in zip(SELECTORS, given, strict=True)
    )
    return tenant, queue, pool


def _words(option: str, value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise expected(option, "a text or None", value)
    return value or ""
