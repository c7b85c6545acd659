"""Rule 6 of slots: scripts do not roll back, so the order of their writes loses nothing wherever they are cut."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fairqueue import Limit, NewMessage, RetryPolicy
from fairqueue._engine.keys import join, key, lane_name
from fairqueue.testing import ManualClock, assert_whole, drain, faults
from tests.conftest import MakeQueue
from tests.guards.cuts import Round, every_cut
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, held, leases_of, put_slot, slots, state, told

LIMITS = [Limit("tenant", default=2), Limit("org", default=2, key="org")]
RETRY = RetryPolicy.fixed(3, max_attempts=5, max_crashes=3)
ALL = ["m0", "m1", "m2", "m3"]
PLACES = "includes/places.lua"


def four(**options: Any) -> list[NewMessage[int]]:
    """Four messages of two tenants that share an org."""
    return [NewMessage(n, tenant="ab"[n % 2], id=f"m{n}", metadata={"org": "o"}, **options) for n in range(4)]


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
            moved_at = int(now), lane = row.lane,
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
        "  local at = call('HINCRBY', k.counters, 'dead', 1)\n",
        "  h.state = 'x'\n  put_header(mid, h)\n  local at = call('HINCRBY', k.counters, 'dead', 1)\n",
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
            await told(one.queue.engine.run(one.queue.engine.calls.promote(100)))
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


# --- records destroyed by hand --------------------------------------------------------------------------------

NO_RECORD = without(
    "settling by the header when the record is gone",
    "settle.lua",
    "if h.state == 'f' and not lease then return leave_flight(row, nil, h) end",
    "",
)


@guard(
    "slots 6", "an in-flight record deleted by hand still lets complete through and frees the slot", NO_RECORD
)
async def test_a_deleted_record_lets_complete_through(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    await faults.delete(queue, "lease", "a", "m0")
    assert await told(lease.complete()) == "done"
    assert await held(queue, "org", "o") == await held(queue, "tenant", "a") == 0
    assert await state(queue, "a", "m0") == "gone"


@guard("slots 6", "an in-flight record deleted by hand still lets fail through and frees the slot", NO_RECORD)
async def test_a_deleted_record_lets_fail_through(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS, retry=RETRY)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    await faults.delete(queue, "lease", "a", "m0")
    assert await told(lease.fail("oops")) == "retried"
    assert await held(queue, "org", "o") == await held(queue, "tenant", "a") == 0
    clock.advance(3)
    (again,) = await queue.claim()
    assert again.message.attempt == 2


@guard(
    "slots 6",
    "an in-flight record deleted by hand is written again by the next extend",
    without(
        "the new record",
        "extend.lua",
        "    call('HSET', k.leases, mid, pack_lease(lease_of_header(h, consumer)))\n",
        "",
    ),
    without(
        "believing the header",
        "extend.lua",
        "if not lease and h and h.state == 'f' and h.token == token then",
        "if false then",
    ),
)
async def test_a_deleted_record_is_written_again_by_extend(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    await faults.delete(queue, "lease", "a", "m0")
    assert await told(lease.extend()) == lease.deadline
    assert await leases_of(queue) == {"a/m0": lease.token}


@guard(
    "slots 6",
    "without its record a settle frees only slots with exactly its token",
    without(
        "comparing the token before the slot is removed",
        "settle.lua",
        "free_slots(row.mid, lane, not lease and row.token or nil)",
        "free_slots(row.mid, lane, nil)",
    ),
)
async def test_without_its_record_a_settle_frees_by_token(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    await faults.delete(queue, "lease", "a", "m0")
    await put_slot(queue, "org", "o", ("a", "m0"), "somebody else's")
    assert await told(lease.complete()) == "done"
    assert await slots(queue, "org", "o") == {"a/m0": "somebody else's"}
    assert await held(queue, "tenant", "a") == 0
    await queue.reconcile()


@guard(
    "slots 6",
    "a deadline without a record requeues a message that is in flight by its header",
    without(
        "believing the header",
        "reclaim.lua",
        "local in_flight = h and h.state == 'f'",
        "local in_flight = lease and h",
    ),
    without(
        "freeing by the header",
        "reclaim.lua",
        "elseif in_flight then\n    free_slots",
        "elseif false then\n    free_slots",
    ),
)
async def test_a_deadline_without_a_record_is_requeued(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    await queue.claim()
    await faults.delete(queue, "lease", "a", "m0")
    clock.advance(31)
    assert (await queue.reclaim()).reclaimed == [("a", "m0")]
    assert await held(queue, "org", "o") == await held(queue, "tenant", "a") == 0
    assert [message.id for message in await drain(queue)] == ["m0"]


@guard(
    "slots 6",
    "a deadline with neither record nor header is dropped",
    without("the dropping", "reclaim.lua", "  left_flight(mid)\n", "  if h then left_flight(mid) end\n"),
)
async def test_a_deadline_of_nothing_is_dropped(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue_many(four()[:1])
    await queue.claim()
    for record in ("lease", "header", "body"):
        await faults.delete(queue, record, "a", "m0")
    clock.advance(31)
    await queue.reclaim()
    assert [
        found.evidence for found in (await queue.audit(fix=True)).findings if found.check == "OWNER"
    ] == []


@guard(
    "slots 6",
    "a record whose message has left flight is only cleaned up, with the slot it still describes",
    without(
        "asking whether the message is in flight",
        "reclaim.lua",
        "local in_flight = h and h.state == 'f'",
        "local in_flight = h",
    ),
    without(
        "freeing the slot",
        "reclaim.lua",
        "  if lease then\n    free_slots",
        "  if lease and in_flight then\n    free_slots",
    ),
)
async def test_a_stale_record_is_only_cleaned_up(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS, retry=RetryPolicy(max_crashes=1))
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    root, mid = queue.engine.calls.root, join("a", "m0")
    record = await queue.engine.command("HGET", key(root, "leases"), mid)
    await lease.release()
    # as a release leaves it that was cut after it had moved the message
    await queue.engine.command("HSET", key(root, "leases"), mid, record)
    await queue.engine.command("ZADD", key(root, "deadlines"), clock.now_ms(), mid)
    await put_slot(queue, "org", "o", ("a", "m0"), lease.token)
    assert (await queue.reclaim()).dead == []
    assert await held(queue, "org", "o") == 0
    assert await claimed(queue) == ["m0"]


@guard(
    "slots 6",
    "a message in flight whose header cannot be read and whose record is gone is a dead letter, payload and all",
    without("the dead letter", "reclaim.lua", "if not h and head_texts[i] then", "if false then"),
)
async def test_an_unreadable_header_without_a_record(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    await queue.claim()
    await faults.overwrite(queue, "header", "a", "m0", b"not a header")
    await faults.delete(queue, "lease", "a", "m0")
    clock.advance(31)
    await queue.reclaim()
    letters, _ = await queue.dead_letters.list("a")
    assert [(letter.message.id, letter.message.payload) for letter in letters] == [("m0", 0)]
    await queue.reconcile()


@guard(
    "slots 6",
    "a lane entry without a header is dropped with its payload",
    without("the dropping of the entry", "includes/claim_pick.lua", "  table.insert(drops[lane], mid)\n", ""),
    without("the dropping of the payload", "includes/claim_pick.lua", "  call('HDEL', k.body, mid)\n", ""),
)
async def test_a_lane_entry_without_a_header_is_dropped(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(four()[:3])
    await faults.delete(queue, "header", "a", "m0")
    assert sorted(await claimed(queue, 3)) == ["m1", "m2"]
    root = queue.engine.calls.root
    assert sorted(await queue.engine.command("HKEYS", root + "body")) == [b"a\x1fm2", b"b\x1fm1"]
    assert (
        await queue.engine.command("EXISTS", key(root, "lane", lane_name("a", "default", "default", ()))) == 0
    )
    await queue.reconcile()  # the counters still speak of the message that was destroyed


# --- a place that cannot be written ---------------------------------------------------------------------------

BROKEN_LANE = without(
    "surviving a lane that cannot be written",
    PLACES,
    "failed(try('ZADD', k.lane(h.lane), lane_score(h), mid))",
    "failed(call('ZADD', k.lane(h.lane), lane_score(h), mid))",
)


@guard("slots 6", "a reclaim whose lane is broken frees the slot and keeps the message", BROKEN_LANE)
async def test_a_requeue_whose_lane_is_broken_frees_the_slot(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    await queue.claim()
    await faults.wrong_type(queue, "lane", "a", "default")
    clock.advance(31)
    report = await told(queue.reclaim())
    assert getattr(report, "reclaimed", report) == [("a", "m0")]
    assert await held(queue, "org", "o") == 0
    assert await state(queue, "a", "m0") == "delayed"
    await queue.audit(fix=True)
    clock.advance(10)
    assert [message.id for message in await drain(queue)] == ["m0"]


@guard("slots 6", "a release whose lane is broken frees the slot and keeps the message", BROKEN_LANE)
async def test_a_release_whose_lane_is_broken_frees_the_slot(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    await faults.wrong_type(queue, "lane", "a", "default")
    assert await told(lease.release()) == "released"
    assert await held(queue, "org", "o") == 0
    assert await state(queue, "a", "m0") == "delayed"
    await queue.audit(fix=True)
    clock.advance(10)
    assert [message.id for message in await drain(queue)] == ["m0"]


@guard(
    "slots 6",
    "an enqueue into a broken lane is accepted and delivered later",
    without(
        "surviving a lane that cannot be written",
        "enqueue.lua",
        "local part = try('ZADD'",
        "local part = call('ZADD'",
    ),
)
async def test_an_enqueue_into_a_broken_lane_is_accepted(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await faults.wrong_type(queue, "lane", "a", "default")
    sent = await told(queue.enqueue(0, tenant="a", id="m0"))
    assert getattr(sent, "created", sent) is True
    assert await state(queue, "a", "m0") == "delayed"
    await queue.audit(fix=True)
    clock.advance(10)
    assert [message.id for message in await drain(queue)] == ["m0"]


@guard(
    "slots 6",
    "a message that cannot be listed among the dead letters leaves flight all the same",
    without(
        "surviving dead letters that cannot be written",
        PLACES,
        "failed(try('ZADD', k.dead(tenant), at, id_of(mid)))",
        "failed(call('ZADD', k.dead(tenant), at, id_of(mid)))",
    ),
)
async def test_a_death_that_cannot_be_listed(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    broken = queue.engine.calls.root + "dead:a"
    await queue.engine.command("SET", broken, "not what it was")
    assert await told(lease.dead_letter("enough")) == "retried"
    assert await held(queue, "org", "o") == 0
    assert await state(queue, "a", "m0") == "delayed"
    await queue.engine.command("DEL", broken)
