"""Rule 2 of slots: in flight first, then the slot. A slot without a matching record can only be a leak."""

from __future__ import annotations

from fairqueue import Limit
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import leases_of, slots, told
from tests.support.cuts import every_cut

RECORDS = """  many('HSET', k.leases, leases)
  many('ZADD', k.deadlines, deadlines)
  many('ZREM', k.expiring, started) -- cut here, they are listed again when the lease has expired
  many('HSET', k.head, heads)
"""


@guard(
    "slots 2",
    "wherever a claim is cut, no slot is held without its record",
    without(
        "the order: slots are taken before the records are written",
        "includes/claim_take.lua",
        RECORDS + "  take_slots()\n",
        "  take_slots()\n" + RECORDS,
    ),
)
async def test_no_slot_without_its_record_wherever_a_claim_is_cut(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    async for one in every_cut(queue, "claim"):
        for number in range(4):
            await queue.enqueue(number, tenant="a", id=f"m{number}")
        async with one.knife():
            await told(queue.claim(4))
        records, taken = await leases_of(queue), await slots(queue, "tenant", "a")
        assert {mid: records.get(mid) for mid in taken} == taken, str(one)
        clock.advance(31)
        await queue.reclaim()
        await queue.reconcile()
        await drain(queue)
