"""The k-th server command of every script fails, for every k: nothing is lost, wedged, or run twice.

Each k is met by an error of each kind from the command alone, and by a cut: it and all after it fail, so the order of
the script's writes is all there is. Then the maintenance passes run, everything is worked off and counted, and the
five checks are made.
"""

from __future__ import annotations

import pytest

from fairqueue import FairQueueError
from fairqueue._engine.script import load_all
from fairqueue.testing import ManualClock, assert_whole
from tests.conftest import MakeQueue
from tests.faults.record import note
from tests.faults.scenes import ACTS, LIMITS, Act, Scene, prepared
from tests.support.cuts import ERRORS, Cut, cut

MOST_COMMANDS = 400
KINDS = [(error, False) for error in ERRORS] + [(ERRORS[0], True)]
ALL = [(script, act) for script, acts in ACTS.items() for act in acts]


def test_no_script_is_left_out() -> None:
    assert set(ACTS) == set(load_all())


async def outcome_of(scene: Scene, act: Act, fault: Cut) -> str:
    with cut(scene.queue, fault):
        try:
            await act(scene)
        except FairQueueError as error:
            return f"raised {error}"
    return "went on"


async def wedged(scene: Scene) -> str:
    """What is not as promised after everything was worked off, in words."""
    try:
        await assert_whole(scene.queue)
    except AssertionError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize(("script", "act"), ALL, ids=lambda value: getattr(value, "__name__", value))
async def test_no_cut_loses_wedges_or_doubles(
    make_queue: MakeQueue, clock: ManualClock, namespace: str, script: str, act: Act
) -> None:
    injected, lost, stuck, twice, row = [0] * MOST_COMMANDS, 0, 0, 0, ""
    problems = []
    for k in range(1, MOST_COMMANDS):
        marks = set()
        for number, (error, ends) in enumerate(KINDS):
            queue = await make_queue(limits=LIMITS, name=f"{namespace}-{k}-{number}")
            scene = await prepared(queue, clock)
            fault = Cut(script, k, error, ends)
            outcome = await outcome_of(scene, act, fault)
            assert fault.called
            if not await fault.reached(queue):
                break
            injected[k] += 1
            await scene.recover()
            gone, wrong = sorted(scene.accepted - scene.ended), await wedged(scene)
            lost, stuck, twice = lost + len(gone), stuck + bool(wrong), twice + len(scene.twice)
            marks |= {mark for mark, found in zip("L2W", (gone, scene.twice, wrong), strict=True) if found}
            if gone or wrong or scene.twice:
                how = f"{error!r}{' from there on' if ends else ''}, {outcome}"
                problems.append(f"{script} at command {k} ({how}): lost {gone}, twice {scene.twice}, {wrong}")
        if not injected[k]:
            break
        row += next((mark for mark in "L2W" if mark in marks), ".")
    assert k > 1, "the script was never cut"
    note("commands", script=script, scenario=act.__name__, row=row, faults=sum(injected),
         lost=lost, wedged=stuck, twice=twice)  # fmt: skip
    assert not problems, f"{len(problems)} of {sum(injected)} faults:\n" + "\n".join(problems)
