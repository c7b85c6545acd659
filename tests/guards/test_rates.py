"""Rates: in no time more deliveries than the rate gives, never silently without one, and nobody waits for a token in vain."""

from __future__ import annotations

import pytest

from fairqueue import Limit, NewMessage
from fairqueue._engine.keys import join, key
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, leases_of, told
from tests.support.cuts import every_cut

RATES, ADMIT, DUE = "includes/rates.lua", "includes/claim_admit.lua", "includes/rates_due.lua"
TENANT, ORG = [Limit("tenant")], [Limit("org", key="org")]


async def send(queue: Queue, tenant: str, count: int, **options: object) -> None:
    await queue.enqueue_many(
        [NewMessage(n, tenant=tenant, id=f"{tenant}{n}", **options) for n in range(count)]  # type: ignore[arg-type]
    )


async def promoted(queue: Queue) -> None:
    await queue._engine.run(queue._engine.calls.promote(10))


@guard(
    "rates",
    "a claim takes no more than the tokens that are there, nor does the next one",
    without("the check", ADMIT, "rates.tokens(group))\nend", "math.huge)\nend"),
    without(
        "taking a token", "includes/claim_pick.lua", "if rates.spend(group) then batons[group] = true end", ""
    ),
    without("writing what was taken", "includes/claim_take.lua", "  rates.save()\n", "").also(
        RATES, "  rates.save()\n  for group, before", "  for group, before"
    ),
)
async def test_no_more_than_the_tokens(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=60, burst=3)
    await send(queue, "a", 9)
    assert await claimed(queue, 5) == ["a0", "a1", "a2"]
    assert await claimed(queue, 5) == []
    await queue.limits.set("tenant", "a", 9)  # whoever waits and fits is woken
    assert await claimed(queue, 5) == []


@guard(
    "rates",
    "a message that comes in over its own leftover slot needs a token all the same",
    without("the check", ADMIT, "if not has_token(gate, lane, group) then return group end", ""),
)
async def test_a_leftover_needs_a_token(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=5, key="org")])
    await queue.limits.set_rate("org", "o", 1, per=60)
    await send(queue, "a", 2, metadata={"org": "o"})
    assert await claimed(queue) == ["a0"]
    for group in (("tenant", "a"), ("org", "o")):
        slots = key(queue._engine.calls.root, "slots", join(*group))
        await queue._engine.command("DEL", slots)
        await queue._engine.command("HSET", slots, join("a", "a1"), "leftover")
        await queue._engine.command("SADD", key(queue._engine.calls.root, "groups"), join(*group))
    await queue.limits.set("tenant", "a", 1)  # the leftover's lane takes turns again
    assert await claimed(queue) == []
    await queue.reconcile()


@guard(
    "rates",
    "who waits for a token gets it when it comes, with no other call than a claim",
    without("waking who waits", DUE, "  wake(groups)\n", ""),
    without(
        "the instant at which the group is woken", RATES, "if not at then return", "if true then return"
    ).also(RATES, "call('ZADD', k.rated, 'LT', int(at), group)", ""),
)
async def test_who_waits_gets_the_token(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=60)
    await send(queue, "a", 4)
    assert await claimed(queue) == ["a0"]
    for n in (1, 2, 3):
        assert await claimed(queue) == []
        clock.advance(60)
        assert await claimed(queue, 5) == [f"a{n}"]


@guard(
    "rates",
    "a token is kept for whom it was promised to",
    without("counting what is promised", ADMIT, "return free > woken + gate.handed_back", "return free > 0"),
)
async def test_a_promised_token_is_kept(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=ORG)
    await queue.limits.set_rate("org", "o", 1, per=60)
    await send(queue, "z", 2, metadata={"org": "o"})
    assert await claimed(queue) == ["z0"]
    clock.advance(60)
    await promoted(queue)
    await send(queue, "a", 1, metadata={"org": "o"})
    assert await claimed(queue, 5) == ["z1"]


@guard(
    "rates",
    "no more are woken than tokens are there",
    without("the tokens", "includes/waking.lua", "room = math.min(room, rates.tokens(group))\n", ""),
)
async def test_no_more_are_woken_than_tokens(make_queue: MakeQueue, clock: ManualClock) -> None:
    """The others would leave the list, in their pool's order, and come back to it from there."""
    queue = await make_queue(limits=ORG)
    await queue.limits.set_rate("org", "o", 1, per=60)
    for tenant in "abcd":
        await send(queue, tenant, 2, metadata={"org": "o"})
    assert len(await claimed(queue, 10)) == 1
    clock.advance(60)
    await promoted(queue)
    assert (
        await queue._engine.command("HLEN", key(queue._engine.calls.root, "woken", "default", "org", "o"))
        == 1
    )


