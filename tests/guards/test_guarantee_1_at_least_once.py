"""Guarantee 1: an enqueue that returned is never lost; a second delivery happens only after a lease expired."""

from __future__ import annotations

import asyncio
import threading

from fairqueue import Limit, NewMessage
from fairqueue._engine.replies import Accepted
from fairqueue.producing import _row
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import claimed, held, ids, raised, state, told
from tests.support.proxy import Proxy, arrive_at, lose_reply
from tests.support.waiting import eventually

ONE = [Limit("tenant", default=1)]
REPLAY = "includes/claim_replay.lua"
NO_REPLAY = without(
    "the record of the client's last claim", REPLAY, "if not stored then return", "if true then return"
)
LATE = without(
    "telling a late one",
    "includes/replay.lua",
    "ahead > 0 or ahead == 0 and tonumber(sending) > tonumber(this_call.sending)",
    "false",
)
NO_ANSWER = without(
    "the record of the client's last settle", "settle.lua", "if answered then", "if false then"
)


@guard(
    "guarantee 1",
    "a message whose worker died is delivered again, its slot freed in the same step",
    without("putting it back", "reclaim.lua", "if in_flight then take_back(mid, lease, h) end", ""),
    without(
        "freeing its slot",
        "reclaim.lua",
        "free_slots(mid, lease.lane, not in_flight and lease.token or nil)",
        "",
    ),
)
async def test_a_message_of_a_dead_worker_is_delivered_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=ONE)
    await queue.enqueue("payload", tenant="a", id="m")
    await queue.claim()
    clock.advance(31)
    await queue.reclaim()
    assert await held(queue, "tenant", "a") == 0
    assert [message.payload for message in await drain(queue)] == ["payload"]


@guard(
    "guarantee 1",
    "a lease that has not expired is not taken back",
    without(
        "the deadline",
        "reclaim.lua",
        "k.deadlines, '-inf', int(now), 'LIMIT'",
        "k.deadlines, '-inf', '+inf', 'LIMIT'",
    ),
)
async def test_a_live_lease_is_not_taken_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    await queue.claim()
    clock.advance(29)
    assert (await queue.reclaim()).reclaimed == []
    assert await claimed(queue) == []


@guard(
    "guarantee 1",
    "a lease that is extended is not taken back",
    without("moving the deadline", "extend.lua", "many('ZADD', k.deadlines, deadlines)\n", ""),
)
async def test_an_extended_lease_is_not_taken_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    clock.advance(29)
    await lease.extend()
    clock.advance(29)
    assert (await queue.reclaim()).reclaimed == []


@guard(
    "guarantee 1",
    "an id that is there already adds nothing, whatever became of the message meanwhile",
    without(
        "asking for the id", "enqueue.lua", "if stored[i] or seen[row.mid] then", "if seen[row.mid] then"
    ),
)
async def test_a_repeated_enqueue_adds_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue("first", tenant="a", id="m")
    (lease,) = await queue.claim()
    again = await queue.enqueue("second", tenant="a", id="m")
    assert (again.created, again.state.value) == (False, "in_flight")
    assert await claimed(queue) == []
    await lease.release()
    assert [message.payload for message in await drain(queue)] == ["first"]


