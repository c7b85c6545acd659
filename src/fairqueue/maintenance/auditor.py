"""Audit: every index against the messages themselves, on a live queue, in bounded steps.

Each step is one script that looks at a page of entries and everything that should agree with them, so what it
reports was true at one instant: no finding is a mere suspicion.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import IRREPLACEABLE, KEYS, REMAINS, US, key
from fairqueue._engine.replies import text
from fairqueue._engine.scan import escaped, scan
from fairqueue._engine.settings import damaged

from .reclaimer import reclaim
from .reconciler import reconcile

_PAGE = 200
_RECOUNTED = 2000  # messages: the counters of larger namespaces are not compared
_SCANNED = 100_000  # keys of the server: a scan of more takes too long


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as promised.

    ``check`` is KEEP, SLOTS, OWNER, MOVES or CLEAN; ``subject`` names the message, lane, group or key (parts joined
    by ``/``); ``evidence`` says what was found and what was expected.
    """

    check: str
    subject: str
    evidence: str


@dataclass(slots=True)
class AuditReport:
    """``checked`` entries were looked at; ``fixed`` says whether the findings were put right."""

    checked: int = 0
    findings: list[Finding] = field(default_factory=list)
    fixed: bool = False
    _known: set[Finding] = field(default_factory=set, init=False, repr=False, compare=False)

    def add(self, check: str, subject: str, evidence: str) -> None:
        """Adds a finding, once: several steps may meet the same damage."""
        finding = Finding(check, subject.replace(US, "/"), evidence)
        if finding not in self._known:
            self._known.add(finding)
            self.findings.append(finding)

    @property
    def ok(self) -> bool:
        """Nothing was found."""
        return not self.findings


async def audit(engine: Engine, fix: bool = False) -> AuditReport:
    """One pass. With ``fix`` indexes are repaired from the headers, then slots and deadlines by reconcile."""
    report = AuditReport(fixed=fix)
    if not await _check_types(engine, report, fix):
        return report
    declared = await _check_settings(engine, report, fix)
    await _walk(engine, report, "numbers", fix, "" if declared else "undeclared")
    for what in ("heads", "leases", "orphans"):
        await _walk(engine, report, what, fix)
    root = engine.calls.root
    async for tenant in scan(engine, "HSCAN", key(root, "guarantees")):
        await _walk(engine, report, "uses", fix, text(tenant))
    async for group in scan(engine, "SSCAN", key(root, "groups")):
        await _walk(engine, report, "group", fix, text(group))
    async for pool in scan(engine, "SSCAN", key(root, "pools")):
        await _walk(engine, report, "pool", fix, text(pool))
        async for lane in _lanes(engine, text(pool)):
            await _walk(engine, report, "lane", fix, lane)
    async for tenant in scan(engine, "SSCAN", key(root, "dead_tenants")):
        await _walk(engine, report, "dead", fix, text(tenant))
    for check, subject, evidence in await engine.run(engine.calls.recount(fix, _RECOUNTED)):
        report.add(check, subject, evidence)
    if fix and report.findings:
        await reclaim(engine)
        await reconcile(engine)
    await _check_clean(engine, report, fix)
    return report


# What suffers when a fixed key holds another type: the check that the entries in it are judged by.
_CHECKED_BY = {
    "KEEP": ("head", "body", "delayed", "delayed_names", "dead_tenants", "doubtful"),
    "OWNER": ("leases", "deadlines"),
    "SLOTS": ("limits", "guarantees", "rates", "arrivals", "pauses", "groups", "dirty"),
    "MOVES": ("settings", "counters", "stopped", "vtime", "pools", "weights", "expiring", "rated"),
    "CLEAN": ("notes", "present", "totals", "workers", "worker_info", "served", "backlogs"),
}
_CHECK_OF = {kind: check for check, kinds in _CHECKED_BY.items() for kind in kinds}


async def _check_types(engine: Engine, report: AuditReport, fix: bool) -> bool:
    """Whether the other steps can read what they need; a key of the wrong type would end them with an error."""
    (found,) = await engine.run_all([engine.calls.audit_types(fix)])
    if isinstance(found, Exception):
        raise found
    for kind, evidence in found:
        report.add(_CHECK_OF[kind], kind, evidence)
    return not found or (fix and not IRREPLACEABLE.intersection(kind for kind, _ in found))


async def _check_settings(engine: Engine, report: AuditReport, fix: bool) -> bool:
    """Fields that cannot be read, and a lock that never expires; whether the declared limits can be read."""
    root = engine.calls.root
    stored = _texts(await engine.read("HGETALL", key(root, "settings"), empty={}))
    own = _texts(await engine.command("HGETALL", key(root, "limits")))
    found = damaged(stored, {name: limit for name, limit in own.items() if US not in name})
    for name, why, _ in found:
        report.add("MOVES", f"settings/{name}", why)
    if fix and found:
        await engine.run(engine.calls.mend_settings([(name, stored[name], to) for name, _, to in found]))
        await engine.agreement.learn()
    lock = key(root, "lock", "reconcile")
    if await engine.command("PTTL", lock) == -1:
        report.add("MOVES", "lock/reconcile", "the lock never expires: whoever holds it may be gone")
        if fix:
            await engine.run(engine.calls.lock("reconcile", "", 0))
    return fix or all(name != "limits" for name, *_ in found)


def _texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    return {text(name): text(value) for name, value in fields.items()}


async def _walk(engine: Engine, report: AuditReport, what: str, fix: bool, of: str = "") -> None:
    cursor = "0"
    while True:
        cursor, checked, findings = await engine.run(engine.calls.audit(what, cursor, fix, of))
        report.checked += checked
        for finding in findings:
            report.add(*finding)
        if cursor == "0":
            return


async def _lanes(engine: Engine, pool: str) -> AsyncIterator[str]:
    cursor = "r0"
    while cursor:
        cursor, lanes = await engine.run(engine.calls.pool_lanes(pool, cursor))
        for lane in lanes:
            yield lane


async def _check_clean(engine: Engine, report: AuditReport, fix: bool) -> None:
    """With no message left only a documented set of keys may be there.

    Single keys are always looked at; members of families can only be found by a scan, which is left out where the
    server holds much else.
    """
    if await engine.command("HLEN", key(engine.calls.root, "head")):
        return
    names = [kind for kind, spec in KEYS.items() if not spec.of and kind not in REMAINS]
    if await engine.command("DBSIZE") <= _SCANNED:
        names += [name for name in await leftover_keys(engine) if ":" in name]
    for start in range(0, len(names), _PAGE):
        found = await engine.run(engine.calls.audit_clean(names[start : start + _PAGE], fix))
        for name, evidence in found:
            report.add("CLEAN", name, evidence)


async def leftover_keys(engine: Engine) -> list[str]:
    """Keys of the namespace, named without its prefix, that are not among those documented to remain."""
    root = engine.calls.root
    names = [text(raw)[len(root) :] async for raw in scan(engine, "SCAN", None, escaped(root) + "*")]
    return sorted(name for name in names if name.partition(":")[0] not in REMAINS)
