"""Messages a second on this machine: what the client does, what the server could do, and how soon a message starts.

=============  ==============================================================================================
options.py     what to measure, checked when it is made
measure.py     the four phases: enqueue one by one, in bulk, drain, latency
meters.py      time of a server's scripts, seconds, the server's version
result.py      the figures, as JSON and as rows of a table
=============  ==============================================================================================
"""

from __future__ import annotations

from fairqueue.bench.measure import run_bench
from fairqueue.bench.options import BenchOptions
from fairqueue.bench.result import BenchResult

__all__ = ["BenchOptions", "BenchResult", "run_bench"]
