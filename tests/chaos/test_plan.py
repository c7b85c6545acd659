"""The plan: the same again from the same seed, and all there is in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tests.chaos.plan import (
    CLAIMING,
    DRAINING,
    FREEZE,
    IDLE,
    KILL,
    MAINTAINER,
    OPERATOR,
    OWNER,
    RUNNING,
    TERMINATE,
    WATCHER,
    WORKER,
    Action,
    plan,
)


def of_kills(seed: int, kills: int) -> Iterator[Action]:
    """The plan until so many kills are in it."""
    for action in plan(seed):
        yield action
        kills -= action.kind == KILL
        if not kills:
            return


def test_a_seed_gives_the_same_plan_again() -> None:
    assert list(islice(plan(7), 500)) == list(islice(plan(7), 500))
    assert list(islice(plan(8), 500)) != list(islice(plan(7), 500))


def test_a_thousand_kills_and_what_comes_between_meet_everybody_in_every_way() -> None:
    actions = list(of_kills(1, 1000))
    done = {(action.role, action.kind) for action in actions}
    expected = {
        (role, kind) for role in (WORKER, OWNER, MAINTAINER, OPERATOR) for kind in (KILL, FREEZE, TERMINATE)
    }
    assert done == expected | {(WATCHER, KILL)}
    met = {(action.kind, action.phase) for action in actions if action.role == WORKER}
    assert met >= {
        (kind, phase) for kind in (KILL, FREEZE, TERMINATE) for phase in (IDLE, CLAIMING, RUNNING, DRAINING)
    }
    assert any(action.twin for action in actions if action.kind == FREEZE)
    assert not any(action.twin for action in actions if action.role == OPERATOR)
    assert all(action.hold > 1 for action in actions), "a freeze outlasts the lease"