@guard(
    "guarantee 1",
    "an id that a batch names twice is one message, the first",
    without(
        "asking the batch itself", "enqueue.lua", "if stored[i] or seen[row.mid] then", "if stored[i] then"
    ),
)
async def test_an_id_named_twice_in_a_batch_is_one_message(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    sent = await queue.enqueue_many([NewMessage(n, tenant="a", id="m") for n in (1, 2)])
    assert [one.created for one in sent] == [True, False]
    assert (await queue.stats()).ready == 1
    assert [message.payload for message in await drain(queue)] == [1]


@guard(
    "guarantee 1",
    "an enqueue whose reply was lost is repeated: one message, and it was created",
    without("the record of the client's last enqueue", "enqueue.lua", "if answered then", "if false then"),
)
async def test_an_enqueue_whose_reply_was_lost(proxy: Proxy, make_queue: MakeQueue) -> None:
    queue = await make_queue(url=proxy.url)
    proxy.next("enqueue", lose_reply())
    assert (await queue.enqueue(1, tenant="a")).created
    assert proxy.count("enqueue") > 1
    stats = await queue.stats()
    assert (stats.ready, stats.totals.enqueued) == (1, 1)


@guard(
    "guarantee 1",
    "a lost enqueue that is repeated after its message was done does not bring it back",
    without("the record of the client's last enqueue", "enqueue.lua", "if answered then", "if false then"),
)
async def test_a_repeated_enqueue_of_a_message_that_is_done(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    engine = queue._engine
    row = _row(engine, NewMessage(1, tenant="a", id="m"))
    call = engine.calls.enqueue(engine.enqueue_streams.take(), [row])
    await engine.run(call)  # and nobody heard the answer
    assert [message.id for message in await drain(queue)] == ["m"]
    assert await engine.run(call) == Accepted([(True, "ready")], {})
    assert await claimed(queue) == []


@guard(
    "guarantee 1",
    "a lost enqueue that was done is answered when it is repeated, whatever settings were declared since",
    without(
        "asking for the revision last",
        "enqueue.lua",
        "local answered = recorded(ttl)",
        "must_know(revision)\nlocal answered = recorded(ttl)",
    ),
)
async def test_a_repeated_enqueue_after_a_declaration(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    engine = queue._engine
    row = _row(engine, NewMessage(1, tenant="a", id="m"))
    call = engine.calls.enqueue(engine.enqueue_streams.take(), [row], engine.settings.revision)
    await engine.run(call)  # and nobody heard the answer
    await make_queue(limits=ONE)
    assert await told(engine.run(call)) == Accepted([(True, "ready")], {})


@guard("guarantee 1", "a claim whose reply was lost gets the same leases when it is repeated", NO_REPLAY)
async def test_a_claim_whose_reply_was_lost(proxy: Proxy, make_queue: MakeQueue) -> None:
    queue = await make_queue(url=proxy.url, limits=ONE)
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(2)])
    proxy.next("claim", lose_reply())
    leases = await queue.claim(2)
    assert ids(leases) == ["m0"]
    assert await told(leases[0].complete()) == "done"
    assert await claimed(queue) == ["m1"]


@guard(
    "guarantee 1",
    "of a lost claim a smaller one gets as many as it asks for, and the next one gets the rest",
    without("the most it asks for", REPLAY, "#given < n and given or rest", "given"),
    without(
        "the rest", REPLAY, "claim_record(given, rest) end\n  return", "claim_record(given, {}) end\n  return"
    ),
)
async def test_the_rest_of_a_lost_claim_comes_next(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(5)])
    engine = queue._engine
    stream = engine.claim_streams.take()
    await engine.run(
        engine.calls.claim(stream, 4, 30_000, "lost", ("default",))
    )  # and nobody heard the answer
    engine.claim_streams.unanswered(stream, 4, ("default",))
    assert await claimed(queue, 3) == ["m0", "m1", "m2"]
    assert await claimed(queue, 3) == ["m3", "m4"]


