"""Of each place in the scripts that sends a command some act comes by, or it is told why none can.

In the scripts that take messages in, hand them out and end them this holds for each script by itself, with all it includes:
what went before makes a difference to what a cut leaves. For the others it holds for their own lines; the lines that they
share with those are cut there.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.faults.acts import ACTS, all_acts
from tests.faults.scenes import LIMITS, Scene
from tests.support.cuts import cut
from tests.support.sites import Line, Trace, sites_of

BY_ITSELF = ("enqueue", "claim", "settle", "reclaim", "promote")
"""The scripts in which each line counts, those of the files they include too."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """Lines of a file that hold these words, or in a function so called, which no act can come by in these scripts, and why."""

    scripts: tuple[str, ...]
    file: str
    words: tuple[str, ...]
    because: str

    def covers(self, script: str, line: Line) -> bool:
        named = script in self.scripts and line.file == self.file
        return named and any(words in line.text or words == line.within for words in self.words)


UNREACHED = (
    Unreached(
        ("enqueue",), "includes/ring.lua", ("note_stopped",),
        "the lane is looked at when the message stands in it: it is one",
    ),
    Unreached(
        ("reclaim",), "includes/places.lua", ("call('HDEL', k.head, mid)", "call('HDEL', k.body, mid)"),
        "what has no name of a message is dropped before its header is looked at",
    ),
    Unreached(BY_ITSELF, "includes/begin.lua", ("local time = redis.call('TIME')",), "the scenes have a clock of their own"),
    Unreached(BY_ITSELF, "includes/begin.lua", ("if READ_ONLY",), "only in scripts that read"),
    Unreached(
        ("claim",), "includes/claim_take.lua", ("CHUNK - 1, #entries)))",), "only for more than 500 messages at once"
    ),
    Unreached(
        ("enqueue",), "includes/counters.lua", ("UNLINK", "HDEL"), "only where a message ends: here all begin"
    ),
    Unreached(
        ("enqueue",), "includes/ring.lua", ("policy.by_seq and seq <",), "a new message is the newest of its lane"
    ),
    Unreached(
        ("claim", "promote"), "includes/counters.lua", ("k.present", "UNLINK"), "neither begins or ends a message"
    ),
    Unreached(
        ("claim", "promote", "reclaim"), "includes/places.lua",
        ("try('ZREM', k.lane(h.lane), mid)", "call('ZREM', k.delayed, mid)", "try('ZREM', k.dead(tenant)", "EXISTS', k.dead(tenant)"),
        "only a settle ends a message that is not in flight",
    ),
    Unreached(
        ("promote", "reclaim"), "includes/waking.lua", ("if call('EXISTS', k.lane(lane.name)) == 0",),
        "neither takes a message out of a lane",
    ),
    Unreached(
        ("claim", "promote"), "includes/slots.lua", ("'HDEL'", "'freed_late'", "EXISTS"), "neither frees a slot"
    ),
    Unreached(
        ("claim", "promote"), "includes/waking.lua",
        ("wake_leftovers",), "only where a slot was freed or a limit set",
    ),
)  # fmt: skip


async def reached_by(make_queue: MakeQueue, namespace: str, script: str) -> set[Line]:
    """What the acts of a script come by when nothing fails."""
    reached = set[Line]()
    for number, act in enumerate(ACTS[script]):
        clock = ManualClock()
        options = {"limits": LIMITS, "clock": clock, "name": f"{namespace}-{number}"} | act.options
        scene = Scene(await make_queue(**options), clock)
        await act.given(scene)
        trace = Trace(script)
        with cut(scene.queue, trace):
            await act.go(scene)
        assert trace.called
        reached |= await trace.sites(scene.queue)
    return reached


def counts(script: str, line: Line) -> bool:
    return script in BY_ITSELF or line.file == f"{script}.lua"


all_acts()


@pytest.mark.leaves_findings  # scenes are damaged, and nothing is worked off
@pytest.mark.parametrize("script", list(ACTS))
async def test_some_act_comes_by_each_place(make_queue: MakeQueue, namespace: str, script: str) -> None:
    reached = await reached_by(make_queue, namespace, script)
    told = {line for line in sites_of(script) if any(one.covers(script, line) for one in UNREACHED)}
    unmet = {line for line in sites_of(script) - reached - told if counts(script, line)}
    assert not unmet, f"{script}: no act comes by\n" + "\n".join(sorted(map(str, unmet)))
    assert not told & reached, f"{script}: said not to be reached\n" + "\n".join(map(str, told & reached))


def test_each_reason_is_of_some_place() -> None:
    for one in UNREACHED:
        for script in one.scripts:
            assert any(one.covers(script, line) for line in sites_of(script)), (
                f"{one} is of nothing in {script}"
            )
