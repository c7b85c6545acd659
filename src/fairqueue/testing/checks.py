"""The five checks KEEP, SLOTS, OWNER, MOVES and CLEAN as assertions."""

from __future__ import annotations

from typing import Any

from fairqueue._engine.keys import KEYS, REMAINS
from fairqueue.inspect import escaped
from fairqueue.queue import FairQueue

_PAGE = 500


async def leftover_keys(queue: FairQueue[Any]) -> list[str]:
    """Keys of the namespace that are not among those documented to remain when all work is done.

    Scans the keyspace: for tests, where the server is the test's own.
    """
    root = queue.engine.calls.root
    leftovers: list[str] = []
    cursor: Any = "0"
    while True:
        cursor, page = await queue.engine.command(
            "SCAN", cursor, "MATCH", escaped(root) + "*", "COUNT", _PAGE
        )
        for raw in page:
            name = raw.decode("utf-8", "replace")[len(root) :]
            kind = name.partition(":")[0]
            if kind not in KEYS or kind not in REMAINS:
                leftovers.append(name)
        if cursor in (b"0", 0, "0"):
            return sorted(leftovers)


async def assert_whole(queue: FairQueue[Any]) -> None:
    """Fails, naming every finding, unless the queue keeps its promises; with no message left, unless it is clean too.

    Example:
        >>> await assert_whole(queue)
    """
    report = await queue.audit()
    if report.findings:
        named = (f"{finding.check} {finding.subject!r}: {finding.evidence}" for finding in report.findings)
        raise AssertionError("\n".join(named))
    stats = await queue.stats()
    if stats.ready + stats.delayed + stats.in_flight + stats.dead == 0:
        leftovers = await leftover_keys(queue)
        if leftovers:
            raise AssertionError(f"CLEAN: no message is left, but these keys are: {leftovers}")
