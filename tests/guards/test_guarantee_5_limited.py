"""Guarantee 5: after any claim no group holds more than its limit; all of a message's groups are taken, or none."""

from __future__ import annotations

import contextlib
from typing import Any

from fairqueue import FairQueueError, Limit, NewMessage
from fairqueue._engine.keys import join, key
from fairqueue.testing import faults
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, held, leases_of

ADMIT = "includes/claim_admit.lua"
PICK = "includes/claim_pick.lua"
CONFIGURE = "configure.lua"
BOTH = [Limit("tenant", default=2), Limit("org", default=1, key="org")]


async def send(queue: Queue, count: int, tenant: str = "a", **options: Any) -> None:
    await queue.enqueue_many(
        [NewMessage(n, tenant=tenant, id=f"{tenant}{n}", **options) for n in range(count)]
    )


@guard(
    "guarantee 5",
    "one claim takes no more than the limit",
    without("the check", ADMIT, "return free > woken + gate.handed_back", "return true"),
    without(
        "counting what this claim takes", PICK, "gate.held, gate.taken = gate.held + 1, gate.taken + 1", ""
    ),
)
async def test_one_claim_takes_no_more_than_the_limit(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await send(queue, 10)
    assert await claimed(queue, 10) == ["a0", "a1", "a2"]
    assert await held(queue, "tenant", "a") == 3


@guard(
    "guarantee 5",
    "several claims together take no more than the limit",
    without(
        "taking the slot in every group",
        "includes/claim_take.lua",
        "for _, group in ipairs(pick.lane.groups) do",
        "for _, group in ipairs({ pick.lane.groups[1] }) do",
    ),
)
async def test_several_claims_take_no_more_than_the_limit(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    for tenant in ("a", "b", "c"):
        await send(queue, 1, tenant, metadata={"org": "o"})
    assert await claimed(queue) == ["a0"]
    assert await claimed(queue, 10) == []
    assert await held(queue, "org", "o") == 1


@guard(
    "guarantee 5",
    "all of a message's groups are taken, or none",
    without(
        "every group but the first",
        ADMIT,
        "  local full\n  for _, group in ipairs(lane.groups) do",
        "  local full\n  for _, group in ipairs({ lane.groups[1] }) do",
    ),
    without(
        "every group but the last",
        ADMIT,
        "  local full\n  for _, group in ipairs(lane.groups) do",
        "  local full\n  for _, group in ipairs({ lane.groups[#lane.groups] }) do",
    ),
)
async def test_all_groups_are_taken_or_none(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=BOTH)
    await send(queue, 4, "a", metadata={"org": "x"})
    assert await claimed(queue, 10) == ["a0"]
    assert (await held(queue, "tenant", "a"), await held(queue, "org", "x")) == (1, 1)
    for org in ("y", "z"):
        await queue.enqueue(0, tenant="a", id=org, metadata={"org": org})
    assert await claimed(queue, 10) == ["y"]
    assert (await held(queue, "tenant", "a"), await held(queue, "org", "z")) == (2, 0)


@guard(
    "guarantee 5",
    "limit 0 admits nothing, None is unlimited, and a change holds from the next claim on",
    without(
        "the group's own limit",
        "includes/gates.lua",
        "local value = is_limit(own) and own or default",
        "local value = default",
    ),
)
async def test_limits_are_live(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await send(queue, 10)
    await queue.limits.set("tenant", "a", 0)
    assert await claimed(queue, 10) == []
    await queue.limits.set("tenant", "a", 1)
    assert await claimed(queue, 10) == ["a0"]
    await queue.limits.set("tenant", "a", None)
    assert len(await claimed(queue, 10)) == 9


@guard(
    "guarantee 5",
    "a group whose key is broken admits nothing until it is counted again",
    without(
        "refusing what cannot be counted",
        "includes/gates.lua",
        "if failed(held) then return nil end",
        "if failed(held) then return 0 end",
    ),
)
async def test_a_broken_group_admits_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await send(queue, 1)
    assert await claimed(queue) == ["a0"]
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await send(queue, 2)
    assert await claimed(queue, 10) == []
    assert list(await leases_of(queue)) == ["a/a0"]
    assert await held(queue, "tenant", "a") == 1


@guard(
    "guarantee 5",
    "a client that was running when a limit was declared counts against it",
    without(
        "refusing what was resolved by old settings",
        "includes/revision.lua",
        "if revision ~= '' and revision ~= is then",
        "if false then",
    ),
    without(
        "another revision for other settings",
        CONFIGURE,
        "local changed, raised = {}, false",
        "local changed, raised = {}, true",
    ),
    without(
        "resolving the groups again",
        "fairqueue.producing:_Parcel._call",
        "_lane(engine, message)",
        "row.lane",
    ),
)
async def test_a_client_that_runs_counts_against_a_new_limit(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await make_queue(limits=[Limit("org", default=1, key="org")])
    await send(queue, 2, metadata={"org": "o"})
    assert await claimed(queue, 10) == ["a0"]
    assert await held(queue, "org", "o") == 1


@guard(
    "guarantee 5",
    "a declaration that the network brings late does not take a newer one's limits away",
    without("the number of its sending", CONFIGURE, "local answered = recorded(REPLAY_MS)", "local answered"),
)
async def test_a_declaration_that_comes_late_takes_no_limits_away(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=9)])
    engine = queue._engine
    call = engine.calls.configure(engine.settle_streams.take(), "late", {"limits": "[]"}, [])
    words = ["EVAL", call.script.source, 1, engine.calls.root]
    late, repeated = call.sending(), call.sending()
    await engine.command(*words, *repeated)
    await make_queue(limits=[Limit("tenant", default=1)])
    with contextlib.suppress(FairQueueError):  # refused; what counts is what it leaves
        await engine.command(*words, *late)
    await send(queue, 2)
    assert await claimed(queue, 10) == ["a0"]


@guard(
    "guarantee 5",
    "who connects again does not bring back limits that were replaced meanwhile",
    without(
        "declaring once",
        "fairqueue._engine.agreement:Agreement.reach",
        "if self.known.stored:",
        "if False:",
    ),
)
async def test_who_connects_again_brings_no_limits_back(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=9)])
    await queue.close()
    await make_queue(limits=[Limit("tenant", default=1)])
    await queue.connect()
    await send(queue, 2)
    assert await claimed(queue, 10) == ["a0"]


@guard(
    "guarantee 5",
    "where what is stored is no limit the declared default holds",
    without(
        "reading the declaration",
        "includes/gates.lua",
        "if value and not is_limit(value) then value = declared_default(limit_of_group(group)) end",
        "",
    ),
    without("looking at the value", "includes/gates.lua", "return text == 'none' or", "return text or"),
)
async def test_a_limit_that_is_no_number(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    limits = key(queue._engine.calls.root, "limits")
    for damage in (("tenant", "nan"), (join("tenant", "b"), "x")):
        await queue._engine.command("HSET", limits, *damage)
    for tenant in "ab":
        await send(queue, 3, tenant)
        assert await claimed(queue, 10) == [f"{tenant}0", f"{tenant}1"]
    await queue.audit(fix=True)
