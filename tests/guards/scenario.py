"""What the guards' tests share: outcomes as values, and a look at the raw records of a namespace."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from fairqueue import FairQueue, Lease, Limit, NewMessage, RetryPolicy
from fairqueue._engine.keys import join, key
from fairqueue.errors import FairQueueError
from tests.guards.mutate import MutationError

Queue = FairQueue[Any]

LIMITS = [Limit("tenant", default=2), Limit("org", default=2, key="org")]
RETRY = RetryPolicy.fixed(3, max_attempts=5, max_crashes=3)

_NOT_LUA_ENOUGH = ("attempt to ", "Error compiling", "bad argument")


def four(**options: Any) -> list[NewMessage[int]]:
    """Four messages of two tenants that share an org."""
    return [NewMessage(n, tenant="ab"[n % 2], id=f"m{n}", metadata={"org": "o"}, **options) for n in range(4)]


async def told(answer: Awaitable[Any]) -> Any:
    """What a call answers, or the error it raises, as a value: a guard that is missing shows in an assertion.

    A mutation that breaks the script itself (it indexes nil, say) proves nothing and is an error.
    """
    try:
        return await answer
    except FairQueueError as error:
        if any(mark in str(error) for mark in _NOT_LUA_ENOUGH):
            raise MutationError(str(error)) from error
        return error


async def raised(answer: Awaitable[Any]) -> str:
    """The name of the error a call raises; "nothing" and its answer when it raises none."""
    value = await told(answer)
    return type(value).__name__ if isinstance(value, Exception) else f"nothing, it answered {value!r}"


def ids(leases: Sequence[Lease[Any]]) -> list[str]:
    """The ids of claimed messages, in the order of the claim."""
    return [lease.message.id for lease in leases]


async def claimed(queue: Queue, n: int = 1, **options: Any) -> list[str]:
    """The ids a claim gets."""
    got = await told(queue.claim(n, **options))
    assert not isinstance(got, Exception), f"expected leases, got {got!r}"
    return ids(got)


async def held(queue: Queue, group: str, id_: str) -> int:
    """Slots held in a group."""
    return (await queue.limits.get(group, id_)).held


async def slots(queue: Queue, group: str, id_: str) -> dict[str, str]:
    """The slots of a group as they are stored: ``tenant/id`` -> token."""
    return await _hash(queue, "slots", join(group, id_))


async def put_slot(queue: Queue, group: str, id_: str, message: tuple[str, str], token: str) -> None:
    """A slot in a group, under a token of the caller's choice."""
    root = queue._engine.calls.root
    await queue._engine.command("HSET", key(root, "slots", join(group, id_)), join(*message), token)
    await queue._engine.command("SADD", key(root, "groups"), join(group, id_))


async def leases_of(queue: Queue) -> dict[str, str]:
    """The lease records as they are stored: ``tenant/id`` -> token."""
    records = await _hash(queue, "leases")
    return {mid: record.split("\x1f")[0] for mid, record in records.items()}


async def drop_key(queue: Queue, kind: str, *parts: str) -> None:
    """Removes a key, whatever it holds."""
    await queue._engine.command("DEL", key(queue._engine.calls.root, kind, *parts))


async def state(queue: Queue, tenant: str, id_: str) -> str:
    """Where a message is; "gone" when it is nowhere."""
    info = await queue.get(tenant, id_)
    return "gone" if info is None else info.state.value


async def _hash(queue: Queue, kind: str, *parts: str) -> dict[str, str]:
    raw = await queue._engine.command("HGETALL", key(queue._engine.calls.root, kind, *parts))
    pairs = raw.items() if isinstance(raw, dict) else zip(raw[::2], raw[1::2], strict=True)
    return {field.decode().replace("\x1f", "/"): value.decode() for field, value in pairs}
