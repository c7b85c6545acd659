"""``fairqueue doctor``: every index against the messages themselves, and what else is wrong with a namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import click

from fairqueue.cli.options import Common, common
from fairqueue.cli.output import print_json, print_line, print_rows
from fairqueue.clock import from_ms
from fairqueue.inside import engine_of
from fairqueue.inspect import dirty_groups
from fairqueue.maintenance.auditor import Finding
from fairqueue.validation import counted

FAILED = 1


@dataclass(slots=True)
class Diagnosis:
    """What was found. A finding that is not in ``left`` was fixed; warnings do not change the exit status."""

    checked: int = 0
    findings: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    dirty: dict[tuple[str, str], str] = field(default_factory=dict)
    eviction_policy: str = "noeviction"
    changed: tuple[str, str, datetime] | None = None

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """Subject and text of each."""
        found = [
            (f"{limit}/{id_}", f"the group is {state}: a slot could not be freed, reconcile heals it")
            for (limit, id_), state in self.dirty.items()
        ]
        if self.eviction_policy != "noeviction":
            text = (
                f"the server may evict keys ({self.eviction_policy}): messages, slots and leases can vanish; "
                "set it to noeviction"
            )
            found.append(("maxmemory-policy", text))
        return found


@click.command()
@click.option("--fix", is_flag=True, help="Put right what is found, from the messages themselves.")
@common
def doctor(common: Common, fix: bool) -> int:
    """Check a live namespace: KEEP, SLOTS, OWNER, MOVES and CLEAN.

    Exit status 1 when there are findings that were not fixed.
    """
    found = asyncio.run(_examine(common, fix))
    if common.json:
        print_json(_as_json(common, found))
    else:
        _print(common, found, fix)
    return FAILED if found.left else 0


async def _examine(common: Common, fix: bool) -> Diagnosis:
    async with common.queue_that_exists() as queue:
        found = Diagnosis()
        report = await queue.audit(fix)
        found.checked, found.findings = report.checked, _once(report.findings)
        found.dirty = await dirty_groups(engine_of(queue))
        if fix and found.dirty:
            await queue.reconcile()
            found.dirty = await dirty_groups(engine_of(queue))
        # Only a second look tells whether it is right now.
        found.left = _once((await queue.audit()).findings) if fix and found.findings else found.findings
        found.findings = found.findings + [
            one for one in found.left if _known_by(one) not in map(_known_by, found.findings)
        ]
        info = await engine_of(queue).command("INFO")
        found.eviction_policy = str(info.get("maxmemory_policy", "noeviction"))
        found.changed = _last_change(engine_of(queue).settings.stored)
        return found


def _once(findings: list[Finding]) -> list[Finding]:
    """Each finding once: what is wrong with a lane shows at its tenant, and again when the lane itself is walked."""
    return list(dict.fromkeys(findings))


def _last_change(stored: Mapping[str, str]) -> tuple[str, str, datetime] | None:
    """What a client's declaration last replaced, who that was, and when."""
    if "changed_at" not in stored:
        return None
    return stored["changed"], stored["changed_by"], from_ms(float(stored["changed_at"]))


def _known_by(finding: Finding) -> tuple[str, str]:
    return finding.check, finding.subject


def _states(found: Diagnosis) -> list[tuple[Finding, bool]]:
    """Every finding, and whether it was fixed."""
    left = set(map(_known_by, found.left))
    return [(one, _known_by(one) not in left) for one in found.findings]


def _as_json(common: Common, found: Diagnosis) -> dict[str, Any]:
    changed = found.changed
    return {
        "name": common.namespace,
        "url": common.shown_url,
        "ok": not found.left,
        "checked": found.checked,
        "findings": [
            {"check": one.check, "subject": one.subject, "evidence": one.evidence, "fixed": fixed}
            for one, fixed in _states(found)
        ],
        "warnings": [{"subject": subject, "text": text} for subject, text in found.warnings],
        "dirty_groups": [
            {"group": limit, "id": id_, "state": state} for (limit, id_), state in found.dirty.items()
        ],
        "eviction_policy": found.eviction_policy,
        "settings_changed": changed
        and {"settings": changed[0].split(","), "by": changed[1], "at": changed[2]},
    }


def _print(common: Common, found: Diagnosis, fix: bool) -> None:
    rows = [
        (one.check, one.subject, one.evidence, "fixed" if fixed else "found") for one, fixed in _states(found)
    ]
    if rows:
        print_rows(("check", "subject", "evidence", ""), rows)
    for subject, text in found.warnings:
        print_line(f"warning: {subject}: {text}")
    if found.changed:
        what, by, at = found.changed
        print_line(f"settings last changed: {what}, by {by}, at {at:%Y-%m-%d %H:%M:%S} UTC")
    where = f"{common.namespace} at {common.shown_url}"
    print_line(f"checked {counted(found.checked, 'entry', 'entries')} of {where}: {_verdict(found, fix)}")


def _verdict(found: Diagnosis, fix: bool) -> str:
    if not found.findings:
        return "nothing found"
    left, total = len(found.left), len(found.findings)
    if fix:
        return f"{total} found, {total - left} fixed"
    return f"{total} found (--fix puts them right)"
