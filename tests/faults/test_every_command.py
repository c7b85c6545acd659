"""The k-th server command of every script fails, for every k of every act: nothing is lost, wedged, or run twice.

A command fails alone, by each kind of error in turn. Most end the script, which leaves what it had written; where it goes
on, it is run once more, and all after that command fails too. Then somebody else claims at once, and gets nothing that is
held, or nobody does (of a script's first act both). Then the maintenance passes run, after which the five checks find
nothing; then everything is worked off and counted, and the checks are made again.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairqueue import FairQueue, FairQueueError
from fairqueue._engine.keys import key
from fairqueue._engine.scan import escaped, scan
from fairqueue._engine.script import load_all
from fairqueue.testing import ManualClock
from tests.faults.acts import ACTS, Act, all_acts
from tests.faults.record import note
from tests.faults.scenes import LIMITS, Named, Scene
from tests.support.cuts import ERRORS, Cut, cut

MOST_COMMANDS = 600
EVERY = int(os.environ.get("FAULTS_EVERY", "1"))
"""Of the commands of a script: each, or each third, say."""


@dataclass
class Tally:
    """What became of the faults of one act."""

    faults: int = 0
    lost: int = 0
    wedged: int = 0
    twice: int = 0
    row: str = ""
    problems: list[str] = field(default_factory=list)

    def add(self, how: str, lost: list[Named], twice: list[Named], wrong: set[str]) -> str:
        """Counts a fault; returns its mark in the matrix."""
        self.faults += 1
        self.lost, self.twice, self.wedged = (
            self.lost + len(lost),
            self.twice + len(twice),
            self.wedged + bool(wrong),
        )
        if lost or twice or wrong:
            self.problems.append(f"{how}: lost {lost}, twice {twice}, {'; '.join(sorted(wrong))}")
        return "L" if lost else "2" if twice else "W" if wrong else "."


def test_no_script_is_left_out() -> None:
    assert {act.script for act in all_acts()} == set(load_all())


async def outcome_of(scene: Scene, act: Act, fault: Cut) -> str:
    """What was raised; '' if the script went on."""
    with cut(scene.queue, fault):
        try:
            await act.go(scene)
        except FairQueueError as error:
            return f"raised {error}"
    return ""


LEFTOVERS = {
    "takes turns in pool default but has no claimable lane":
        "rings are entered from the outside in: a claim that finds nothing there takes the tenant out",
    "the lane takes turns but has nothing ready":
        "a lane enters its ring before it is written: a claim that finds nothing there takes it out",
    "the lane lists a message that is not ready in it":
        "a message's place is written before its header, which makes it one: a claim that meets the entry drops it",
    "a payload without a message":
        "written before the header too: it goes with the entry",
    "promised to the lane are not as counted":
        "a baton is used in two commands: the lane's next one makes the count right",
    "no message is left, but the key is there":
        "what the others are called when they are all that is left",
}  # fmt: skip
"""What the checks may find after the maintenance passes: the next claim that comes to it heals it.

