"""Reads: counts and states of the namespace, its tenants, queues and workers. Nothing here writes or scans the keyspace."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from fairqueue._engine.engine import FIRST_PATIENCE, Engine
from fairqueue._engine.keys import US, key
from fairqueue._engine.replies import identity, text
from fairqueue._engine.scan import scan
from fairqueue.clock import from_ms
from fairqueue.errors import FairQueueError, QueueUnavailableError
from fairqueue.states import QueueState, QueueStats, TenantState, Totals, WorkerState
from fairqueue.validation import identifier


async def is_there(engine: Engine) -> bool:
    """Whether anybody ever used the namespace. To be asked before connecting, which would begin it.

    Raises:
        QueueUnavailableError: the server cannot be reached.
    """
    settings = key(engine.calls.root, "settings")
    try:
        return bool(await engine.connection.command("EXISTS", settings, patience=FIRST_PATIENCE))
    except QueueUnavailableError:
        raise
    except FairQueueError:  # whoever connects is told what is wrong with the server
        return True


async def stats(engine: Engine) -> QueueStats:
    """The whole namespace. Counters are one call; what is blocked and oldest is summed over pages of tenants."""
    totals = await engine.run(engine.calls.totals())
    blocked, oldest = 0, -1
    for pool in totals.pools:
        cursor = "r0"
        while cursor:
            page = await engine.run(engine.calls.pool_page(pool, cursor))
            cursor, blocked, oldest = page.cursor, blocked + page.blocked, _older(oldest, page.oldest)
    return QueueStats(**_gauges(totals.counters, totals.present), blocked=blocked,
                      oldest_ready_age=_age(oldest, totals.now), totals=Totals.of(totals.counters))  # fmt: skip


async def tenant_state(engine: Engine, tenant: str) -> TenantState:
    """One tenant, in one call whose cost grows with its own lanes alone."""
    state, totals = await engine.run_all([engine.calls.tenant_state(tenant), engine.calls.totals()])
    for answer in (state, totals):
        if isinstance(answer, Exception):
            raise answer
    gauges = _gauges(state.counters, state.present) | {"dead": state.dead}
    return TenantState(tenant=tenant, weight=state.weight, backlog=None if state.backlog < 0 else state.backlog,
                       **gauges, blocked=state.blocked, totals=replace(Totals.of(state.counters), claimed=None),
                       oldest_ready_age=_age(state.oldest, totals.now))  # fmt: skip


def _gauges(counters: dict[str, int], present: int) -> dict[str, int]:
    """What is in flight is what is present less what is ready, delayed or dead."""
    ready, delayed, dead = (max(0, counters.get(name, 0)) for name in "rdx")
    in_flight = max(0, present - ready - delayed - dead)
    return {"ready": ready, "delayed": delayed, "in_flight": in_flight, "dead": dead}


def _older(one: int, other: int) -> int:
    return min(at for at in (one, other) if at >= 0) if max(one, other) >= 0 else -1


def _age(at_ms: int, now_ms: int) -> timedelta | None:
    return None if at_ms < 0 else timedelta(milliseconds=max(0, now_ms - at_ms))


# --- tenants, queues, workers ------------------------------------------------------------------------------------


async def tenants(engine: Engine) -> AsyncIterator[str]:
    """Every tenant with messages, dead ones included."""
    async for raw in scan(engine, "HSCAN", key(engine.calls.root, "present")):
        yield text(raw)


async def queues(engine: Engine, tenant: str) -> list[QueueState]:
    """The tenant's queues with ready messages; the lanes of one queue are added up."""
    identifier("tenant", tenant)
    lanes, totals = await engine.run_all([engine.calls.lanes(tenant), engine.calls.totals()])
    for answer in (lanes, totals):
        if isinstance(answer, Exception):
            raise answer
    found: dict[tuple[str, str], QueueState] = {}
    for lane in lanes:
        _, queue, pool, *_ = lane.name.split(US)
        state = QueueState(tenant=tenant, queue=queue, pool=pool, ready=lane.ready,
                           blocked=lane.ready if lane.parked_at else 0,
                           oldest_ready_age=_age(lane.oldest, totals.now))  # fmt: skip
        found[queue, pool] = _added(found.get((queue, pool)), state)
    return sorted(found.values(), key=lambda state: (state.queue, state.pool))


def _added(one: QueueState | None, other: QueueState) -> QueueState:
    if one is None:
        return other
    ages = [age for age in (one.oldest_ready_age, other.oldest_ready_age) if age is not None]
    return replace(
        one,
        ready=one.ready + other.ready,
        blocked=one.blocked + other.blocked,
        oldest_ready_age=max(ages, default=None),
    )


async def workers(engine: Engine) -> list[WorkerState]:
    """Workers by name; those silent for a minute are forgotten by the others."""
    infos = await engine.read("HGETALL", key(engine.calls.root, "worker_info"), empty={})
    seen = await engine.read("ZRANGE", key(engine.calls.root, "workers"), 0, -1, "WITHSCORES", empty=[])
    scores = {
        one[0]: one[1] for one in (seen if not seen or isinstance(seen[0], tuple | list) else _paired(seen))
    }
    paired = infos.items() if isinstance(infos, dict) else _paired(infos)
    states = [_worker_state(text(name), raw, float(scores.get(name, 0))) for name, raw in paired]
    return sorted((state for state in states if state), key=lambda state: state.name)


def _worker_state(name: str, raw: bytes, seen_ms: float) -> WorkerState | None:
    """None: what is stored is damaged; the worker's next sign of life replaces it."""
    try:
        info = json.loads(raw)
        return WorkerState(
            name=name, host=info["host"], pid=info["pid"], pools=tuple(info["pools"]),
            concurrency=info["concurrency"], running=info["running"], version=info["version"],
            started_at=from_ms(seen_ms - info["up_ms"]), seen_at=from_ms(seen_ms),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


async def dirty_groups(engine: Engine) -> dict[tuple[str, str], str]:
    """Groups that wait for reconcile, by limit and group id: ``dirty`` or, while it is rebuilt, ``closed``."""
    raw = await engine.read("HGETALL", key(engine.calls.root, "dirty"), empty={})
    states = raw.items() if isinstance(raw, dict) else _paired(raw)
    return {identity(group): text(state) for group, state in states}


def _paired(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