@guard(
    "rates",
    "a rate that cannot be read lets nobody in",
    without("that", RATES, "if not n then return UNREADABLE end", "if not n then return false end"),
)
@pytest.mark.leaves_findings
async def test_an_unreadable_rate_lets_nobody_in(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    await queue._engine.command(
        "HSET", key(queue._engine.calls.root, "rates"), join("tenant", "a"), "rubbish"
    )
    await send(queue, "a", 2)
    assert await claimed(queue) == []


@guard(
    "rates",
    "rates of another type are refused, before anything is taken",
    without("the look at them", "claim.lua", "  rates.must_be_readable()\n", ""),
)
@pytest.mark.leaves_findings
async def test_rates_of_another_type_are_refused(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    await send(queue, "a", 2)
    await queue._engine.command("SET", key(queue._engine.calls.root, "rates"), "rubbish")
    assert "WRONGTYPE" in str(await told(queue.claim(1)))
    await queue._engine.command("DEL", key(queue._engine.calls.root, "rates"))


@guard(
    "rates",
    "what a damaged arrival owes ends when the burst's time is over",
    without("the most that can be owed", RATES, "debt = math.min(debt, burst * per)", "debt = debt"),
    without("writing that", RATES, "changed[group] = debt > burst * per or nil", ""),
)
async def test_a_damaged_arrival_heals(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=10, burst=2)
    await send(queue, "a", 4)
    arrivals = key(queue._engine.calls.root, "arrivals")
    await queue._engine.command("HSET", arrivals, join("tenant", "a"), join("9999999999999", "0"))
    assert await claimed(queue) == []
    clock.advance(20)
    assert await claimed(queue, 5) == ["a0", "a1"]


@guard(
    "rates",
    "what a token is late by, less than a millisecond, is not lost",
    without("keeping it", RATES, "if debt <= -n then debt = 0 end", "debt = math.max(debt, 0)"),
)
async def test_parts_of_a_millisecond_are_kept(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 700, per=1)
    await send(queue, "a", 80)
    came = 0
    for _ in range(100):
        came += len(await claimed(queue, 5))
        clock.advance(0.001)
    assert came == 70


@guard(
    "rates",
    "a part of a millisecond that is owed by one rate is no more than that by a slower one",
    without("rounding it up", "set_rate.lua", "  keep_arrivals()\n", ""),
)
async def test_parts_of_a_millisecond_are_not_of_the_new_rate(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Parts are counted in n-ths: six sevenths of 70,000 would be a minute of a rate of one."""
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 70_000, per=60)
    await send(queue, "a", 2)
    assert await claimed(queue) == ["a0"]
    await queue.limits.set_rate("tenant", "a", 1, per=60)
    assert await claimed(queue) == []
    clock.advance(0.001)
    assert await claimed(queue) == ["a1"]


@guard(
    "rates",
    "a delivery takes its token before it is written down",
    without("that order", "includes/claim_take.lua", "  rates.save()\n", ""),
)
async def test_the_token_goes_first(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Cut after a lease was written, a token that was not taken yet would let one more in."""
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=60, burst=2)
    async for one in every_cut(queue, "claim"):
        await send(queue, "a", 1)
        async with one.knife():
            await told(queue.claim(1))
        state = await queue.limits.get("tenant", "a")
        assert state.rate is not None
        assert not await leases_of(queue) or state.rate.tokens < 2, str(one)
        clock.advance(31)
        await queue.reclaim()
        await queue.reconcile()
        await queue.audit(fix=True)
        clock.advance(300)
        await drain(queue)
        clock.advance(300)


BACK = "if row.action == 'release' and not row.begun then rates.give_back(lane_of(lane)) end"


@guard(
    "rates",
    "a delivery that is given back before it began gives its token back, one that had begun does not",
    without("giving it back", "settle.lua", BACK, ""),
    without("asking whether it had begun", "settle.lua", BACK, "rates.give_back(lane_of(lane))"),
)
async def test_what_never_began_gives_its_token_back(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=60)
    await send(queue, "a", 2)
    (lease,) = await queue.claim(1)
    await lease.release()
    (lease,) = await told(queue.claim(1)) or [None]
    assert lease is not None
    await lease.complete()
    assert await claimed(queue) == []


@guard(
    "rates",
    "what is given back never exceeds the burst",
    without(
        "that",
        RATES,
        "math.max(bucket.debt - bucket.per, math.min(bucket.debt, 0))",
        "bucket.debt - bucket.per",
    ),
)
async def test_no_more_than_the_burst_comes_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 3000, per=1, burst=2)
    await send(queue, "a", 9)
    leases = await queue.claim(2)
    clock.advance(0.005)
    await queue.release_many(leases)
    assert len(await claimed(queue, 9)) == 2


@guard(
    "rates",
    "a release that was cut and is asked again gives back one token",
    without("writing it last", "settle.lua", BACK, BACK.replace(" end", " rates.save() end")),
)
async def test_one_token_comes_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=60, burst=9)
    async for one in every_cut(queue, "settle"):
        await send(queue, "a", 4)
        leases = await queue.claim(4)
        async with one.knife():
            await told(leases[0].release())
        await told(leases[0].release())
        state = await queue.limits.get("tenant", "a")
        assert state.rate is not None
        assert state.rate.tokens <= 6, str(one)
        clock.advance(31)
        await queue.reclaim()
        await queue.reconcile()
        await queue.audit(fix=True)
        clock.advance(600)
        await drain(queue)
        clock.advance(600)
