"""The fairness report: reads what claims noted minute by minute, and who waits now. Nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

from fairqueue import inspect
from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import US, join, key
from fairqueue._engine.replies import WaitingNow, text
from fairqueue.clock import from_ms
from fairqueue.entitlement import MINUTE_MS, Account, Usage, Waiting, accounts, together, wait_within
from fairqueue.fairness import jain_index
from fairqueue.fairness_report import FairnessReport, TenantFairness
from fairqueue.validation import duration_ms, expected

__all__ = ["fairness", "starts_a_second", "window_ms"]

KEPT = 64  # minutes, as in includes/service.lua
LONGEST_WINDOW_MS = 60 * MINUTE_MS
_PAGE = 100
_UNIT = 1_000_000  # millionths, as in includes/service.lua

InPool = tuple[str, str]
"""A pool, and a tenant."""


def window_ms(window: object) -> int:
    """A minute to an hour."""
    found = duration_ms("window", window, minimum_ms=MINUTE_MS)
    if found > LONGEST_WINDOW_MS:
        raise expected("window", "at most an hour", window)
    return found


async def fairness(engine: Engine, window: timedelta | float) -> FairnessReport:
    """The whole minutes that the window touches."""
    length = window_ms(window)
    until = (await engine.run(engine.calls.totals())).now
    first, last = (until - length) // MINUTE_MS + 1, until // MINUTE_MS
    minutes = {minute: await _minute(engine, minute) for minute in range(first, last + 1)}
    waiting = await _waiting(engine, {tenant for usages in minutes.values() for _, tenant in usages})
    found = _accounts(minutes, waiting, until)
    served = sum(account.received for account in found.values())
    return FairnessReport(
        since=from_ms(first * MINUTE_MS), until=from_ms(until), served=served,
        jain=jain_index(one.received / one.entitled for one in found.values() if one.entitled > 0),
        tenants=sorted((_tenant(name, account, served) for name, account in found.items()),
                       key=lambda one: (-one.lag, one.tenant)),
    )  # fmt: skip


def _accounts(
    minutes: Mapping[int, Mapping[InPool, Usage]], waiting: Mapping[str, WaitingNow], until: int
) -> dict[str, Account]:
    """Each pool is fair by itself, so what it served is divided by itself."""
    pools = {pool for usages in minutes.values() for pool, _ in usages}
    pools |= {pool for now in waiting.values() for pool in now.pools}
    weights = {tenant: now.weight for tenant, now in waiting.items()}
    return together(
        accounts(
            {minute: _of_pool(usages, pool) for minute, usages in minutes.items()},
            {tenant: Waiting(*now.pools[pool]) for tenant, now in waiting.items() if pool in now.pools},
            until, weights,
        )
        for pool in sorted(pools)
    )  # fmt: skip


def _of_pool(usages: Mapping[InPool, Usage], pool: str) -> dict[str, Usage]:
    return {tenant: usage for (of, tenant), usage in usages.items() if of == pool}


async def _minute(engine: Engine, minute: int) -> dict[InPool, Usage]:
    raw = await engine.read("HGETALL", key(engine.calls.root, "service", str(minute % KEPT)), empty={})
    pairs = raw.items() if isinstance(raw, dict) else zip(raw[::2], raw[1::2], strict=True)
    records = {text(name): text(value) for name, value in pairs}
    if records.pop("", None) != str(minute):
        return {}  # of an hour ago: nothing was served in this one
    usages = {_in_pool(name): _usage(record) for name, record in records.items()}
    return {name: usage for name, usage in usages.items() if usage is not None and all(name)}


def _in_pool(name: str) -> InPool:
    """An empty tenant: damaged."""
    pool, _, tenant = name.partition(US)
    return pool, tenant


async def starts_a_second(engine: Engine, pool: str, tenant: str, now: int, minutes: int) -> float | None:
    """How often messages of the tenant started in the pool in the last minutes, since the first of these in which one did.

    None: none did.
    """
    last, found = now // MINUTE_MS, {}
    for minute in range(last - minutes + 1, last + 1):
        service = key(engine.calls.root, "service", str(minute % KEPT))
        of, record = await engine.read("HMGET", service, "", join(pool, tenant), empty=[None, None])
        usage = _usage(text(record)) if record and of and text(of) == str(minute) else None
        if usage and usage.starts:
            found[minute] = usage.starts
    if not found:
        return None
    return 1000 * sum(found.values()) / max(1, now - min(found) * MINUTE_MS)


def _usage(record: str) -> Usage | None:
    """None: damaged."""
    try:
        charged, kept_out, since, longest, promised, *waits = map(int, json.loads(record))
    except (ValueError, TypeError, OverflowError):
        return None
    buckets = dict(zip(waits[::2], waits[1::2], strict=False))
    return Usage(charged / _UNIT, kept_out == 1, since, longest, buckets, promised / _UNIT)


async def _waiting(engine: Engine, served: set[str]) -> dict[str, WaitingNow]:
    """Of everybody who was served or has messages."""
    names = sorted(served | {tenant async for tenant in inspect.tenants(engine)})
    found: dict[str, WaitingNow] = {}
    for start in range(0, len(names), _PAGE):
        page = names[start : start + _PAGE]
        answers = await engine.run(engine.calls.waiting_now(page))
        found |= dict(zip(page, answers, strict=True))
    return found


def _tenant(name: str, account: Account, served: float) -> TenantFairness:
    def waited(part: float) -> timedelta:
        return timedelta(milliseconds=wait_within(account.waits, part, account.longest_ms))

    return TenantFairness(
        tenant=name, weight=account.weight, entitled=account.entitled, received=account.received,
        entitlement=_part(account.entitled, served), share=_part(account.received, served), lag=account.lag,
        deliveries=sum(account.waits.values()), waiting=account.waiting, wait_p50=waited(0.5), wait_p95=waited(0.95),
        longest_wait=timedelta(milliseconds=account.longest_ms), starved=timedelta(milliseconds=account.starved_ms),
    )  # fmt: skip


def _part(units: float, of: float) -> float:
    return units / of if of else 0.0
