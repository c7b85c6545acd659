"""What if: a workload on the real engine under a virtual clock, so that limits can be sized before they are changed.

==============  =============================================================================================
reading.py      values of a file, each checked, and named by its place when it is wrong
traffic.py      when messages come, and how long they run: drawn from a seed
loading.py      a file made into a workload
workload.py     the workload: tenants, limits, workers
checks.py       what must hold between its parts
clockwork.py    the events of a run, in their order in time
claims.py       claims and their ends, as a worker makes them
run.py          the run: what comes is enqueued, claimed and completed on a private server
meter.py        who waited how long and who had the workers
result.py       the figures
==============  =============================================================================================
"""

from __future__ import annotations

from fairqueue.simulate.loading import load_workload, workload_of
from fairqueue.simulate.result import LimitUse, Share, Simulated
from fairqueue.simulate.run import simulate
from fairqueue.simulate.workload import Workload

__all__ = ["LimitUse", "Share", "Simulated", "Workload", "load_workload", "simulate", "workload_of"]
