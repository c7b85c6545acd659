"""Guarantee 1 after an outage of the server: handlers that ran on get the time to say so before anybody judges them."""

from __future__ import annotations

from fairqueue import FairQueue
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import claimed, told
from tests.support.waiting import eventually

HOLD = 15


async def judged(queue: FairQueue[str]) -> list[str]:
    """What a pass takes back that gives them 15 seconds, as the passes of workers do."""
    call = queue._engine.calls.reclaim(100, HOLD * 1000)
    _, reclaimed, _ = await queue._engine.run(call)
    return [id_ for _, id_ in reclaimed]


async def restarted(queue: FairQueue[str]) -> None:
    """The namespace remembers another run of the server than the one there is."""
    another = ["run", "0badc0de", "at", 1, "since", 1]
    await queue._engine.command("HSET", queue._engine.calls.root + "served", *another)


@guard(
    "guarantee 1",
    "a lease of before a restart is not judged at once, and not held back for good, whoever asks and however long the "
    "server has run",
    without("holding back", "reclaim.lua", "< hold then return since end", "< 0 then return 0 end"),
    without("noticing another run", "reclaim.lua", "if of ~= run or not at", "if not at"),
    without(
        "noting the run", "reclaim.lua", "call('HSET', k.served, 'run'", "call('HSET', k.served, 'other'"
    ),
)
async def test_a_lease_of_before_a_restart_is_held_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue("payload", tenant="a", id="m")
    await queue.claim()
    clock.advance(31)
    await restarted(queue)
    assert await judged(queue) == []
    clock.advance(HOLD - 1)
    assert await judged(queue) == []
    clock.advance(1)
    assert await judged(queue) == ["m"]


@guard(
    "guarantee 1",
    "what was claimed since a restart is judged like any other, also while older leases are held back",
    without("looking at each claim", "reclaim.lua", "tonumber(lease.claimed_at) >= before", "false"),
)
async def test_what_was_claimed_since_a_restart_is_judged(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    for id_ in ("old", "new"):
        await queue.enqueue("payload", tenant="a", id=id_)
    await queue.claim()
    clock.advance(20)
    await restarted(queue)
    assert await judged(queue) == []
    await queue.claim(visibility_timeout=2)
    clock.advance(12)
    assert await judged(queue) == ["new"]
    clock.advance(HOLD)
    assert await judged(queue) == ["old"]


@guard(
    "guarantee 1",
    "where no run of the server was ever noted, what was claimed since it started is judged at once",
    without("knowing when the server started", "reclaim.lua", "now - (tonumber(running) - 1) * 1000", "now"),
)
async def test_the_first_worker_of_a_namespace_waits_for_nothing(make_queue: MakeQueue) -> None:
    """On the server's clock, which its start is known by."""
    queue = await make_queue(clock=None, visibility_timeout=0.1)

    async def has_run() -> bool:
        return int((await queue._engine.command("INFO", "server"))["uptime_in_seconds"]) > 1

    await eventually(has_run, "the server to have run for a while")
    await queue.enqueue("payload", tenant="a", id="m")
    (lease,) = await queue.claim()

    async def has_expired() -> bool:
        seconds, micros = await queue._engine.command("TIME")
        return seconds + micros / 1e6 > lease.deadline.timestamp()

    # A first look in the millisecond of the claim would judge it without the guard, too.
    await eventually(has_expired, "the lease to expire")
    assert await judged(queue) == ["m"]


@guard(
    "guarantee 1",
    "what is remembered of the server may be of the wrong type: leases are judged all the same",
    without("removing what cannot be read", "reclaim.lua", "if failed(noted) then", "if false then"),
)
async def test_a_broken_memory_of_the_server_strands_nobody(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await queue._engine.command("SET", queue._engine.calls.root + "served", "no hash")
    await queue.enqueue("payload", tenant="a", id="m")
    await queue.claim()
    clock.advance(31)
    await told(judged(queue))
    clock.advance(HOLD)
    await told(judged(queue))
    assert await claimed(queue) == ["m"]


@guard(
    "guarantee 1",
    "a start of the server that is remembered as yet to come holds nobody back for good",
    without(
        "asking whether it has been",
        "reclaim.lua",
        "at and since and at <= now and since <= now",
        "at and since",
    ),
)
async def test_a_start_that_is_yet_to_come_holds_nobody_for_good(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await queue.enqueue("payload", tenant="a", id="m")
    await queue.claim()
    run, later = (await queue._engine.command("INFO", "server"))["run_id"], clock.now_ms() + 10**9
    served = queue._engine.calls.root + "served"
    await queue._engine.command("HSET", served, "run", run, "at", later, "since", later)
    clock.advance(31)
    await judged(queue)
    clock.advance(HOLD)
    await judged(queue)
    assert await claimed(queue) == ["m"]
