"""What is done to whom, in which order, drawn from a seed: the same seed is the same plan.

A plan has no end: whoever carries it out goes on until enough processes have been killed. What the processes
make of it depends on the machine, so a replay meets the same faults in the same order, not the same interleaving of
every command.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

WORKER, OWNER, MAINTAINER, OPERATOR, WATCHER = "worker", "owner", "maintainer", "operator", "watcher"
KILL, FREEZE, TERMINATE = "kill -9", "freeze", "SIGTERM"
ANY, IDLE, CLAIMING, RUNNING, DRAINING = "any", "idle", "claiming", "running", "draining"

_ROLES: Final = {WORKER: 64, OWNER: 16, MAINTAINER: 14, OPERATOR: 4, WATCHER: 2}
_KINDS: Final = {KILL: 45, FREEZE: 20, TERMINATE: 35}
_PHASES: Final = {ANY: 20, IDLE: 15, CLAIMING: 20, RUNNING: 25, DRAINING: 20}


@dataclass(frozen=True, slots=True)
class Action:
    """One fault. Of a worker that is to be met ``draining`` it is the second: a SIGTERM goes before it.

    ``pick`` chooses among the processes of the role; ``pause``, ``hold`` (of a freeze, in visibility timeouts) and
    ``down`` (until it is started again under its name) are seconds but for the one. ``twin``: while it is frozen another
    process starts under the same name, and the frozen one drains when it is back. An operator has none: of what two of them
    order at the same time nobody could tell what holds.
    """

    role: str
    kind: str
    phase: str
    pick: int
    pause: float
    hold: float
    down: float
    twin: bool


def plan(seed: int) -> Iterator[Action]:
    """Kills, and the freezes and ends between them, without an end."""
    rng = random.Random(seed)
    while True:
        yield _action(rng)


def _action(rng: random.Random) -> Action:
    role, kind, phase = _one_of(rng, _ROLES), _one_of(rng, _KINDS), _one_of(rng, _PHASES)
    return Action(
        role=role,
        kind=KILL if role == WATCHER else kind,
        phase=phase if role == WORKER else ANY,
        pick=rng.randrange(1000),
        pause=rng.uniform(0.05, 0.75),
        hold=rng.uniform(1.2, 2.0),
        down=rng.choice([0.0, rng.uniform(0, 1)]),
        twin=rng.random() < 0.4 and role != OPERATOR,
    )


def _one_of(rng: random.Random, weights: dict[str, int]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]
