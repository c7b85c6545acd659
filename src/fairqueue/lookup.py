"""Single messages and pages of them, wherever they are. Nothing here writes, and nothing scans the keyspace."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import US, join, key
from fairqueue._engine.replies import Header, Stored, text, texts
from fairqueue._engine.scan import escaped, scan_page
from fairqueue.clock import from_ms
from fairqueue.codec import BodyError
from fairqueue.decoding import decoded, message_of
from fairqueue.errors import ConfigurationError
from fairqueue.message import LeaseInfo, MessageInfo, MessageState
from fairqueue.validation import choice, integer


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
        expires_at=expires_at(header),
        position=found.position,
        error=found.note[2] if found.note else None,
        reason=found.note[0] if found.note and header.state == "dead" else None,
        decodable=decodable,
        cancelling=bool(header.marked) and header.state == "in_flight",
    )


def expires_at(header: Header) -> datetime | None:
    """Of one that waits for its first start."""
    waits = header.state in ("ready", "delayed") and header.attempt == 0
    return from_ms(header.expires_at) if waits and header.expires_at is not None else None


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


_LANE_AND_OFFSET = re.compile(r"(.*\|[0-9]{1,15})?", re.DOTALL)
_ID = re.compile("[^\ud800-\udfff\x1f]*")
_SCANNED_TO = re.compile("[0-9]{0,19}")


def _cursor(cursor: str | None, stages: list[str]) -> tuple[str, str]:
    if cursor is None:
        return stages[0], ""
    try:
        stage, inner = json.loads(cursor)
        wanted = {"ready": _LANE_AND_OFFSET, "delayed": _ID}.get(stage, _SCANNED_TO)
        if stage in stages and wanted.fullmatch(inner):
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
    ids = [_id(mid) for mid in await _of_lane(engine, lanes[0], start, limit)]
    if len(ids) == limit:
        return ids, f"{lanes[0]}|{start + limit}"
    return ids, f"{lanes[1]}|0" if len(lanes) > 1 else ""


async def _of_lane(engine: Engine, lane: str, start: int, limit: int) -> list[bytes]:
    """None of a lane whose key holds another type: an audit names it, and the other lanes are listed."""
    mids: list[bytes] = await engine.read(
        "ZRANGE", key(engine.calls.root, "lane", lane), start, start + limit - 1, empty=[]
    )
    return mids


async def _in_flight(engine: Engine, tenant: str, inner: str, limit: int) -> tuple[list[str], str]:  # noqa: ARG001
    return await _scanned(engine, "HSCAN", "leases", tenant, inner)


async def _delayed(engine: Engine, tenant: str, inner: str, limit: int) -> tuple[list[str], str]:
    """``inner`` is the id listed last: names stand one tenant after the other."""
    start, end = f"({join(tenant, inner)}", f"({tenant}\x20"
    names = key(engine.calls.root, "delayed_names")
    raw = await engine.read("ZRANGEBYLEX", names, start, end, "LIMIT", 0, limit, empty=[])
    ids = [_id(mid) for mid in raw]
    return ids, ids[-1] if len(ids) == limit else ""


async def _scanned(engine: Engine, command: str, kind: str, tenant: str, inner: str) -> tuple[list[str], str]:
    match = escaped(tenant) + US + "*"
    after, mids = await scan_page(engine, command, key(engine.calls.root, kind), inner or "0", match)
    return [_id(mid) for mid in mids], "" if after == "0" else after


async def _dead(engine: Engine, tenant: str, inner: str, limit: int) -> tuple[list[str], str]:
    """As with a lane; ``dead_letters.list`` is the one that says so."""
    start = int(inner or 0)
    letters = key(engine.calls.root, "dead", tenant)
    raw = await engine.read("ZRANGE", letters, start, start + limit - 1, empty=[])
    return texts(raw), str(start + limit) if len(raw) == limit else ""


_STAGES = {"ready": _ready, "in_flight": _in_flight, "delayed": _delayed, "dead": _dead}


def _id(mid: bytes) -> str:
    return text(mid).partition(US)[2]
