"""How far what tenants were served came apart in random runs: ``python -m tests.property.widest 100``, of each kind so many.

The figures of docs/known-limits.md are from here. The bound itself is held by test_shares.py, on every run.
"""

from __future__ import annotations

import asyncio
import sys

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.property.conftest import Stage
from tests.property.test_shares import Plan, acted, plans
from tests.support.processes import Server

BOUND = 4  # times the largest cost (by weight), the one in the pool and the one at a group
KINDS = {
    "limits of one's own, shared groups, and neither": plans(),
    "shared groups, nothing else": plans(crowded=True),
    "one shared group": plans(crowded=True, most_groups=1),
}


def ratios(stage: Stage, drawn: SearchStrategy[Plan], runs: int) -> list[float]:
    """By how many times the largest cost two tenants with claimable work came apart at most, of each run."""
    found = []

    @seed(1)
    @settings(max_examples=runs, database=None, deadline=None, phases=[Phase.generate], derandomize=False,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(drawn)
    def run(plan: Plan) -> None:
        play = stage.run(lambda: acted(stage, plan))
        found.append(BOUND * play.apart)

    run()
    return found


def main(runs: int) -> None:
    """Prints a line a kind."""
    with asyncio.Runner() as runner:
        server = Server(appendonly="no").start()
        try:
            for kind, drawn in KINDS.items():
                found = ratios(Stage(server.url, runner), drawn, runs)
                beyond = sum(ratio > 2 for ratio in found)
                print(
                    f"{kind}: of {len(found)} runs {beyond} beyond 2 * c_max, the widest {max(found):.2f} * c_max"
                )
        finally:
            server.remove()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
