"""Audit: every index against the messages themselves, on a live queue, in bounded steps.

Each step is one script that looks at a page of entries and everything that should agree with them, so what it
reports was true at one instant: no finding is a mere suspicion.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import IRREPLACEABLE, REMAINS, US, key
from fairqueue._engine.replies import text

from .reclaimer import reclaim
from .reconciler import reconcile

_PAGE = 200


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

    @property
    def ok(self) -> bool:
        """Nothing was found."""
        return not self.findings


async def audit(engine: Engine, fix: bool = False) -> AuditReport:
    """One pass. With ``fix`` indexes are repaired from the headers, then slots and deadlines by reconcile."""
    report = AuditReport(fixed=fix)
    if not await _check_types(engine, report, fix):
        return report
    for what in ("heads", "leases", "orphans"):
        await _walk(engine, report, what, fix)
    async for group in _members(engine, "groups", "SSCAN"):
        await _walk(engine, report, "group", fix, group)
    async for pool in _members(engine, "pools", "SSCAN"):
        await _walk(engine, report, "pool", fix, pool)
    async for tenant in _members(engine, "dead_tenants", "SSCAN"):
        await _walk(engine, report, "dead", fix, tenant)
    for check, subject, evidence in await engine.run(engine.calls.audit_counters(fix)):
        report.findings.append(Finding(check, subject.replace(US, "/"), evidence))
    if fix and report.findings:
        await reclaim(engine)
        await reconcile(engine)
    await _check_clean(engine, report, fix)
    return report


_CHECKED_BY = {"head": "KEEP", "body": "KEEP", "delayed": "KEEP", "leases": "OWNER", "deadlines": "OWNER"}


async def _check_types(engine: Engine, report: AuditReport, fix: bool) -> bool:
    """Whether the other steps can read what they need; a key of the wrong type would end them with an error."""
    (found,) = await engine.connection.run_all([engine.calls.audit_types(fix)])
    if isinstance(found, Exception):
        raise found
    report.findings.extend(
        Finding(_CHECKED_BY.get(kind, "MOVES"), kind, evidence) for kind, evidence in found
    )
    return not found or (fix and not IRREPLACEABLE.intersection(kind for kind, _ in found))


async def _walk(engine: Engine, report: AuditReport, what: str, fix: bool, of: str = "") -> None:
    cursor = "0"
    while True:
        cursor, checked, findings = await engine.run(engine.calls.audit(what, cursor, fix, of))
        report.checked += checked
        report.findings.extend(
            Finding(check, subject.replace(US, "/"), evidence) for check, subject, evidence in findings
        )
        if cursor == "0":
            return


async def _members(engine: Engine, kind: str, command: str) -> AsyncIterator[str]:
    cursor: Any = "0"
    seen: set[str] = set()
    while True:
        cursor, page = await engine.command(command, key(engine.calls.root, kind), cursor, "COUNT", _PAGE)
        for name in map(text, page):
            if name not in seen:
                seen.add(name)
                yield name
        if cursor in (b"0", 0, "0"):
            return


async def _check_clean(engine: Engine, report: AuditReport, fix: bool) -> None:
    """With no message left only a documented set of keys may be there."""
    found = await engine.run(engine.calls.audit_clean(sorted(REMAINS), fix))
    report.findings.extend(Finding("CLEAN", kind, evidence) for kind, evidence in found)
