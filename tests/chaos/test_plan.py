"""The plan: the same again from the same seed, and all there is in it."""

from __future__ import annotations

from tests.chaos.plan import (
    CLAIMING,
    DRAINING,
    FREEZE,
    IDLE,
    KILL,
    MAINTAINER,
    OWNER,
    RUNNING,
    TERMINATE,
    WATCHER,
    WORKER,
    plan,
)


def test_a_seed_gives_the_same_plan_again_and_a_longer_one_goes_on() -> None:
    assert plan(7, 100) == plan(7, 100)
    shorter = plan(7, 100)
    assert plan(7, 1000)[: len(shorter)] == shorter
    assert sum(action.kind == KILL for action in shorter) == 100
    assert plan(8, 100) != plan(7, 100)


def test_a_thousand_kills_and_what_comes_between_meet_everybody_in_every_way() -> None:
    actions = plan(1, 1000)
    done = {(action.role, action.kind) for action in actions}
    expected = {(role, kind) for role in (WORKER, OWNER, MAINTAINER) for kind in (KILL, FREEZE, TERMINATE)}
    assert done == expected | {(WATCHER, KILL)}
    met = {(action.kind, action.phase) for action in actions if action.role == WORKER}
    assert met >= {
        (kind, phase) for kind in (KILL, FREEZE, TERMINATE) for phase in (IDLE, CLAIMING, RUNNING, DRAINING)
    }
    assert any(action.twin for action in actions if action.kind == FREEZE)
    assert all(action.hold > 1 for action in actions), "a freeze outlasts the lease"
