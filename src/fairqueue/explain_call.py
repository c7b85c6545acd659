"""Why a message is not running: asked of the server in one call, told as an ``Explanation``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from fairqueue import inspect
from fairqueue._engine.engine import Engine
from fairqueue._engine.explained import Explained, Slot, StopRow
from fairqueue._engine.keys import US, key
from fairqueue._engine.replies import Header
from fairqueue.clock import from_ms
from fairqueue.errors import MessageNotFoundError
from fairqueue.explanation import Explanation, Holder, Stop
from fairqueue.fairness_call import starts_a_second
from fairqueue.lookup import expires_at
from fairqueue.message import LeaseInfo, MessageState
from fairqueue.pause_calls import pause_of
from fairqueue.states import RateState, WorkerState
from fairqueue.validation import shown

_REPAIRS: Final = {
    "closed": "is being counted anew (reconcile ends that)",
    "unreadable": "cannot be counted: its key is broken (a claim or reconcile mends it)",
    "lane": "the messages of its queue cannot be read: the key of its lane is broken (the doctor names it)",
    "place": "it does not stand where its header says (doctor --fix mends it)",
    "turn": "its queue takes no turns (reconcile mends it)",
    "rates": "rates cannot be read, and nothing starts: their key is broken (delete it, and set them again)",
    "pauses": "pauses cannot be read, and nothing starts: their key is broken (delete it, and pause again)",
}
_PASSING: Final = frozenset({"limit", "rate"})  # what ends by itself, while work goes on
_RECENT_MINUTES: Final = 5
_SILENCE = timedelta(minutes=1)  # after which a worker is taken for gone


async def explain(engine: Engine, tenant: str, id_: str) -> Explanation:
    """Why the message is where it is.

    Raises:
        MessageNotFoundError: there is no such message: it is gone (done, cancelled, purged or dropped), or was never enqueued.
    """
    found = await engine.run(engine.calls.explain(tenant, id_))
    if found is None:
        raise MessageNotFoundError(
            f"there is no message {shown(id_)} of tenant {shown(tenant)}: "
            "it is gone (done, cancelled, purged or dropped), or was never enqueued"
        )
    waits = found.header.state in {"ready", "delayed"}
    workers = await inspect.workers(engine) if waits else []
    told = _explanation(id_, found, sum(_claims(worker, found) for worker in workers))
    if told.position is None or not told.workers or any(stop.kind not in _PASSING for stop in told.stops):
        return told
    rate = await starts_a_second(engine, found.header.pool, tenant, found.now, _RECENT_MINUTES)
    if not rate:
        return told
    turns = told.position * await _lanes(engine, found.header) + (told.lanes_ahead or 0) + 1
    return replace(told, estimate=timedelta(seconds=turns / rate))


async def _lanes(engine: Engine, header: Header) -> int:
    """How many lanes of the tenant take turns in the pool, or wait at a limit: each message before it is a round of these."""
    root, tenant, pool = engine.calls.root, header.tenant, header.pool
    in_turn = await engine.read("ZCARD", key(root, "ring", "t", pool, tenant), empty=0)
    return max(1, int(in_turn + await engine.read("HLEN", key(root, "parked", pool, tenant), empty=0)))


def _claims(worker: WorkerState, found: Explained) -> bool:
    return found.header.pool in worker.pools and from_ms(found.now) - worker.seen_at <= _SILENCE


def _explanation(id_: str, found: Explained, workers: int) -> Explanation:
    header, state = found.header, MessageState(found.header.state)
    waits: dict[str, Any] = {}
    if state is MessageState.READY:
        waits = {
            "position": _known(found.place),
            "lanes_ahead": _known(found.lanes_before),
            "tenants_ahead": _known(found.tenants_before),
            "ahead": found.names,
        }
    return Explanation(
        tenant=header.tenant,
        id=id_,
        queue=header.queue,
        pool=header.pool,
        priority=header.priority,
        state=state,
        now=from_ms(found.now),
        since=_since(found),
        stops=tuple(_stops(found)),
        workers=workers,
        expires_at=expires_at(header),
        lease=_lease(found) if state is MessageState.IN_FLIGHT else None,
        cancelling=bool(header.marked) and state is MessageState.IN_FLIGHT,
        attempt=header.attempt,
        max_attempts=found.max_attempts,
        crashes=header.crashes,
        error=found.note[2] if found.note else None,
        error_at=from_ms(found.note[1]) if found.note else None,
        reason=found.note[0] if found.note and state is MessageState.DEAD else None,
        **waits,
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _since(found: Explained) -> datetime | None:
    """The header of a delayed message says until when, not since when."""
    if found.header.state != "delayed":
        return from_ms(found.header.moved_at)
    if found.via == "e":
        return from_ms(found.header.enqueued_at)
    return from_ms(found.note[1]) if found.via == "f" and found.note else None


def _lease(found: Explained) -> LeaseInfo | None:
    if found.lease is None or found.due is None:
        return None
    token, consumer, claimed_at = found.lease
    return LeaseInfo(
        token=token, consumer=consumer, claimed_at=from_ms(claimed_at), deadline=from_ms(found.due)
    )


# --- what stops it -----------------------------------------------------------------------------------------------


def _stops(found: Explained) -> Iterator[Stop]:
    if found.header.state == "delayed":
        due = found.header.moved_at if found.due is None else found.due
        if due > found.now:
            yield Stop(kind="delayed", until=from_ms(due))
    ends = expires_at(found.header)
    if ends and ends <= from_ms(found.now):
        yield Stop(kind="expired", until=ends)
    for row in found.stops:
        yield _STOPS[row.kind](row)


def _repair(row: StopRow) -> Stop:
    group, what = row.values
    if not group:
        return Stop(kind="repair", what=_REPAIRS[what])
    limit, _, group_id = group.partition(US)
    return Stop(kind="repair", limit=limit, group_id=group_id, what=_REPAIRS[what])


def _paused(row: StopRow) -> Stop:
    return Stop(kind="paused", pause=pause_of(*row.values))


def _limit(row: StopRow) -> Stop:
    group, slots, held, promised = row.values
    limit, _, group_id = group.partition(US)
    return Stop(
        kind="limit",
        limit=limit,
        group_id=group_id,
        slots=int(slots),
        held=int(held),
        promised=int(promised),
        holders=tuple(sorted(map(_holder, row.slots), key=_by_age)),
    )


def _rate(row: StopRow) -> Stop:
    group, *numbers = row.values
    n, per_ms, burst, tokens, promised, next_ms, until_ms = map(int, numbers)
    limit, _, group_id = group.partition(US)
    next_at, until = (from_ms(at) if at >= 0 else None for at in (next_ms, until_ms))
    rate = RateState(n=n, per=timedelta(milliseconds=per_ms), burst=burst, tokens=tokens, next_at=next_at)
    return Stop(kind="rate", limit=limit, group_id=group_id, rate=rate, promised=promised, until=until)


def _holder(slot: Slot) -> Holder:
    consumer, since = (slot.lease[1], from_ms(slot.lease[2])) if slot.lease else (None, None)
    return Holder(tenant=slot.tenant, id=slot.id, consumer=consumer, since=since)


def _by_age(holder: Holder) -> tuple[bool, datetime, str, str]:
    return holder.since is None, holder.since or _EPOCH, holder.tenant, holder.id


_EPOCH: Final = from_ms(0)
_STOPS: Final = {"limit": _limit, "paused": _paused, "rate": _rate, "repair": _repair}
