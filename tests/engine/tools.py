"""What the engine's tests say over and over."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from fairqueue import AuditReport, FairQueue, Lease, Message, NewMessage
from fairqueue._engine.keys import key, lane_name
from fairqueue.lease import Held
from fairqueue.lease import held as kept_with


async def put(queue: FairQueue[Any], tenant: str, /, *ids: str, **options: Any) -> None:
    """Enqueues messages of these ids, each with its id as payload."""
    await queue.enqueue_many([NewMessage(id_, tenant=tenant, id=id_, **options) for id_ in ids])


def ids(leases: Iterable[Lease[Any]]) -> list[str]:
    return [lease.message.id for lease in leases]


def names(leases: Iterable[Lease[Any]]) -> list[str]:
    """``tenant/id`` of each."""
    return [f"{lease.message.tenant}/{lease.message.id}" for lease in leases]


async def claimed(queue: FairQueue[Any], n: int = 1000, **options: Any) -> list[str]:
    """Ids of what one claim gives; the leases stay open."""
    return ids(await queue.claim(n, **options))


async def one(queue: FairQueue[Any], **options: Any) -> Lease[Any]:
    (lease,) = await queue.claim(1, **options)
    return lease


async def finish(queue: FairQueue[Any], leases: Sequence[Lease[Any]]) -> None:
    """Completes all of them; each must still be ours."""
    assert await queue.complete_many(leases) == ["done"] * len(leases)


async def held(queue: FairQueue[Any], group: str, id_: str) -> int:
    return (await queue.limits.get(group, id_)).held


async def waiting(queue: FairQueue[Any], group: str, id_: str) -> int:
    return (await queue.limits.get(group, id_)).waiting


async def state(queue: FairQueue[Any], tenant: str, id_: str) -> str | None:
    info = await queue.get(tenant, id_)
    return None if info is None else str(info.state)


async def ready_order(queue: FairQueue[Any], tenant: str) -> list[str]:
    """Ids of the tenant's ready messages, lane by lane, in their order."""
    items, _ = await queue.messages(tenant, state="ready", limit=10_000)
    return [item.message.id for item in items]


def found(report: AuditReport) -> list[tuple[str, str]]:
    """(check, subject) of each finding."""
    return [(finding.check, finding.subject) for finding in report.findings]


async def commands(queue: FairQueue[Any]) -> int:
    """Commands the server has executed so far, those inside scripts included, INFO left out."""
    stats = await queue._engine.command("INFO", "commandstats")
    return sum(one["calls"] for name, one in stats.items() if name != "cmdstat_info")


async def commands_of_a_claim(queue: FairQueue[Any], n: int = 1) -> tuple[int, list[Lease[Any]]]:
    """How many commands one claim costs the server, and what it gave."""
    before = await commands(queue)
    leases = await queue.claim(n)
    return await commands(queue) - before, leases


def lane(tenant: str, *groups: tuple[str, str], queue: str = "default", pool: str = "default") -> str:
    """The name of a lane, for what only its key can show."""
    return lane_name(tenant, queue, pool, groups)


async def raw(queue: FairQueue[Any], command: str, kind: str, *parts: str, args: Sequence[Any] = ()) -> Any:
    """One command on one key of the namespace."""
    return await queue._engine.command(command, key(queue._engine.calls.root, kind, *parts), *args)


def twin_of(lease: Lease[Any], message: Message[Any] | None = None) -> Lease[Any]:
    """Another object with the same token, which knows nothing of how the first one ends."""
    inside = kept_with(lease)
    kept = Held(inside.desk, inside.visibility_ms, "twin", time.monotonic())
    return Lease(message or lease.message, lease.token, lease.deadline, kept)
