"""Rule 6 of slots: a record that was destroyed blocks nothing; the header says what is true."""

from __future__ import annotations

from fairqueue._engine.keys import key, lane_name
from fairqueue.errors import DamagedKeyError
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import (
    LIMITS,
    RETRY,
    claimed,
    four,
    held,
    leases_of,
    put_slot,
    slots,
    state,
    told,
)

NO_RECORD = without(
    "settling by the header when the record is gone",
    "settle.lua",
    "if h.state == 'f' and not lease then return leave_flight(row, nil, h) end",
    "",
)


@guard(
    "slots 6",
    "what cannot be written whole is refused before anything is written",
    without(
        "asking for what nobody can write again",
        "includes/irreplaceable.lua",
        "for _, key in ipairs({ k.body, k.counters, k.limits }) do call('HLEN', key) end\n",
        "",
    ),
)
async def test_a_complete_that_cannot_be_written_whole_changes_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    body, root = key(queue._engine.calls.root, "body"), queue._engine.calls.root
    await queue._engine.command("RENAME", body, root + "kept")
    await queue._engine.command("SET", body, "not what it was")
    assert isinstance(await told(lease.complete()), DamagedKeyError)
    assert await held(queue, "tenant", "a") == 1
    await queue._engine.command("RENAME", root + "kept", body)
    assert await state(queue, "a", "m0") == "in_flight"
    assert await told(lease.complete()) == "done"


@guard(
    "slots 6", "an in-flight record deleted by hand still lets complete through and frees the slot", NO_RECORD
)
async def test_a_deleted_record_lets_complete_through(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    await faults.delete(queue, "lease", "a", "m0")
    outcome = await told(lease.complete())
    assert await state(queue, "a", "m0") == "gone"
    assert await held(queue, "org", "o") == await held(queue, "tenant", "a") == 0
    assert outcome == "done"


@guard("slots 6", "an in-flight record deleted by hand still lets fail through and frees the slot", NO_RECORD)
async def test_a_deleted_record_lets_fail_through(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS, retry=RETRY)
    await queue.enqueue_many(four()[:1])
    (lease,) = await queue.claim()
    await faults.delete(queue, "lease", "a", "m0")
    outcome = await told(lease.fail("oops"))
    assert await held(queue, "org", "o") == await held(queue, "tenant", "a") == 0
    clock.advance(3)
    again = await queue.claim()
    assert [lease.message.attempt for lease in again] == [2]
    assert outcome == "retried"


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
    deadline = await told(lease.extend())
    assert await leases_of(queue) == {"a/m0": lease.token}
    assert deadline == lease.deadline


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
    without(
        "the dropping of the entry", "includes/claim_ahead.lua", "  table.insert(drops[lane], mid)\n", ""
    ),
    without("the dropping of the payload", "includes/claim_ahead.lua", "  drop_remains(mid)\n", ""),
)
async def test_a_lane_entry_without_a_header_is_dropped(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many(four()[:3])
    await faults.delete(queue, "header", "a", "m0")
    assert sorted(await claimed(queue, 3)) == ["m1", "m2"]
    root = queue._engine.calls.root
    assert sorted(await queue._engine.command("HKEYS", root + "body")) == [b"a\x1fm2", b"b\x1fm1"]
    assert (
        await queue._engine.command("EXISTS", key(root, "lane", lane_name("a", "default", "default", ())))
        == 0
    )
    await queue.reconcile()  # the counters still speak of the message that was destroyed
