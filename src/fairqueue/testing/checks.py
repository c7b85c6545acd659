"""The five checks KEEP, SLOTS, OWNER, MOVES and CLEAN as assertions."""

from __future__ import annotations

from typing import Any

from fairqueue.inside import engine_of
from fairqueue.maintenance import auditor
from fairqueue.queue import FairQueue


async def leftover_keys(queue: FairQueue[Any]) -> list[str]:
    """Keys of the namespace that are not among those documented to remain when all work is done.

    Scans the keyspace: for tests, where the server is the test's own.
    """
    return await auditor.leftover_keys(engine_of(queue))


async def assert_whole(queue: FairQueue[Any]) -> None:
    """Fails, naming every finding, unless the queue keeps its promises; with no message left, unless it is clean too.

    Example:
        >>> await assert_whole(queue)
    """
    report = await queue.audit()
    if report.findings:
        named = (f"{finding.check} {finding.subject!r}: {finding.evidence}" for finding in report.findings)
        raise AssertionError("\n".join(named))
