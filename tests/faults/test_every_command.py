"""The k-th server command of every script fails, for every k of every act: nothing is lost, wedged, or run twice.

A command fails alone, by each kind of error. Most end the script, which leaves what it had written; where it goes on, it
is run once more, and all after that command fails too. Then somebody else claims at once, and gets nothing that is held,
or nobody does (of a script's first act both). Then the maintenance passes run, after which the five checks find nothing,
but what a hand has damaged and only a hand mends; that is mended then, and they run again. Then everything is worked off
and counted, and the checks are made again. Of the kinds of errors at one command the second and the third are followed so
only if they leave anything else than the first did: in what is stored, or in what the client knows.

The short form (FAULTS_EVERY=3, say) lets each third command fail, by one kind of error.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any
from zlib import crc32

import pytest

from fairqueue import FairQueue, FairQueueError
from fairqueue._engine.scan import escaped, scan
from fairqueue._engine.script import load_all
from fairqueue.testing import ManualClock
from tests.faults.acts import ACTS, Act, all_acts
from tests.faults.record import began, note
from tests.faults.remains import left_by
from tests.faults.scale import EVERY
from tests.faults.scenes import LIMITS, Named, Scene
from tests.support.cuts import ERRORS, Cut, cut
from tests.support.monitor import calls_of, monitored, slot

MOST_COMMANDS = 600


def by_name(*words: object) -> int:
    """A number that says nothing, and is the same in each run."""
    return crc32(repr(tuple(map(str, words))).encode())


def commands_of(act: Act, every: int = EVERY) -> Iterator[int]:
    """Which of its commands fail in turn; in the short form the first is another for each act."""
    return count(1 + by_name(act) % every, every)


def kinds_at(act: Act, k: int, every: int = EVERY) -> tuple[str, ...]:
    """By which errors; in the short form by one, and which has nothing to do with how far the commands are apart."""
    first = by_name(act, k) % len(ERRORS)
    kinds = ERRORS[first:] + ERRORS[:first]
    return kinds if every == 1 else kinds[:1]


def test_the_short_form_meets_every_kind_of_error_in_every_long_script() -> None:
    for script in ("claim", "enqueue", "promote", "reclaim", "settle"):
        acts = [act for act in all_acts() if act.script == script]
        assert {next(commands_of(act, 3)) for act in acts} == {1, 2, 3}
        for act in acts:
            kinds = {kinds_at(act, k, 3) for k in islice(commands_of(act, 3), 20)}
            assert kinds == {(error,) for error in ERRORS}, act


@dataclass(frozen=True)
class Verdict:
    """What was not as promised after a fault."""

    lost: tuple[Named, ...] = ()
    buried: tuple[Named, ...] = ()  # dead, which without the fault it was not
    twice: tuple[Named, ...] = ()
    wrong: frozenset[str] = frozenset()
    left: bool = False  # something that the next claim healed

    @property
    def mark(self) -> str:
        """In the matrix."""
        if self.lost or self.buried:
            return "L"
        return "2" if self.twice else "W" if self.wrong else "c" if self.left else "."

    def __str__(self) -> str:
        return f"lost {self.lost}, buried {self.buried}, twice {self.twice}, {'; '.join(sorted(self.wrong))}"


@dataclass
class Tally:
    """What became of the faults of one act."""

    faults: int = 0
    lost: int = 0
    wedged: int = 0
    twice: int = 0
    followed: int = 0
    """Of the faults those that left what none had left before: what came of them was looked at."""
    row: str = ""
    problems: list[str] = field(default_factory=list)

    def add(self, how: str, verdict: Verdict) -> None:
        """Counts a fault."""
        self.faults += 1
        self.lost += len({*verdict.lost, *verdict.buried})
        self.twice += len(verdict.twice)
        self.wedged += bool(verdict.wrong)
        if verdict.mark in "L2W":
            self.problems.append(f"{how}: {verdict}")


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
    "an instant of expiry of a message that does not wait":
        "written before the header too: it goes with the entry, or at that instant",
    "a payload without a message":
        "written before the header too: it goes with the entry",
    "promised to the lane are not as counted":
        "a baton is used in two commands: the lane's next one makes the count right",
    "CLEAN '(ring:|lane:|pools|vtime|body|expiring)":
        "what the others are called when they are all that is left",
}  # fmt: skip
"""What the checks may find after the maintenance passes: the next claim that comes to it heals it.

