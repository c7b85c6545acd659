"""Reads: counts, states and single messages. Nothing here writes, and nothing scans the keyspace."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import US, key
from fairqueue._engine.replies import Stored, identity, text, texts
from fairqueue._engine.scan import escaped, scan, scan_page
from fairqueue.clock import from_ms
from fairqueue.codec import BodyError
from fairqueue.decoding import decoded, message_of
from fairqueue.errors import ConfigurationError
from fairqueue.message import LeaseInfo, MessageInfo, MessageState
from fairqueue.states import QueueState, QueueStats, TenantState, Totals, WorkerState
from fairqueue.validation import choice, identifier, integer


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
    return TenantState(tenant=tenant, **gauges, blocked=state.blocked, totals=Totals.of(state.counters),
                       oldest_ready_age=_age(state.oldest, totals.now))  # fmt: skip


def _gauges(counters: dict[str, str], present: int) -> dict[str, int]:
    """What is in flight is what is present less what is ready, delayed or dead."""
    ready, delayed, dead = (max(0, int(counters.get(name, 0))) for name in "rdx")
    in_flight = max(0, present - ready - delayed - dead)
    return {"ready": ready, "delayed": delayed, "in_flight": in_flight, "dead": dead}


def _older(one: int, other: int) -> int:
    return min(at for at in (one, other) if at >= 0) if max(one, other) >= 0 else -1


def _age(at_ms: int, now_ms: int) -> timedelta | None:
    return None if at_ms < 0 else timedelta(milliseconds=max(0, now_ms - at_ms))


async def get(engine: Engine, tenant: str, id_: str) -> MessageInfo[Any] | None:
    """One message wherever it is, or None."""
    (found,) = await engine.run(engine.calls.get([(tenant, id_)]))
    return None if found is None else info_of(engine, found)


def info_of(engine: Engine, found: Stored) -> MessageInfo[Any]:
    """A stored message as users see it; one whose payload cannot be decoded says so."""
    header = found.header
    metadata, payload, decodable = readable(engine, found.body)
    return MessageInfo(
        state=MessageState(header.state),
        message=message_of(found.id, header, metadata, payload),
        lease=_lease_of(found),
        due_at=from_ms(found.deadline) if header.state == "delayed" and found.deadline else None,
        position=found.position,
        error=found.note[2] if found.note else None,
        reason=found.note[0] if found.note and header.state == "dead" else None,
        decodable=decodable,
    )


def readable(engine: Engine, body: bytes | None) -> tuple[dict[str, Any], Any, bool]:
    """Metadata, payload, and whether they could be read."""
    try:
        return *decoded(engine.codec, body), True
    except BodyError:
        return {}, None, False


def _lease_of(found: Stored) -> LeaseInfo | None:
    if found.lease is None or found.header.state != "in_flight":
        return None
    token, consumer, claimed_at = found.lease
    return LeaseInfo(
        token=token, consumer=consumer, claimed_at=from_ms(claimed_at), deadline=from_ms(found.deadline or 0)
    )


# --- lists of messages -----------------------------------------------------------------------------------------


async def messages(
    engine: Engine, tenant: str, queue: str | None, state: str | None, limit: int, cursor: str | None
) -> tuple[list[MessageInfo[Any]], str | None]:
    """A page of a tenant's messages: what is ready in the order of its lanes, then in flight, delayed, dead."""
    integer("limit", limit, 1, 10_000)
    stages = [choice("state", state, list(_STAGES))] if state is not None else list(_STAGES)
    stage, inner = _cursor(cursor, stages)
    items: list[MessageInfo[Any]] = []
    while len(items) < limit:
        ids, inner = await _STAGES[stage](engine, tenant, inner, limit - len(items))
        found = await engine.run(engine.calls.get([(tenant, id_) for id_ in ids]))
        items.extend(
            info_of(engine, one)
            for one in found
            if one and one.header.state == stage and queue in (None, one.header.queue)
        )
        if not inner:
            if stage == stages[-1]:
                return items, None
            stage, inner = stages[stages.index(stage) + 1], ""
    return items, json.dumps([stage, inner])


