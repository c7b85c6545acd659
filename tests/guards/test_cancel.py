"""A cancel is final, but done work is done."""

from __future__ import annotations

from fairqueue import FairQueue
from fairqueue._engine.keys import join
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import raw
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, told


async def running(queue: Queue) -> object:
    """A message that is cancelled while it runs; its lease."""
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim(1)
    await queue.cancel("a", "m")
    return lease


async def ends(queue: FairQueue[object]) -> list[str]:
    """What was counted, and what is delivered again."""
    totals = (await queue.stats()).totals
    return [name for name in ("completed", "cancelled") if totals[name]] + await claimed(queue, 5)


@guard(
    "cancel",
    "a cancelled message that is released or fails does not run again",
    without(
        "the mark at a settle",
        "settle.lua",
        "if h.marked == 'c' and row.action ~= 'complete' then row.action = 'cancel' end",
        "",
    ),
)
async def test_what_was_cancelled_does_not_come_back(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    lease = await running(queue)
    assert await told(lease.release()) == "cancelled"  # type: ignore[attr-defined]
    assert await ends(queue) == ["cancelled"]


@guard(
    "cancel",
    "a cancelled message whose lease expires does not run again",
    without("the mark at a reclaim", "reclaim.lua", "if h.marked == 'c' then", "if false then"),
)
async def test_what_was_cancelled_is_not_reclaimed(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await running(queue)
    clock.advance(31)
    await queue.reclaim()
    assert await ends(queue) == ["cancelled"]


@guard(
    "cancel",
    "done work of a cancelled message is done",
    without("letting a completion win", "settle.lua", " and row.action ~= 'complete'", ""),
)
async def test_done_work_is_done(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    lease = await running(queue)
    assert await told(lease.complete()) == "done"  # type: ignore[attr-defined]
    assert await ends(queue) == ["completed"]


@guard(
    "cancel",
    "whoever runs it is told by the next extend",
    without("telling", "extend.lua", "if h and h.marked == 'c' then", "if false then"),
)
async def test_who_runs_it_is_told(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    lease = await running(queue)
    await lease.extend()  # type: ignore[attr-defined]
    assert lease.cancelled.is_set()  # type: ignore[attr-defined]
    await lease.release()  # type: ignore[attr-defined]


@guard(
    "cancel",
    "what a cut settle has left of a cancelled message does not make it anew",
    without("dropping its lease record", "includes/resting.lua", "if record then left_flight(mid) end", ""),
)
async def test_a_record_that_was_left_makes_nothing_anew(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim(1)
    record = await raw(queue, "HGET", "leases", args=(join("a", "m"),))
    await lease.release()
    await raw(queue, "HSET", "leases", args=(join("a", "m"), record))
    await raw(queue, "ZADD", "deadlines", args=(1, join("a", "m")))
    await queue.cancel("a", "m")
    await queue.reclaim()
    clock.advance(31)
    assert await ends(queue) == ["cancelled"]
    assert await queue.dead_letters.count("a") == 0
    assert await queue.get("a", "m") is None


@guard(
    "cancel",
    "a purge beside a worker skips nothing that waited",
    without(
        "walking again until nothing is found",
        "fairqueue.end_calls:purge",
        "while found := await _purge_once(engine, tenant, of_queue, newest):\n        purged += found",
        "purged += await _purge_once(engine, tenant, of_queue, newest)",
    ),
)
async def test_a_purge_skips_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m", queue="q1")
    await queue.enqueue(2, tenant="a", id="n", queue="q2")
    (lease,) = await queue.claim(1)
    run, steps = queue._engine.run_replayable, []

    async def beside(build: object, *args: object, **options: object) -> object:
        """The worker gives its message back when the walk has passed the place."""
        answer = await run(build, *args, **options)  # type: ignore[arg-type]
        steps.append(answer)
        if len(steps) == 2:
            await lease.release()
        return answer

    queue._engine.run_replayable = beside  # type: ignore[method-assign,assignment]
    await queue.purge("a")
    assert await claimed(queue, 5) == []


@guard(
    "cancel",
    "a message that runs is cancelled though its header was destroyed",
    without(
        "asking for its lease",
        "cancel.lua",
        "if lease then return salvage_header",
        "if false then return salvage_header",
    ),
)
async def test_what_runs_without_a_header_is_cancelled(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim(1)
    await faults.delete(queue, "header", "a", "m")
    await queue.cancel("a", "m")
    await told(lease.release())
    assert await ends(queue) == ["cancelled"]


@guard(
    "cancel",
    "what is accepted while a purge walks stays",
    without("asking when it was accepted", "purge.lua", " or h.seq > newest", ""),
)
async def test_a_purge_leaves_what_is_new(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    run, sent = queue._engine.run_replayable, []

    async def beside(build: object, *args: object, **options: object) -> object:
        """A producer sends one more before the walk comes to the place."""
        if not sent:
            sent.append("new")
            await queue.enqueue(2, tenant="a", id="new")
        return await run(build, *args, **options)  # type: ignore[arg-type]

    queue._engine.run_replayable = beside  # type: ignore[method-assign,assignment]
    assert await queue.purge("a") == 1
    assert await claimed(queue, 5) == ["new"]