@guard(
    "guarantee 1",
    "leases that are handed over by a repeated claim are extended anew",
    without("the extension", REPLAY, "if to == given then call('ZADD'", "if false then call('ZADD'"),
)
async def test_repeated_leases_are_extended(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    engine = queue._engine
    stream = engine.claim_streams.take()
    await engine.run(engine.calls.claim(stream, 1, 30_000, "lost", ("default",)))
    engine.claim_streams.unanswered(stream, 1, ("default",))
    clock.advance(29)
    assert await claimed(queue) == ["m"]
    clock.advance(29)
    assert (await queue.reclaim()).reclaimed == []


@guard(
    "guarantee 1", "an enqueue that arrives when it was repeated and done with long ago stores nothing", LATE
)
async def test_an_enqueue_that_arrives_late(proxy: Proxy, make_queue: MakeQueue) -> None:
    queue = await make_queue(url=proxy.url + "?socket_timeout=0.3")
    gate = threading.Event()
    proxy.next("enqueue", arrive_at(gate))
    await queue.enqueue(1, tenant="a", id="m")
    assert [message.id for message in await drain(queue)] == ["m"]
    await queue.enqueue(2, tenant="a", id="n")
    gate.set()
    await eventually(lambda: not proxy.under_way, "the first enqueue to arrive")
    assert [message.id for message in await drain(queue)] == ["n"]


@guard(
    "guarantee 1",
    "a claim that arrives when it was repeated and answered takes nothing, for nobody would get it",
    LATE,
    without(
        "recording what was sent again",
        "includes/claim_take.lua",
        " or this_call.again then claim",
        " then claim",
    ),
)
async def test_a_claim_that_arrives_late(proxy: Proxy, make_queue: MakeQueue) -> None:
    queue = await make_queue(url=proxy.url + "?socket_timeout=0.3")
    gate = threading.Event()
    proxy.next("claim", arrive_at(gate))
    assert await claimed(queue) == []  # the second sending's answer
    await queue.enqueue(1, tenant="a", id="m")
    gate.set()
    await eventually(lambda: not proxy.under_way, "the first claim to arrive")
    assert await claimed(queue) == ["m"]


@guard("guarantee 1", "a settle whose reply was lost is answered as the first time", NO_ANSWER)
async def test_a_settle_whose_reply_was_lost(proxy: Proxy, make_queue: MakeQueue) -> None:
    queue = await make_queue(url=proxy.url, limits=ONE)
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    proxy.next("settle", lose_reply())
    assert await told(lease.complete()) == "done"
    assert proxy.count("settle") > 1


@guard("guarantee 1", "a failure whose reply was lost is answered as the first time", NO_ANSWER)
async def test_a_failure_whose_reply_was_lost(proxy: Proxy, make_queue: MakeQueue) -> None:
    queue = await make_queue(url=proxy.url)
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    proxy.next("settle", lose_reply())
    assert await told(lease.fail("oops")) == "retried"
    assert (await queue.stats()).totals.failed == 1


@guard(
    "guarantee 1",
    "what a cancelled claim would have got is given back at once, uncounted",
    without(
        "giving it back",
        "fairqueue.consuming:Consumer.exchange",
        "self._tasks.start(self._give_back(task))",
        "pass",
    ),
)
async def test_a_cancelled_claim_is_given_back(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await queue.enqueue(1, tenant="a", id="m")
    claiming = asyncio.ensure_future(queue.claim())
    await asyncio.sleep(0)  # it has begun
    claiming.cancel()
    (ended,) = await asyncio.gather(claiming, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)

    async def released() -> int:
        return (await queue.stats()).totals.released

    await eventually(released, "the message to be given back", deadline=20)  # shorter than a proof may take
    (lease,) = await queue.claim()
    assert lease.message.attempt == 1


@guard(
    "guarantee 1",
    "an enqueue that is refused stores nothing of it",
    without(
        "making all rows before the first is sent",
        "fairqueue.producing:enqueue_many",
        "rows = [(message, _row(engine, message)) for message in messages]",
        "await enqueue_many(engine, messages[:1]) if len(messages) > 1 else None\n"
        "    rows = [(message, _row(engine, message)) for message in messages]",
    ),
)
async def test_a_refused_batch_stores_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    batch = [NewMessage(1, tenant="a", id="fine"), NewMessage(object(), tenant="a", id="not JSON")]
    assert await raised(queue.enqueue_many(batch)) == "InvalidMessageError"
    assert await state(queue, "a", "fine") == "gone"
