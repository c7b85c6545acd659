"""Bounded backlogs and ids that were seen: nothing beyond the bound, nothing twice, and nothing refused that is not there."""

from __future__ import annotations

from itertools import count

from fairqueue import BacklogFullError, NewMessage
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, raised, state, told
from tests.support.cuts import Cut, cut, every_cut

RULE = "backlog"


async def send(queue: Queue, *ids: str, **options: object) -> None:
    await queue.enqueue_many([NewMessage(id_, tenant="a", id=id_, **options) for id_ in ids])  # type: ignore[arg-type]


@guard(
    RULE,
    "no more messages of a tenant wait than its backlog may hold",
    without("what waits", "enqueue.lua", "if waits + more > most then", "if more > most then"),
    without("what is delayed", "enqueue.lua", "math.max(0, count_in(gauges[2]) or 0)", "0"),
)
async def test_no_more_wait_than_may(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.limits.set_backlog("a", 2)
    await send(queue, "m1")
    await send(queue, "m2", delay=60)
    assert await raised(send(queue, "m3")) == BacklogFullError.__name__
    assert await state(queue, "a", "m3") == "gone"


@guard(
    RULE,
    "of a batch all new messages of a tenant go in, or none",
    without("counting them", "enqueue.lua", "added[tenant], count_in", "1, count_in"),
)
async def test_all_or_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.limits.set_backlog("a", 2)
    assert await raised(send(queue, "m1", "m2", "m3")) == BacklogFullError.__name__
    assert (await queue.stats("a")).ready == 0


@guard(
    RULE,
    "an id that was accepted within its time is not accepted again",
    without("asking for it", "enqueue.lua", "elseif seen_before(row) then", "elseif false then"),
)
async def test_not_twice_within_its_time(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, "m", dedupe_for=60)
    await queue.complete_many(await queue.claim())
    await send(queue, "m", dedupe_for=60)
    assert await state(queue, "a", "m") == "gone"


SEEN = """for _, row in ipairs(fresh) do
  if row.dedupe > 0 then call('SET', k.seen(row.mid), int(now + row.dedupe), 'PX', int(row.dedupe)) end
end
"""
MARKED = """many('HSET', k.head, heads)
-- After the commit mark: what was cut before that is not there, and must not be refused when it is sent again.
"""


@guard(
    RULE,
    "wherever an enqueue is cut, the message is there when it is sent again",
    without("the order: seen after the commit mark", "enqueue.lua", MARKED + SEEN, SEEN + MARKED),
)
async def test_what_was_cut_is_not_refused(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    async for one in every_cut(queue, "enqueue"):
        id_ = f"m{one.commands}"
        async with one.knife():
            await told(send(queue, id_, dedupe_for=60))
        await told(send(queue, id_, dedupe_for=60))
        assert await state(queue, "a", id_) == "ready", str(one)
        await queue.complete_many(await queue.claim(10))
        await queue.reconcile()


@guard(
    RULE,
    "an id is not accepted again because its mark could not be read",
    without(
        "asking why", "enqueue.lua", "if failed(until_then) and not other_type", "if false and not other_type"
    ),
)
async def test_not_twice_because_a_mark_could_not_be_read(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await send(queue, "m", dedupe_for=60)
    await queue.complete_many(await queue.claim())
    for k in count(1):
        with cut(queue, Cut("enqueue", k)) as fault:
            await told(send(queue, "m", dedupe_for=60))
        assert await state(queue, "a", "m") == "gone", f"command {k} failed"
        if not await fault.reached(queue):
            assert k > 1
            return
