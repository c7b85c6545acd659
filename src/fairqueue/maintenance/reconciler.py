"""Reconcile: slots and deadlines are made equal to the leases again, in bounded steps, without scanning the keyspace."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import US, key
from fairqueue._engine.replies import text
from fairqueue._engine.scan import scan
from fairqueue._engine.uses import find_uses

_log = logging.getLogger("fairqueue")
_MARKS = 1000
_RECOUNTED = 200  # messages: more would hold the server up for longer than 2 ms


@dataclass(frozen=True, slots=True)
class Healed:
    """One thing that was put right: ``what`` is 'slot', 'deadline' or 'lease'; a slot names its group."""

    tenant: str
    id: str
    what: str
    group: tuple[str, str] | None = None


@dataclass(slots=True)
class ReconcileReport:
    """What one pass did.

    ``checked`` slots and leases were looked at; ``freed`` slots had no lease behind them; ``restored`` slots,
    deadlines and records were given back to leases that lacked them; ``rebuilt`` groups had a key of the wrong
    type, which was closed, refilled from the leases, and opened. ``overbooked`` groups are used by tenants whose
    guarantees add up to more than their limit, and what that is: a message, or another default, made it so.
    """

    checked: int = 0
    freed: list[Healed] = field(default_factory=list)
    restored: list[Healed] = field(default_factory=list)
    rebuilt: list[tuple[str, str]] = field(default_factory=list)
    overbooked: dict[tuple[str, str], str] = field(default_factory=dict)


async def reconcile(engine: Engine) -> ReconcileReport:
    """One pass over all groups that have slots or waiters, and all leases."""
    report = ReconcileReport()
    closed = [group async for group in _known_groups(engine) if await _check_group(engine, group, report)]
    await _check_leases(engine, report)
    await _open(engine, closed, report)
    await _tidy(engine, report)
    await _check_guarantees(engine, report)
    return report


async def repair_groups(engine: Engine, groups: Iterable[str]) -> ReconcileReport:
    """The same for a few groups at once: a claim found that they cannot be trusted."""
    report = ReconcileReport()
    closed = [group for group in groups if await _check_group(engine, group, report)]
    if closed:
        await _check_leases(engine, report)
        await _open(engine, closed, report)
    return report


async def _known_groups(engine: Engine) -> AsyncIterator[str]:
    """Each once, though a dirty group is among the others too."""
    root = engine.calls.root
    dirty = set(await engine.read("HKEYS", key(root, "dirty"), empty=[]))
    for raw in dirty:
        yield text(raw)
    async for raw in scan(engine, "SSCAN", key(root, "groups")):
        if raw not in dirty:
            yield text(raw)


async def _check_group(engine: Engine, group: str, report: ReconcileReport) -> bool:
    """Frees what no lease lists; True when the group is closed and must be refilled."""
    cursor = "0"
    while True:
        step = engine.run_replayable(engine.calls.reconcile_group, group, cursor)
        cursor, closed, checked, ghosts, records = await step
        report.checked += checked
        report.freed.extend(Healed(tenant, id_, "slot", _named(group)) for tenant, id_ in ghosts)
        report.restored.extend(Healed(tenant, id_, "lease") for tenant, id_ in records)
        if closed or cursor == "0":
            return closed


async def _check_leases(engine: Engine, report: ReconcileReport) -> None:
    cursor = "0"
    while True:
        visibility_ms = engine.options.visibility_ms
        step = engine.run_replayable(engine.calls.reconcile_leases, cursor, visibility_ms)
        cursor, checked, given = await step
        report.checked += checked
        for (tenant, id_), what in given:
            of_group = US in what
            report.restored.append(
                Healed(tenant, id_, "slot" if of_group else what, _named(what) if of_group else None)
            )
        if cursor == "0":
            return


async def _open(engine: Engine, closed: list[str], report: ReconcileReport) -> None:
    for group in closed:
        while await engine.run_replayable(engine.calls.reconcile_open, group):
            pass
        report.rebuilt.append(_named(group))


async def _tidy(engine: Engine, report: ReconcileReport) -> None:
    """What scripts that were cut may have left: lanes that stopped, clocks nobody goes by, dead letters in doubt, counters."""
    cursor = "s0"
    while cursor != "0":
        cursor, _ = await engine.run(engine.calls.tidy(cursor))
    await _read_letters(engine)
    if sign := await engine.read("HGET", key(engine.calls.root, "settings"), "to_rebuild", empty=None):
        await _rebuild(engine, text(sign), report)
    await engine.run(engine.calls.recount(fix=True, most=_RECOUNTED))


async def _check_guarantees(engine: Engine, report: ReconcileReport) -> None:
    """Of each tenant with one: it is known which shared groups it uses, and these have what they are to keep."""
    for raw in await engine.read("HKEYS", key(engine.calls.root, "guarantees"), empty=[]):
        tenant, cursor = text(raw), ""
        while cursor != "0":
            step = engine.calls.audit("uses", cursor or "0", fix=True, of=tenant)
            cursor, _, findings = await engine.run(step)
            report.overbooked |= {_named(group): why for check, group, why in findings if check == "SLOTS"}
            if (tenant, "MOVES") in {(subject, check) for check, subject, _ in findings}:
                await find_uses(engine, tenant)


async def _read_letters(engine: Engine) -> None:
    """Dead letters of those whose letters a script was at work on when it was cut: what is not dead leaves the list.

    What comes in doubt meanwhile, and marks above so many, are left to the next pass.
    """
    marks: dict[bytes, list[bytes]] = {}
    found = 0
    async for mark in scan(engine, "SSCAN", key(engine.calls.root, "doubtful")):
        tenant, _, _ = mark.rpartition(US.encode())
        marks.setdefault(tenant, []).append(mark)
        found += 1
        if found == _MARKS:
            break
    for tenant, of_tenant in marks.items():
        await _mend(engine, "dead", text(tenant))
        await engine.run(engine.calls.looked_through(marks=of_tenant))


async def _rebuild(engine: Engine, sign: str, report: ReconcileReport) -> None:
    """Lists were evicted, or destroyed by hand: each message is put where its header says, and nothing else is there.

    What is in flight has its record again then, and gets its slots and its deadline by that.

    The sign goes last: who is killed on the way leaves it to the next.
    """
    _log.warning(
        "rings, due times or letters are missing in %r: written again from the messages", engine.options.name
    )
    async for tenant in scan(engine, "SSCAN", key(engine.calls.root, "dead_tenants")):
        await _mend(engine, "dead", text(tenant))
    await _mend(engine, "heads")
    await _check_leases(engine, report)
    await engine.run(engine.calls.looked_through(sign=sign))


async def _mend(engine: Engine, what: str, of: str = "") -> None:
    """A walk of the doctor's that puts right what it finds."""
    cursor, first = "0", True
    while first or cursor != "0":
        first = False
        cursor, _, _ = await engine.run(engine.calls.audit(what, cursor, fix=True, of=of))


def _named(group: str) -> tuple[str, str]:
    name, _, id_ = group.partition(US)
    return name, id_
