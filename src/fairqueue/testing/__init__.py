"""For tests, yours and ours: a clock to turn, a way to drain a queue, faults to inject, checks to run afterwards.

Everything works on a real server; ``FairQueue("embedded://")`` starts a private, temporary one.

Example:
    >>> clock = ManualClock()
    >>> async with FairQueue("embedded://", clock=clock) as queue:
    ...     await queue.enqueue(1, tenant="acme", delay=3600)
    ...     clock.advance(3600)
    ...     ran = await drain(queue, handle)
"""

from __future__ import annotations

from fairqueue.clock import ManualClock
from fairqueue.testing import faults
from fairqueue.testing.checks import assert_whole, leftover_keys
from fairqueue.testing.draining import drain

__all__ = ["ManualClock", "assert_whole", "drain", "faults", "leftover_keys"]
