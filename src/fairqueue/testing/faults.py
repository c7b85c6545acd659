"""Faults to inject into a live queue: what goes wrong when processes die at bad moments or keys are destroyed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairqueue._engine.keys import KEYS, join, key, lane_name
from fairqueue._engine.replies import Stored
from fairqueue.errors import ConfigurationError, MessageNotFoundError
from fairqueue.inside import engine_of
from fairqueue.limits import resolve_groups
from fairqueue.new_message import NewMessage
from fairqueue.queue import FairQueue
from fairqueue.validation import choice, expected

_RECORDS = ("deadline", "lease", "body", "header", "slot")


async def leak_slot(
    queue: FairQueue[Any], group: str, id: str, message_id: str, *, tenant: str | None = None
) -> None:
    """A held slot with no lease behind it, as a crash between two steps of a lesser design would leave.

    Args:
        queue: the namespace.
        group: the limit's name, for example ``"tenant"``.
        id: the limit group's id, for example ``"acme"``.
        message_id: whose slot it looks like; need not exist.
        tenant: of that message; the group id when None.
    """
    root, name = _root(queue), join(group, id)
    mid = join(id if tenant is None else tenant, message_id)
    await engine_of(queue).command("HSET", key(root, "slots", name), mid, "00000000.0.leaked")
    await engine_of(queue).command("SADD", key(root, "groups"), name)


async def wrong_type(queue: FairQueue[Any], kind: str, *names: str) -> None:
    """The key becomes a string (one that is a string becomes a list), whatever it held.

    Args:
        queue: the namespace.
        kind: any key of the data model.
        names: which member, for a family: ``"slots", limit, group id``; ``"lane", tenant, queue`` (all lanes of that
            queue); ``"dead", tenant``; the parts of its name in the data model for the others. None for a single key.

    Raises:
        ConfigurationError: no such kind, or another number of names than it takes.

    Example:
        >>> await faults.wrong_type(queue, "slots", "tenant", "acme")
        >>> await faults.wrong_type(queue, "totals")
    """
    spec = KEYS[choice("kind", kind, tuple(KEYS))]
    wanted = _names_of(spec.of, names)
    if len(names) != len(wanted):
        raise expected("names", f"{' and '.join(wanted) or 'none'} for {kind!r}", names)
    root = _root(queue)
    members = await _lanes(queue, *names) if kind == "lane" else [join(*names)]
    for member in members:
        where = key(root, kind, member)
        await engine_of(queue).command("DEL", where)
        if spec.type == "string":
            await engine_of(queue).command("RPUSH", where, "not what it was")
        else:
            await engine_of(queue).command("SET", where, "not what it was")


_SCOPES = {"p": "pool", "t": "pool US tenant", "g": "pool US group"}
_MEMBERS = {"lane": "tenant US queue", "group": "limit US group id"}


def _names_of(family: str, names: Sequence[str]) -> list[str]:
    """What a member of a family is named by: a scope says by its first letter what follows."""
    if family == "scope":
        letter = choice("scope", names[0] if names else None, tuple(_SCOPES))
        return [repr(letter), *_names_of(_SCOPES[letter], names)]
    parts = [_MEMBERS.get(part, part) for part in family.split(" US ") if part]
    return [part for nested in parts for part in nested.split(" US ")]


async def delete(queue: FairQueue[Any], kind: str, tenant: str, id: str) -> None:
    """Just that record of a message: ``"deadline"``, ``"lease"``, ``"body"``, ``"header"`` or ``"slot"`` (all of its groups)."""
    choice("kind", kind, _RECORDS)
    root, mid = _root(queue), join(tenant, id)
    if kind == "deadline":
        await engine_of(queue).command("ZREM", key(root, "deadlines"), mid)
    elif kind == "slot":
        for group in (await _stored(queue, tenant, id)).header.groups:
            await engine_of(queue).command("HDEL", key(root, "slots", join(*group)), mid)
    else:
        where = {"lease": "leases", "body": "body", "header": "head"}[kind]
        await engine_of(queue).command("HDEL", key(root, where), mid)


async def overwrite(queue: FairQueue[Any], kind: str, tenant: str, id: str, raw: bytes) -> None:
    """A record's bytes are replaced: ``"body"``, ``"header"`` or ``"lease"``."""
    choice("kind", kind, ("body", "header", "lease"))
    where = {"lease": "leases", "body": "body", "header": "head"}[kind]
    await engine_of(queue).command("HSET", key(_root(queue), where), join(tenant, id), raw)


async def _lanes(queue: FairQueue[Any], tenant: str, of: str) -> list[str]:
    """The lanes of a queue: of its messages wherever they are, or the one a plain message would go to."""
    lanes, cursor = set(), None
    while True:
        items, cursor = await queue.messages(tenant, of, limit=1000, cursor=cursor)
        for item in items:
            lanes.add(lane_name(tenant, of, item.message.pool, item.message.groups))
        if cursor is None:
            break
    message: NewMessage[None] = NewMessage(None, tenant=tenant, queue=of)
    return sorted(lanes) or [
        lane_name(tenant, of, "default", resolve_groups(engine_of(queue).limits, message))
    ]


async def _stored(queue: FairQueue[Any], tenant: str, id_: str) -> Stored:
    (found,) = await engine_of(queue).run(engine_of(queue).calls.get([(tenant, id_)]))
    if found is None:
        raise MessageNotFoundError(f"there is no message {id_!r} of tenant {tenant!r}")
    return found


def _root(queue: FairQueue[Any]) -> str:
    if not isinstance(queue, FairQueue):
        raise ConfigurationError(f"expected queue to be a FairQueue, got {queue!r:.80}")
    return engine_of(queue).calls.root
