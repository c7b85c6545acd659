"""What is paused does not start, and what is resumed does."""

from __future__ import annotations

from fairqueue import Limit
from fairqueue._engine.keys import key
from fairqueue.testing import faults
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, told

ONE = [Limit("tenant", default=1)]


async def ready(queue: Queue, tenant: str, *ids: str, **options: object) -> None:
    for id_ in ids:
        await queue.enqueue(id_, tenant=tenant, id=id_, **options)  # type: ignore[arg-type]


@guard(
    "pauses",
    "nothing of a paused tenant starts, not even over a leftover slot of its own",
    without("asking for pauses in a claim", "includes/claim_park.lua", "if pause then return pause end", ""),
)
async def test_nothing_paused_starts(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await ready(queue, "a", "m1", "m2")
    await faults.leak_slot(queue, "tenant", "a", "m2")
    await queue.pause(tenant="a")
    assert await claimed(queue, 5) == []
    await queue.resume(tenant="a")
    await queue.reconcile()
    assert await claimed(queue, 5) == ["m1"]


@guard(
    "pauses",
    "reconcile and a new limit resume nobody",
    without(
        "the pause as a limit of its group",
        "includes/gates.lua",
        "return pauses.stands(pause) and 0 or nil",
        "return nil",
    ),
)
async def test_nobody_is_let_go_by_others(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await ready(queue, "a", "m1", "m2")
    await queue.pause(tenant="a")
    assert await claimed(queue, 5) == []
    await queue.limits.set("tenant", "a", 5)
    await queue.reconcile()
    ring = key(queue._engine.calls.root, "ring", "p", "default")
    assert await queue._engine.command("EXISTS", ring) == 0, "it takes turns again"
    await queue.resume(tenant="a")
    assert await claimed(queue, 5) == ["m1", "m2"]


@guard(
    "pauses",
    "pauses that cannot be read resume nobody",
    without(
        "taking what cannot be read for a pause",
        "includes/pauses.lua",
        "return failed(found) ~= nil or found == 1",
        "return found == 1",
    ),
)
async def test_unreadable_pauses_resume_nobody(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await ready(queue, "a", "m1")
    await queue.pause(tenant="a")
    assert await claimed(queue, 5) == []
    await faults.wrong_type(queue, "pauses")
    await queue.reconcile()
    root = queue._engine.calls.root
    assert await queue._engine.command("EXISTS", key(root, "ring", "p", "default")) == 0, (
        "it takes turns again"
    )
    await queue._engine.command("DEL", key(root, "pauses"))
    await queue.reconcile()
    assert await claimed(queue, 5) == ["m1"]


@guard(
    "pauses",
    "a claim that cannot tell what is paused starts nothing",
    without("asking before the first write", "claim.lua", "  pauses.must_be_readable()\n", ""),
)
async def test_a_claim_that_cannot_tell_starts_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await ready(queue, "a", "m1")
    await queue.pause(tenant="a")
    await faults.wrong_type(queue, "pauses")
    answer = await told(queue.claim(5))
    root = queue._engine.calls.root
    assert await queue._engine.command("HLEN", key(root, "leases")) == 0, answer
    await queue._engine.command("DEL", key(root, "pauses"))
    assert await claimed(queue, 5) == ["m1"]


@guard(
    "pauses",
    "who waits at a pause is let go when it is lifted, and a resume that was cut is ended by reconcile",
    without("waking by a resume", "resume.lua", "wake({ [group] = true })", ""),
)
async def test_who_waits_is_let_go(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await ready(queue, "a", "m1")
    await ready(queue, "b", "m2")
    await queue.pause(queue="default")
    assert await claimed(queue, 5) == []
    await queue.resume(queue="default")
    assert await claimed(queue, 5) == ["m1", "m2"]


@guard(
    "pauses",
    "nothing starts in a paused pool",
    without(
        "passing paused pools over", "includes/claim_pick.lua", "if pauses.of_pool(pool) then return end", ""
    ),
)
async def test_nothing_starts_in_a_paused_pool(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await ready(queue, "a", "m1")
    await ready(queue, "a", "m2", pool="fast")
    await queue.pause(pool="default")
    assert await claimed(queue, 5, pools=("default", "fast")) == ["m2"]
    await queue.resume(pool="default")
    assert await claimed(queue, 5) == ["m1"]


@guard(
    "pauses",
    "a slot that came free goes to who may start, not to a lane that is paused",
    without(
        "moving a paused lane on to its pause when it would be woken",
        "includes/wake_beside.lua",
        "  local pause = pauses.stopping(lane)\n  if pause then return pause end\n",
        "",
    ),
)
async def test_no_slot_is_promised_to_who_is_paused(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await ready(queue, "z", "m0", metadata={"org": "o"})
    await queue.claim(1)
    for tenant in "ab":
        await ready(queue, tenant, tenant, metadata={"org": "o"})
    assert await claimed(queue, 5) == []
    await queue.pause(tenant="a")
    await queue.limits.set("org", "o", 2)
    root = queue._engine.calls.root
    assert await queue._engine.command("HKEYS", key(root, "woken", "default", "org", "o")) == [
        b"b\x1fdefault\x1fdefault\x1forg\x1fo"
    ]
    assert await claimed(queue, 5) == ["b"]
    await queue.resume(tenant="a")
