"""Proves an installed fairqueue in a few seconds: every module loads, and messages go through a real server.

Run with `python -P`, so that the package installed is the one tested, not one that happens to lie about.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sys
from importlib import resources

import fairqueue
from fairqueue import FairQueue, Limit, NewMessage

TENANTS = ("acme", "globex")
EACH = 3


async def main() -> None:
    """Loads everything, then takes messages of two tenants to their ends."""
    load_every_module()
    assert resources.files("fairqueue").joinpath("py.typed").is_file(), "expected py.typed in the package"
    async with FairQueue("embedded://", limits=[Limit("tenant", default=1)]) as queue:
        await fair_and_limited(queue)
        await failed_and_redriven(queue)
        report = await queue.audit()
        assert not report.findings, report.findings
    print(f"smoke test passed: Python {sys.version.split()[0]}, {fairqueue.__file__}")


def load_every_module() -> None:
    """Imports each module of the package but `__main__`, which would run."""
    for module in pkgutil.walk_packages(fairqueue.__path__, "fairqueue."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


async def fair_and_limited(queue: FairQueue) -> None:
    """A limit of one each: every claim gets one message of each tenant, in order."""
    await queue.enqueue_many([NewMessage({"n": n}, tenant=t) for t in TENANTS for n in range(EACH)])
    for n in range(EACH):
        leases = await queue.claim(n=10)
        got = sorted((lease.message.tenant, lease.message.payload["n"]) for lease in leases)
        assert got == [(tenant, n) for tenant in TENANTS], got
        assert set(await queue.complete_many(leases)) == {"done"}


async def failed_and_redriven(queue: FairQueue) -> None:
    """One try only: a failure is a dead letter, a redrive brings it back."""
    sent = await queue.enqueue({"n": 0}, tenant="acme", max_attempts=1)
    (lease,) = await queue.claim()
    assert await lease.fail("no luck") == "dead"
    assert await queue.dead_letters.redrive("acme", sent.id) == 1
    (lease,) = await queue.claim()
    assert await lease.complete() == "done"


if __name__ == "__main__":
    asyncio.run(main())