Until then it costs nobody a turn.
"""

OF_A_LETTER = ("a payload without a message", "a note without a message")
UNTIL_LOOKED_AT = {
    "the dead letters list a message that is not dead":
        "the list that names a message is left last: a purge or a redrive that meets the entry drops it",
    "CLEAN 'dead":
        "the same when no message is left",
}  # fmt: skip
"""The same, but it stays until somebody works on the dead letters; when all is worked off, nothing may be found."""


async def findings(scene: Scene) -> set[str]:
    """What the five checks say; a payload or a note that is left of a dead letter is part of its entry there."""
    queue, said = scene.queue, set()
    for found in (await queue.audit()).findings:
        tenant, _, id_ = found.subject.partition("/")
        listed = key(queue._engine.calls.root, "dead", tenant)
        if found.evidence in OF_A_LETTER and await queue._engine.command("ZSCORE", listed, id_) is not None:
            said.add(f"KEEP {found.subject!r}: {next(iter(UNTIL_LOOKED_AT))}")
        else:
            said.add(f"{found.check} {found.subject!r}: {found.evidence}")
    return said


def of_kind(kinds: dict[str, str], found: set[str]) -> set[str]:
    return {one for one in found if any(words in one for words in kinds)}


async def not_healed(scene: Scene) -> set[str]:
    """What is left of that which the next claim heals."""
    found = await findings(scene)
    return of_kind(LEFTOVERS, found - of_kind(UNTIL_LOOKED_AT, found))


async def wrong_afterwards(scene: Scene) -> set[str]:
    """What is not as promised, in words: after the maintenance passes, and when everything was worked off."""
    try:
        await scene.maintain()
        wrong = await findings(scene)
        wrong -= of_kind(UNTIL_LOOKED_AT, wrong)
        if passing := of_kind(LEFTOVERS, wrong):
            wrong -= passing
            while await scene.claimed_by_another():
                pass  # until one has come to every place
            await scene.queue.reconcile()
            wrong |= {f"after a claim: {one}" for one in await not_healed(scene)}
        await scene.work_off()
        return wrong | {f"worked off: {one}" for one in await findings(scene)}
    except (FairQueueError, AssertionError) as error:
        return {repr(error)}


@asynccontextmanager
async def client(server: str, name: str, clock: ManualClock, act: Act) -> AsyncIterator[FairQueue[Any]]:
    options = {"limits": LIMITS, "reconcile_interval": 0} | act.options
    queue: FairQueue[Any] = FairQueue(server, name, clock=clock, **options)
    await queue.connect()
    try:
        yield queue
    finally:
        await queue.close()


@dataclass
class Faults:
    """All faults of one act, and what became of them."""

    server: str
    namespace: str
    act: Act
    tally: Tally = field(default_factory=Tally)
    damage: set[str] = field(
        default_factory=set
    )  # what is wrong without any fault: what the act is given, or leaves
    mark: str = ""  # of the last one; '' when the script had no such command
    went_on: bool = False

    async def without_fault(self, *, act: bool) -> None:
        """What the scene is given may be damaged beyond what maintenance mends: that is not a fault's doing."""
        clock = ManualClock()
        async with client(self.server, self.namespace, clock, self.act) as queue:
            scene = Scene(queue, clock)
            await self.act.given(scene)
            if act:
                await self.act.go(scene)
            if self.act.after:
                await self.act.after(scene)
            self.damage |= await wrong_afterwards(scene)
            await forget(queue)

    async def inject(self, fault: Cut, met_by_another: bool) -> bool:
        """One fault; whether the script had so many commands."""
        clock = ManualClock()
        async with client(self.server, self.namespace, clock, self.act) as queue:
            scene = Scene(queue, clock)
            await self.act.given(scene)
            raised = await outcome_of(scene, self.act, fault)
            assert fault.called, "the act does not run the script"
            if self.act.after:
                await self.act.after(scene)
            reached, self.went_on = await fault.reached(queue), not raised
            if reached:
                if met_by_another:
                    await scene.claimed_by_another()
                wrong = await wrong_afterwards(scene) - self.damage
                met = ", another claims" if met_by_another else ""
                how = f"command {fault.k} ({fault.error!r}{' from there on' if fault.ends else ''}{met}, {raised})"
                lost = sorted(scene.accepted - scene.ended)
                self.mark = max(self.mark, self.tally.add(how, lost, scene.twice, wrong), key=".W2L".index)
            await forget(queue)
            return reached

    async def at(self, k: int) -> bool:
        """All faults of the k-th command."""
        self.mark = "."
        for met_by_another in (False, True) if self.act is ACTS[self.act.script][0] else (k % 2 == 0,):
            error = ERRORS[k % len(ERRORS)]
            if not await self.inject(Cut(self.act.script, k, error), met_by_another):
                return False
            if self.went_on:
                await self.inject(Cut(self.act.script, k, error, ends=True), met_by_another)
        self.tally.row += self.mark
        return True


async def forget(queue: FairQueue[Any]) -> None:
    """Removes all that is stored: the checks look at every key of the server."""
    root = queue._engine.calls.root
    names = [name async for name in scan(queue._engine, "SCAN", None, escaped(root) + "*")]
    await queue._engine.command("UNLINK", *names)


@pytest.mark.leaves_findings  # each fault is checked at once
@pytest.mark.timeout(600)
@pytest.mark.parametrize("act", all_acts(), ids=str)
async def test_no_cut_loses_wedges_or_doubles(server: str, namespace: str, act: Act) -> None:
    faults = Faults(server, namespace, act)
    await faults.without_fault(act=False)
    await faults.without_fault(act=True)
    tally, k = faults.tally, 1
    while await faults.at(k):
        k, tally.row = k + EVERY, tally.row + " " * (EVERY - 1)
        assert k < MOST_COMMANDS, "the script goes on and on: raise MOST_COMMANDS if it has so many commands"
    assert tally.faults, "the script was never cut"
    note("commands", script=act.script, scenario=act.go.__name__, row=tally.row, faults=tally.faults,
         lost=tally.lost, wedged=tally.wedged, twice=tally.twice, problems=tally.problems[:5])  # fmt: skip
    assert not tally.problems, f"{len(tally.problems)} of {tally.faults} faults:\n" + "\n".join(
        tally.problems
    )