def _cursor(cursor: str | None, stages: list[str]) -> tuple[str, str]:
    if cursor is None:
        return stages[0], ""
    try:
        stage, inner = json.loads(cursor)
        if stage in stages and isinstance(inner, str):
            return stage, inner
    except (ValueError, TypeError):  # no JSON, or not a pair
        pass
    raise ConfigurationError(f"expected cursor to be one that messages() returned, got {cursor!r}")


async def _ready(engine: Engine, tenant: str, inner: str, limit: int) -> tuple[list[str], str]:
    """``inner`` is the place of a lane among the tenant's lanes by name, and the offset within it."""
    lane, _, offset = inner.rpartition("|")
    lanes = sorted(
        counts.name for counts in await engine.run(engine.calls.lanes(tenant)) if counts.name >= lane
    )
    if not lanes:
        return [], ""
    start = int(offset or 0) if lanes[0] == lane else 0
    mids = await engine.command("ZRANGE", key(engine.calls.root, "lane", lanes[0]), start, start + limit - 1)
    ids = [_id(mid) for mid in mids]
    if len(ids) == limit:
        return ids, f"{lanes[0]}|{start + limit}"
    return ids, f"{lanes[1]}|0" if len(lanes) > 1 else ""


async def _in_flight(engine: Engine, tenant: str, inner: str, limit: int) -> tuple[list[str], str]:  # noqa: ARG001
    return await _scanned(engine, "HSCAN", "leases", tenant, inner)


async def _delayed(engine: Engine, tenant: str, inner: str, limit: int) -> tuple[list[str], str]:  # noqa: ARG001
    return await _scanned(engine, "ZSCAN", "delayed", tenant, inner)


async def _scanned(engine: Engine, command: str, kind: str, tenant: str, inner: str) -> tuple[list[str], str]:
    match = escaped(tenant) + US + "*"
    after, mids = await scan_page(engine, command, key(engine.calls.root, kind), inner or "0", match)
    return [_id(mid) for mid in mids], "" if after == "0" else after


async def _dead(engine: Engine, tenant: str, inner: str, limit: int) -> tuple[list[str], str]:
    start = int(inner or 0)
    raw = await engine.command("ZRANGE", key(engine.calls.root, "dead", tenant), start, start + limit - 1)
    return texts(raw), str(start + limit) if len(raw) == limit else ""


_STAGES = {"ready": _ready, "in_flight": _in_flight, "delayed": _delayed, "dead": _dead}


def _id(mid: bytes) -> str:
    return text(mid).partition(US)[2]


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
    infos = await engine.command("HGETALL", key(engine.calls.root, "worker_info"))
    seen = await engine.command("ZRANGE", key(engine.calls.root, "workers"), 0, -1, "WITHSCORES")
    scores = {
        one[0]: one[1] for one in (seen if not seen or isinstance(seen[0], tuple | list) else _paired(seen))
    }
    states = []
    for name, raw in infos.items() if isinstance(infos, dict) else _paired(infos):
        info = json.loads(raw)
        states.append(
            WorkerState(
                name=text(name), host=info["host"], pid=info["pid"], pools=tuple(info["pools"]),
                concurrency=info["concurrency"], running=info["running"], version=info["version"],
                started_at=from_ms(info["started_at"]), seen_at=from_ms(float(scores.get(name, 0))),
            )
        )  # fmt: skip
    return sorted(states, key=lambda state: state.name)


async def dirty_groups(engine: Engine) -> dict[tuple[str, str], str]:
    """Groups that wait for reconcile, by limit and group id: ``dirty`` or, while it is rebuilt, ``closed``."""
    raw = await engine.command("HGETALL", key(engine.calls.root, "dirty"))
    states = raw.items() if isinstance(raw, dict) else _paired(raw)
    return {identity(group): text(state) for group, state in states}


def _paired(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
