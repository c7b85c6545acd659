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
        ("enqueue", "settle", "reclaim", "promote"), "includes/pauses.lua", ("try('HEXISTS', k.pauses, name)", "must_be_readable"),
        "only claims look at pools, and only who lifts a pause or reconciles wakes at its group",
    ),
    Unreached(
        ("enqueue", "settle", "reclaim", "promote"), "includes/rates.lua", ("must_be_readable",),
        "only claims refuse, and who looks",
    ),
    Unreached(("promote",), "includes/rates_due.lua", ("rates.ms_until_due",), "only a claim tells when it is worth asking again"),
    Unreached(("enqueue",), "includes/pauses.lua", ("try('HLEN', k.pauses)", "HMGET"), "it wakes nobody"),
    Unreached(("claim",), "includes/pauses.lua", ("try('HLEN', k.pauses)",), "a claim has looked before"),
    Unreached(("claim",), "includes/rates.lua", ("try('HLEN', k.rates)",), "but for one that is repeated, and then it is the last that is read"),
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
        ("enqueue",), "includes/ring.lua", ("policy.by_seq and seq <", "seq, lane.tenant)"), "a new message is the newest of its lane"
    ),
    Unreached(
        ("reclaim",), "includes/places.lua", ("try('ZREM', k.lane(h.lane), mid)", "call('ZREM', k.delayed, mid)", "call('ZREM', k.delayed_names, mid)", "if h.state ~= 'x' then call"),
        "it ends what is in flight",
    ),
    Unreached(
        ("claim", "promote", "reclaim"), "includes/places.lua",
        ("try('ZREM', k.dead(tenant)", "EXISTS', k.dead(tenant)"), "no dead letter ends there",
    ),
    Unreached(
        ("reclaim",), "includes/lane_leaves.lua", ("if call('EXISTS', k.lane(lane.name)) == 0",),
        "it takes no message out of a lane",
    ),
    Unreached(
        ("enqueue", "settle", "promote", "reclaim"), "includes/policy_drr.lua", ("rounds * QUANTUM",),
        "only a claim comes to those whose turn it is",
    ),
    Unreached(
        ("enqueue", "promote", "reclaim"), "includes/policy_drr.lua", ("deficit_of", "- charge, tenant)"),
        "only who claims or settles charges a tenant of a pool",
    ),
    Unreached(
        ("enqueue",), "includes/policy_drr.lua", ("'ZREM'",), "a new message makes nobody leave"
    ),
    Unreached(
        ("enqueue",), "includes/turns.lua", ("leave",), "a new message makes nobody leave"
    ),
    Unreached(
        ("promote", "reclaim"), "includes/charges.lua", ("'mean_us'",), "only those who claim and settle charge by time"
    ),
    Unreached(
        ("enqueue",), "includes/guarantees.lua", ("'ZREM'",), "whoever takes turns goes on when messages come"
    ),
    Unreached(
        BY_ITSELF, "includes/guarantees.lua", ("guarantees.look",), "only who sets or mends them asks for more than is noted",
    ),
    Unreached(
        ("enqueue",), "includes/uses.lua", ("uses.known", "uses.now_known", "uses.of", "uses.beyond"),
        "it notes who uses a group: only who sets a guarantee or a limit, or looks, asks",
    ),
    Unreached(
        ("claim", "promote"), "includes/going_first.lua", ("guarantees.scopes_of",), "neither frees a slot"
    ),
    Unreached(
        ("claim", "settle", "reclaim", "promote"), "includes/going_first.lua", ("guarantees.drop_strangers",),
        "only reconcile looks for them",
    ),
    Unreached(
        ("claim", "promote"), "includes/slots.lua", ("'HDEL'", "'freed_late'", "EXISTS"), "neither frees a slot"
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
