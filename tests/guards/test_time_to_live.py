"""Time to live: what was not started by its instant is never started, and ends without anybody coming to its turn."""

from __future__ import annotations

from fairqueue import Limit
from fairqueue._engine.keys import join, key
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, state

RULE = "time to live"
AHEAD, PARK = "includes/claim_ahead.lua", "includes/claim_park.lua"


async def unlisted(queue: Queue, *ids: str) -> None:
    """The index has lost them: the header alone says when they expire."""
    for id_ in ids:
        await queue._engine.command("ZREM", key(queue._engine.calls.root, "expiring"), join("a", id_))


async def cut_before_the_header(queue: Queue, clock: ManualClock) -> None:
    """A claim of 20 seconds was cut when it had written the lease record of m."""
    root, mid, now = queue._engine.calls.root, join("a", "m"), clock.now_ms()
    record = join("00000001.1.cut", "me", str(now), "1", "3", "3", "", "a", "default", "default")
    await queue._engine.command("HSET", key(root, "leases"), mid, record)
    await queue._engine.command("ZADD", key(root, "deadlines"), now + 20_000, mid)


@guard(
    RULE,
    "a claim starts nothing whose instant has passed, whatever the index says",
    without("asking the header", AHEAD, "elseif expiring.passed(h) then", "elseif false then"),
)
async def test_nothing_starts_after_its_instant(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m", expires=10)
    await unlisted(queue, "m")
    clock.advance(10)
    assert await claimed(queue) == []


@guard(
    RULE,
    "a message that comes in over its own leftover slot is asked too",
    without("asking the header", PARK, " and not expiring.passed(h)\n", "\n"),
)
async def test_nothing_starts_late_over_its_leftover(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue(1, tenant="a", id="first")
    await queue.enqueue(2, tenant="a", id="m", expires=10)
    root = queue._engine.calls.root
    await queue._engine.command("HSET", key(root, "slots", "tenant", "a"), join("a", "m"), "0.leaked")
    await queue._engine.command("SADD", key(root, "groups"), join("tenant", "a"))
    await unlisted(queue, "m")
    clock.advance(10)
    assert await claimed(queue) == []
    await queue.reconcile()
    await queue.complete_many(await queue.claim())
    assert await claimed(queue) == []


@guard(
    RULE,
    "what waits at a full group ends at its instant, though no claim comes to it",
    without("the sweep", "claim.lua", "local expired = expiring.sweep(PROMOTE)", "local expired = 0"),
    without("listing it", "enqueue.lua", "many('ZADD', k.expiring, expiring)", ""),
)
async def test_what_is_blocked_ends_in_time(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue(1, tenant="a", id="runs")
    await queue.enqueue(2, tenant="a", id="m", expires=10)
    assert await claimed(queue, 2) == ["runs"]
    clock.advance(10)
    assert await claimed(queue) == []
    assert await state(queue, "a", "m") == "dead"


@guard(
    RULE,
    "no script ends more of them than it may, and the next one goes on",
    without(
        "the bound", "includes/expire_due.lua", "'-inf', int(now), 'LIMIT', 0, limit)", "'-inf', int(now))"
    ),
)
async def test_the_sweep_is_bounded(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    for n in range(5):
        await queue.enqueue(n, tenant="a", id=f"m{n}", expires=10)
    clock.advance(10)
    assert [await queue._engine.run(queue._engine.calls.promote(2)) for _ in range(4)] == [2, 2, 1, 0]
    assert (await queue.stats()).dead == 5


@guard(
    RULE,
    "what is given back uncounted expires as before",
    without("listing it again", "settle.lua", "  expiring.list(row.mid, h)\n", ""),
)
async def test_what_is_released_is_listed_again(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m", expires=10)
    await queue.release_many(await queue.claim(), delay=60)
    clock.advance(10)
    await promote(queue._engine)
    assert await state(queue, "a", "m") == "dead"


@guard(
    RULE,
    "what was started does not expire: a failure or a crash is retried",
    without(
        "asking whether it was",
        "includes/expiring.lua",
        "h.expires == '' or h.attempt > 0",
        "h.expires == ''",
    ),
)
async def test_what_was_started_is_retried(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m", expires=10)
    await queue.claim()
    clock.advance(31)
    await queue.reclaim()
    assert await claimed(queue) == ["m"]


@guard(
    RULE,
    "an entry that comes too early ends nothing: the header says when",
    without("asking the header", "includes/expire_due.lua", "if waits and waits > now then", "if false then"),
)
async def test_a_damaged_index_ends_nothing_early(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m", expires=10)
    await queue._engine.command("ZADD", key(queue._engine.calls.root, "expiring"), 1, join("a", "m"))
    assert await claimed(queue) == ["m"]


@guard(
    RULE,
    "a lease that a cut script left does not bring back what was dropped",
    without(
        "waiting for its end",
        "includes/expire_due.lua",
        "if call('HEXISTS', k.leases, mid) == 1 then return false end",
        "",
    ),
)
async def test_what_is_dropped_stays_gone(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(visibility_timeout=20)
    await queue.enqueue(1, tenant="a", id="m", expires=10, on_expiry="drop")
    await cut_before_the_header(queue, clock)
    clock.advance(10)
    assert await claimed(queue) == []
    clock.advance(10)
    await queue.reclaim()
    clock.advance(10)
    assert await claimed(queue) == []
    assert await state(queue, "a", "m") == "gone"


@guard(
    RULE,
    "what a claim that was cut had taken off the list expires as before",
    without(
        "listing it again",
        "reclaim.lua",
        "if h and (h.state == 'r' or h.state == 'd') then expiring.list(mid, h) end",
        "",
    ),
)
async def test_what_a_cut_claim_unlisted_expires(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m", expires=60)
    await cut_before_the_header(queue, clock)
    await unlisted(queue, "m")
    clock.advance(20)
    await queue.reclaim()
    clock.advance(40)
    await promote(queue._engine)
    assert await state(queue, "a", "m") == "dead"