Until then it costs nobody a turn.
"""


async def findings(scene: Scene) -> set[str]:
    """What the five checks say."""
    return {
        f"{found.check} {found.subject!r}: {found.evidence}" for found in (await scene.queue.audit()).findings
    }


def passing_of(found: set[str]) -> set[str]:
    return {one for one in found if any(re.search(words, one) for words in LEFTOVERS)}


async def not_healed(scene: Scene) -> set[str]:
    """What is left of that which the next claim heals."""
    return passing_of(await findings(scene))


UNMENDED = "before it is mended: "


async def standing(scene: Scene) -> set[str]:
    """What is found of damage by hand; how often or how much is another matter with each fault."""
    found = await findings(scene)
    found -= passing_of(found)
    return {f"{UNMENDED}{re.sub('-?[0-9.]+', 'n', one)}" for one in found}


async def found_afterwards(scene: Scene, act: Act) -> set[str]:
    """What is not as promised, in words: after the maintenance passes, and when everything was worked off."""
    by_hand: set[str] = set()
    if act.after:
        await scene.maintain()
        by_hand = await standing(scene)
        await act.after(scene)
    await scene.maintain()
    wrong = await findings(scene)
    wrong |= by_hand
    if passing := passing_of(wrong):
        wrong -= passing
        scene.left_to_a_claim = True
        while await scene.claimed_by_another():
            pass  # until one has come to every place
        await scene.queue.reconcile()
        wrong |= {f"after a claim: {one}" for one in await not_healed(scene)}
    await scene.work_off()
    return wrong | {f"worked off: {one}" for one in await findings(scene)}


async def wrong_afterwards(scene: Scene, act: Act) -> set[str]:
    """The same; what fails on the way is wrong, too."""
    try:
        return await found_afterwards(scene, act)
    except (FairQueueError, AssertionError) as error:
        return {repr(error)}


def unsaid(damage: set[str], act: Act, destroyed: Collection[str] = ()) -> set[str]:
    """What of it the act does not own up to.

    What a hand mends afterwards needs no words but that there is one; and of messages that the scene was given destroyed it
    is known.
    """
    said = (
        *act.leaves,
        *(f"^{re.escape(one)}" for one in destroyed),
        *([f"^{UNMENDED}"] if act.after else []),
    )
    return {one for one in damage if not any(re.search(words, one) for words in said)}


def test_only_what_an_act_owns_up_to_is_excused() -> None:
    act = Act("claim", wrong_afterwards, leaves=("^KEEP 'a': known$",))  # type: ignore[arg-type]
    with_a_hand = Act("claim", wrong_afterwards, after=wrong_afterwards)  # type: ignore[arg-type]
    found = {"KEEP 'a': known", "KEEP 'b': known", "FairQueueError('no')", f"{UNMENDED}MOVES 'c': stopped"}
    assert unsaid(found, act) == found - {"KEEP 'a': known"}
    assert unsaid(found, act, ["KEEP 'b': "]) == unsaid(found, act) - {"KEEP 'b': known"}
    assert unsaid(found, with_a_hand) == {"KEEP 'a': known", "KEEP 'b': known", "FairQueueError('no')"}


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
    damage: dict[bool, set[str]] = field(default_factory=lambda: {False: set(), True: set()})
    """What is wrong without any fault: what the act is given, or leaves; what of it only a hand mends is found at once.

    True: if somebody else claims after it, who may come to a damaged place first and leave it to the doctor.
    """
    deaths: set[Named] = field(default_factory=set)
    """What is dead without any fault."""
    mark: str = ""  # of the last one
    went_on: bool = False
    followed: dict[tuple[bool, bool], tuple[Any, Verdict]] = field(default_factory=dict)
    """What the first error at this command left, and what came of it."""

    async def as_it_is(self) -> None:
        """The act itself; case K1 of every script call on the way: all it touches has the slot of the key it is given."""
        async with monitored(self.server) as monitor:
            await self.without_fault()
            calls = list(calls_of(await monitor.seen()))
        elsewhere = {
            (call.script, key) for call in calls for key in call.keys if slot(key) != slot(call.first)
        }
        assert not elsewhere
        assert any(call.script == self.act.script and call.keys for call in calls)

    async def without_fault(self, *, act: bool = True, met_by_another: bool = False) -> None:
        """What the scene is given may be damaged beyond what maintenance mends: that is not a fault's doing.

        The act says what that is, and nothing else is excused; nor is anything that fails here.
        """
        clock = ManualClock()
        async with client(self.server, self.namespace, clock, self.act) as queue:
            scene = Scene(queue, clock)
            await self.act.given(scene)
            destroyed = {f"KEEP '{tenant}/{id_}': " for tenant, id_ in scene.gone}
            if act:
                await self.act.go(scene)
            if met_by_another:
                await scene.claimed_by_another()
            damage = await found_afterwards(scene, self.act)
            assert not unsaid(damage, self.act, destroyed), "found without any fault, and not said of the act"
            self.damage[True] |= damage
            if not met_by_another:
                self.damage[False] |= damage
            self.deaths |= scene.dead
            await forget(queue)

    async def inject(self, fault: Cut, met_by_another: bool) -> bool:
        """One fault; whether the script had so many commands."""
        clock = ManualClock()
        async with client(self.server, self.namespace, clock, self.act) as queue:
            scene = Scene(queue, clock)
            await self.act.given(scene)
            raised = await outcome_of(scene, self.act, fault)
            assert fault.called, "the act does not run the script"
            reached, self.went_on = await fault.reached(queue), not raised
            if self.act.again:
                await self.act.again(scene)
            if reached:
                verdict = await self.followed_up(scene, (met_by_another, fault.ends))
                met = ", another claims" if met_by_another else ""
                how = f"command {fault.k} ({fault.error!r}{' from there on' if fault.ends else ''}{met}, {raised})"
                self.tally.add(how, verdict)
                self.mark = max(self.mark, verdict.mark, key=".cW2L".index)
            await forget(queue)
            return reached

    async def followed_up(self, scene: Scene, which: tuple[bool, bool]) -> Verdict:
        """What comes of it; of what was left once already that is known."""
        left = await left_by(scene) if EVERY == 1 else None
        if which in self.followed and left == self.followed[which][0]:
            return self.followed[which][1]
        self.tally.followed += 1
        met_by_another, _ = which
        if met_by_another:
            await scene.claimed_by_another()
        wrong = await wrong_afterwards(scene, self.act) - self.damage[met_by_another]
        verdict = Verdict(
            tuple(sorted(scene.accepted - scene.ended)),
            tuple(sorted(scene.dead - self.deaths - scene.condemned)),
            tuple(scene.twice),
            frozenset(wrong),
            scene.left_to_a_claim,
        )
        self.followed.setdefault(which, (left, verdict))
        return verdict

    async def at(self, k: int) -> bool:
        """All faults of the k-th command."""
        self.mark = "."
        self.followed.clear()
        for met_by_another in (False, True) if self.act is ACTS[self.act.script][0] else (k % 2 == 0,):
            for error in kinds_at(self.act, k):
                if not await self.inject(Cut(self.act.script, k, error), met_by_another):
                    return False
                if self.went_on:
                    await self.inject(Cut(self.act.script, k, error, ends=True), met_by_another)
        self.tally.row = self.tally.row.ljust(k - 1) + self.mark
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
    began("commands", script=act.script, scenario=act.go.__name__)
    faults = Faults(server, namespace, act)
    for act_too, met_by_another in ((False, False), (False, True), (True, True)):
        await faults.without_fault(act=act_too, met_by_another=met_by_another)
    await faults.as_it_is()
    tally = faults.tally
    for k in commands_of(act):
        assert k < MOST_COMMANDS, "the script goes on and on: raise MOST_COMMANDS if it has so many commands"
        if not await faults.at(k):
            break
    if not tally.faults:  # it has fewer than it was to begin with
        await faults.at(1)
    assert tally.faults, "the script was never cut"
    note("commands", script=act.script, scenario=act.go.__name__, every=EVERY, row=tally.row, faults=tally.faults, followed=tally.followed,
         lost=tally.lost, wedged=tally.wedged, twice=tally.twice, problems=tally.problems[:5])  # fmt: skip
    assert not tally.problems, f"{len(tally.problems)} of {tally.faults} faults:\n" + "\n".join(
        tally.problems
    )
