"""The main job on real input: a job log replayed on the real engine, first in arrival order, then fair.

Users of the log are tenants, their groups a second limit, and a handler waits as long as the job ran (scaled).
Several worker processes share the work and one of them is killed on the way. What was lost, what ran twice and
who waited how long is counted from the handlers' own log.
"""

from __future__ import annotations

from fairqueue.demo.options import DemoOptions
from fairqueue.demo.trace import TraceError

__all__ = ["DemoOptions", "TraceError", "run_demo"]


def run_demo(options: DemoOptions | None = None) -> int:
    """Replay a job log twice, print the table, write the report.

    Args:
        options: What to replay and how; None: the cut that is shipped, in less than a minute.

    Returns:
        0 if every job ran, none twice without cause, no slot is held and ``audit()`` found nothing; else 1, and
        what is wrong is said on standard error.

    Raises:
        ConfigurationError: an option, or the log (:class:`TraceError`), is wrong.
        FairQueueError: a server or a worker could not be started; the report could not be written.

    Example:
        >>> run_demo(DemoOptions(seconds=50))                                   # doctest: +SKIP
        0
    """
    from fairqueue.demo.main import main  # noqa: PLC0415 - worker processes import this package and need none of it

    return main(options or DemoOptions())
