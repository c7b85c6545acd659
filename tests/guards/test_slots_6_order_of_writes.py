"""Rule 6 of slots: scripts do not roll back, so the order of their writes loses nothing wherever they are cut."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from fairqueue import FairQueueError
from fairqueue._engine.keys import key
from fairqueue.testing import ManualClock, assert_whole, drain
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import (
    LIMITS,
    RETRY,
    Queue,
    four,
    leases_of,
    slots,
    state,
    told,
)
from tests.support.cuts import Round, every_cut

ALL = ["m0", "m1", "m2", "m3"]
PLACES = "includes/places.lua"


async def cut_everywhere(
    make_queue: MakeQueue, script: str, act: Callable[[Round], Awaitable[list[str]]]
) -> None:
    """In every round ``act`` has the script cut and mends what a client would; then nothing may be missing."""
    queue = await make_queue(limits=LIMITS, retry=RETRY)
    async for one in every_cut(queue, script):
        assert sorted(await act(one)) == ALL, str(one)
        await queue.audit(fix=True)
        try:
            await assert_whole(queue)
        except AssertionError as error:
            raise AssertionError(f"{one}: {error}") from error


async def later(queue: Queue, clock: ManualClock) -> list[str]:
    """What runs once leases have expired, retries are due and maintenance has had its turn."""
    clock.advance(31)
    await queue.reclaim()
    await queue.reconcile()
    clock.advance(31)
    return [message.id for message in await drain(queue)]


@guard(
    "slots 6",
    "wherever an enqueue is cut, repeating it stores every message once",
    without(
        "the header as the last write, the commit mark",
        "enqueue.lua",
        "local function write_lane(name, ready)",
        """for _, row in ipairs(fresh) do
          call('HSET', k.head, row.mid, pack_header({
            state = row.state, token = '', via = 'e', attempt = 0, crashes = 0, deliveries = 0, redrives = 0, noted = 0,
            max_attempts = '', priority = row.priority, cost = row.cost, seq = row.seq, enqueued_at = int(now),
            moved_at = int(now), expires = '', marked = '', lane = row.lane,
          }))
        end
        local function write_lane(name, ready)""",
    ),
)
async def test_nothing_is_lost_wherever_an_enqueue_is_cut(make_queue: MakeQueue) -> None:
    async def act(one: Round) -> list[str]:
        async with one.knife():
            await told(one.queue.enqueue_many(four()))
        await one.queue.enqueue_many(four())
        return [message.id for message in await drain(one.queue)]

    await cut_everywhere(make_queue, "enqueue", act)


@guard(
    "slots 6",
    "wherever a claim is cut, every message is delivered",
    without(
        "the order: the lane is left before the record is written",
        "includes/claim_take.lua",
        "  many('HSET', k.leases, leases)\n",
        "  leave_lanes()\n  many('HSET', k.leases, leases)\n",
    ),
)
async def test_nothing_is_lost_wherever_a_claim_is_cut(make_queue: MakeQueue, clock: ManualClock) -> None:
    async def act(one: Round) -> list[str]:
        await one.queue.enqueue_many(four())
        async with one.knife():
            await told(one.queue.claim(2))
        return await later(one.queue, clock)

    await cut_everywhere(make_queue, "claim", act)


@guard(
    "slots 6",
    "wherever a failure is cut, its message is retried",
    without(
        "the order: the header says delayed before the due time is written",
        PLACES,
        "  call('ZADD', k.delayed, due, mid)\n",
        "",
    ).also(
        PLACES,
        "  if call('ZRANK', k.delayed, mid) == 0 then",
        "  call('ZADD', k.delayed, due, mid)\n  if call('ZRANK', k.delayed, mid) == 0 then",
    ),
)
async def test_nothing_is_lost_wherever_a_failure_is_cut(make_queue: MakeQueue, clock: ManualClock) -> None:
    async def act(one: Round) -> list[str]:
        await one.queue.enqueue_many(four())
        leases = await one.queue.claim(2)
        async with one.knife():
            await told(one.queue.fail_many(leases, "oops"))
        return await later(one.queue, clock)

    await cut_everywhere(make_queue, "settle", act)


LANE_FIRST = without(
    "the order: the header says ready before the message is in its lane",
    PLACES,
    "  if failed(try('ZADD', k.lane(h.lane), lane_score(h), mid)) then",
    "  h.state = 'r'\n  put_header(mid, h)\n  if failed(try('ZADD', k.lane(h.lane), lane_score(h), mid)) then",
)


@guard("slots 6", "wherever a release is cut, its message is delivered again", LANE_FIRST)
async def test_nothing_is_lost_wherever_a_release_is_cut(make_queue: MakeQueue, clock: ManualClock) -> None:
    async def act(one: Round) -> list[str]:
        await one.queue.enqueue_many(four())
        leases = await one.queue.claim(2)
        async with one.knife():
            await told(one.queue.release_many(leases))
        return await later(one.queue, clock)

    await cut_everywhere(make_queue, "settle", act)


@guard("slots 6", "wherever a reclaim is cut, the expired messages are delivered again", LANE_FIRST)
async def test_nothing_is_lost_wherever_a_reclaim_is_cut(make_queue: MakeQueue, clock: ManualClock) -> None:
    async def act(one: Round) -> list[str]:
        await one.queue.enqueue_many(four())
        await one.queue.claim(2)
        clock.advance(31)
        async with one.knife():
            await told(one.queue.reclaim())
        return await later(one.queue, clock)

    await cut_everywhere(make_queue, "reclaim", act)


@guard(
    "slots 6",
    "wherever a death is cut, the message is a dead letter or runs again",
    without(
        "the order: the header says dead before the letter is listed",
        PLACES,
        "  local at = numbers('dead', 1)\n",
        "  h.state = 'x'\n  put_header(mid, h)\n  local at = numbers('dead', 1)\n",
    ),
)
async def test_nothing_is_lost_wherever_a_death_is_cut(make_queue: MakeQueue, clock: ManualClock) -> None:
    async def act(one: Round) -> list[str]:
        await one.queue.enqueue_many(four())
        (lease,) = await one.queue.claim()
        async with one.knife():
            await told(lease.dead_letter("enough"))
        ran = await later(one.queue, clock)
        await one.queue.dead_letters.redrive_all(lease.message.tenant)
        return ran + [message.id for message in await drain(one.queue)]

    await cut_everywhere(make_queue, "settle", act)


@guard(
    "slots 6",
    "wherever a promote is cut, what is due is delivered",
    without(
        "the order: the due time is removed before the message is in its lane",
        "includes/promote_due.lua",
        "  for i, mid in ipairs(due) do\n",
        "  many('ZREM', k.delayed, due)\n  for i, mid in ipairs(due) do\n",
    ),
)
async def test_nothing_is_lost_wherever_a_promote_is_cut(make_queue: MakeQueue, clock: ManualClock) -> None:
    async def act(one: Round) -> list[str]:
        await one.queue.enqueue_many(four(delay=5))
        clock.advance(5)
        async with one.knife():
            await told(one.queue._engine.run(one.queue._engine.calls.promote(100)))
        return await later(one.queue, clock)

    await cut_everywhere(make_queue, "promote", act)


@guard(
    "slots 6",
    "wherever a redrive is cut, repeating it brings every dead letter back",
    without(
        "the order: the letters are taken off the list before they are in their lanes",
        "redrive.lua",
        "for i, letter in ipairs(letters) do\n",
        "for _, letter in ipairs(letters) do call('ZREM', k.dead(tenant), id_of(letter.mid)) end\n"
        "for i, letter in ipairs(letters) do\n",
    ),
)
async def test_nothing_is_lost_wherever_a_redrive_is_cut(make_queue: MakeQueue, clock: ManualClock) -> None:
    async def act(one: Round) -> list[str]:
        await one.queue.enqueue_many(four())
        for lease in await one.queue.claim(2):
            await lease.dead_letter("enough")
        async with one.knife():
            await told(one.queue.dead_letters.redrive_all("a"))
        for tenant in ("a", "b"):
            await one.queue.dead_letters.redrive_all(tenant)
        return await later(one.queue, clock)

    await cut_everywhere(make_queue, "redrive", act)


@guard(
    "slots 6",
    "wherever a redrive or a purge is cut, the next reconcile makes the dead letters those that are dead",
    without(
        "the mark of the tenant whose letters are changed",
        PLACES,
        "  call('SADD', k.doubtful, at_letters[tenant])\n",
        "",
    ),
    without(
        "looking through them",
        "audit_dead.lua",
        "if fix == 1 and (h or not text) then call('ZREM', k.dead(of), page[2][i]) end",
        "",
    ),
)
async def test_letters_are_those_that_are_dead_wherever_a_redrive_or_purge_is_cut(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    async def act(one: Round) -> list[str]:
        dead = one.queue.dead_letters
        await one.queue.enqueue_many(four())
        for lease in await one.queue.claim(4):
            await lease.dead_letter("enough")
        async with one.knife():
            await told(dead.redrive_all("a"))
            await told(dead.purge("b", "m1"))
        await one.queue.reconcile()
        are_dead = {id_: await state(one.queue, "ab"[int(id_[1]) % 2], id_) == "dead" for id_ in ALL}
        assert await dead.count("a") + await dead.count("b") == sum(are_dead.values()), str(one)
        for tenant in ("a", "b"):
            await dead.redrive_all(tenant)
        await later(one.queue, clock)
        return ALL

    for script in ("redrive", "purge_dead"):
        await cut_everywhere(make_queue, script, act)


@guard(
    "slots 6",
    "wherever a completion is cut, it stands or its message is delivered again; no slot is left for good",
    without(
        "the order: the records are dropped before the slots are freed",
        PLACES,
        "  flush_slots()\n  many('HDEL', k.leases, landed)\n",
        "  many('HDEL', k.leases, landed)\n  flush_slots()\n",
    ),
)
async def test_no_slot_outlives_its_record_wherever_a_completion_is_cut(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    async def act(one: Round) -> list[str]:
        await one.queue.enqueue_many(four())
        leases = await one.queue.claim(2)
        async with one.knife():
            await told(one.queue.complete_many(leases))
        records = await leases_of(one.queue)
        for group, id_ in (("tenant", "a"), ("tenant", "b"), ("org", "o")):
            taken = await slots(one.queue, group, id_)
            assert {mid: records.get(mid) for mid in taken} == taken, str(one)
        done = [id_ for id_ in ALL if await state(one.queue, "ab"[int(id_[1]) % 2], id_) == "gone"]
        return done + await later(one.queue, clock)

    await cut_everywhere(make_queue, "settle", act)


@guard(
    "slots 6",
    "a counter that is no number ends no script half way",
    without(
        "counting anew",
        "includes/begin.lua",
        "if not is and command == 'HINCRBY' then return counted_anew(refusal, key, ...) end",
        "",
    ),
)
async def test_a_counter_that_is_no_number_ends_no_script(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    root = queue._engine.calls.root
    await queue.enqueue("m", tenant="a", id="m")
    await queue._engine.command(
        "HSET", key(root, "totals"), "claimed", "x", "completed", "x", "enqueued", "x"
    )
    await queue._engine.command("HSET", key(root, "counters"), "seq", "x", "claims", "x")
    outcomes: list[str] = []
    with contextlib.suppress(FairQueueError):
        await queue.enqueue("n", tenant="a", id="n")
        outcomes += await queue.complete_many(await queue.claim(2))
    assert outcomes == ["done", "done"]
    totals = (await queue.stats()).totals
    assert (totals.enqueued, totals.claimed, totals.completed) == (1, 2, 2)
