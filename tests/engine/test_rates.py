"""Rates: so many deliveries of a group in a time, by the server's instants, in whatever order they are claimed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from fairqueue import ConfigurationError, FairQueue, FairQueueError, Limit, NewMessage, RetryPolicy
from fairqueue._engine.calls import SettleRow
from fairqueue._engine.keys import join, key
from fairqueue._engine.scan import escaped, scan
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, commands, commands_of_a_claim, finish, found, one, put, raw
from tests.support.waiting import eventually

TENANT = [Limit("tenant")]
ORG = [Limit("tenant"), Limit("org", key="org")]


def many(count: int) -> list[str]:
    return [f"m{n:03}" for n in range(count)]


async def run(queue: FairQueue[Any], n: int = 1000) -> list[str]:
    """The tenants of what one claim gives, which is done at once."""
    leases = await queue.claim(n)
    await finish(queue, leases)
    return [lease.message.tenant for lease in leases]


# --- how many, and when --------------------------------------------------------------------------------------------


async def test_the_burst_at_once_then_one_each_interval(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 2, per=1, burst=3)
    await put(queue, "a", *many(20))
    assert len(await run(queue)) == 3
    came = []
    for _ in range(8):
        clock.advance(0.25)
        came.append(len(await run(queue)))
    assert came == [0, 1] * 4


async def test_thirds_of_a_second_do_not_drift(make_queue: MakeQueue, clock: ManualClock) -> None:
    """A third is no whole number of milliseconds: the tokens come at the first one after it, and none comes late."""
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 3, per=1)
    await put(queue, "a", *many(12))
    came = []
    for millisecond in range(3001):
        if millisecond in {
            0,
            *(round(third / 3 * 1000) + near for third in range(10) for near in (-1, 0, 1)),
        }:
            came += [millisecond] * len(await run(queue))
        clock.advance(0.001)
    assert came == [0, 334, 667, 1000, 1334, 1667, 2000, 2334, 2667, 3000]


@pytest.mark.parametrize(("n", "burst"), [(700, 1), (3000, 1), (3000, 5), (999, 2)])
async def test_many_a_millisecond_come_as_they_should(
    make_queue: MakeQueue, clock: ManualClock, n: int, burst: int
) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", n, per=1, burst=burst)
    await put(queue, "a", *many(200))
    came = 0
    for millisecond in range(30):
        came += len(await run(queue))
        assert burst + millisecond * n // 1000 <= came <= burst + (millisecond + 1) * n / 1000
        clock.advance(0.001)


async def test_a_pause_saves_up_the_burst_and_no_more(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 10, per=1, burst=4)
    await put(queue, "a", *many(20))
    await run(queue)
    clock.advance(3600)
    assert len(await run(queue)) == 4
    clock.advance(0.2)
    assert len(await run(queue)) == 2


async def test_without_a_burst_they_are_spaced_evenly(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 60)
    await put(queue, "a", *many(5))
    assert len(await run(queue)) == 1
    clock.advance(0.999)
    assert await run(queue) == []
    clock.advance(0.001)
    assert len(await run(queue)) == 1


class Claim(NamedTuple):
    """One claim in a busy time: when, how many were asked for, and who got them."""

    at: int
    asked: int
    tenants: list[str]

    def of_others(self) -> int:
        """How many of those asked for are left for all but the limited one."""
        return self.asked - self.tenants.count("limited")


def busy_plan() -> list[tuple[float, int]]:
    """About four seconds of claims: when each comes after the one before, and how many it asks for."""
    rng, plan, left = random.Random(5), list[tuple[float, int]](), 4.0
    while left > 0:
        plan.append((rng.choice([0.001, 0.02, 0.07]), rng.choice([30, 80])))
        left -= plan[-1][0]
    return plan


async def busy(
    make_queue: MakeQueue, clock: ManualClock, name: str, tenants: list[str], plan: list[tuple[float, int]]
) -> list[Claim]:
    """These claims in a namespace of its own in which everybody has work to the end: each comes back full."""
    queue = await make_queue(limits=TENANT, name=f"rates-{name}-{time.monotonic_ns()}")
    await queue.limits.set_rate("tenant", "limited", 100, per=1, burst=20)
    await queue.enqueue_many([NewMessage(n, tenant=tenant) for tenant in tenants for n in range(1000)])
    claims = []
    for pause, asked in plan:
        claims.append(Claim(clock.now_ms(), asked, await run(queue, asked)))
        clock.advance(pause)
    assert [len(claim.tenants) for claim in claims] == [claim.asked for claim in claims]
    await queue.limits.set_rate("tenant", "limited", None)
    left = Counter[str]()
    while more := await run(queue):
        left += Counter(more)
    assert set(left) == set(tenants), "nobody ran out of work meanwhile"
    return claims


async def test_of_ten_busy_tenants_the_one_with_a_rate_keeps_it_and_the_others_have_what_they_have_without_it(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """At most burst + n * t / per in any time, by the instants of the claims; nobody else's share moves by 2 %."""
    others, plan = [f"t{n}" for n in range(9)], busy_plan()
    claims = await busy(make_queue, clock, "with", [*others, "limited"], plan)
    instants = [claim.at for claim in claims for tenant in claim.tenants if tenant == "limited"]
    most = max(sum(at <= other < at + 1000 for other in instants) for at in instants)
    assert 110 <= most <= 120
    assert 400 <= len(instants) <= 420, "and it has all that its rate gives it"

    rest = [(pause, claim.of_others()) for (pause, _), claim in zip(plan, claims, strict=True)]
    alone = await busy(make_queue, clock, "without", others, rest)
    with_it, without = (
        Counter(tenant for claim in run for tenant in claim.tenants) for run in (claims, alone)
    )
    assert all(abs(with_it[tenant] / without[tenant] - 1) < 0.02 for tenant in others)


# --- with limits, groups and turns -----------------------------------------------------------------------------------


async def test_a_rate_and_a_limit_both_hold(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await queue.limits.set_rate("tenant", "a", 1, per=1, burst=3)
    await put(queue, "a", *many(10))
    first = await queue.claim(10)
    assert len(first) == 2, "the limit"
    await finish(queue, first)
    second = await queue.claim(10)
    assert len(second) == 1, "the rate"
    clock.advance(5)
    third = await queue.claim(10)
    assert len(third) == 1, "the limit again: three tokens, one slot"
    await finish(queue, [*second, *third])
    assert len(await run(queue)) == 2


async def test_all_groups_or_none(make_queue: MakeQueue, clock: ManualClock) -> None:
    """A message that one group keeps out takes no token of the other."""
    queue = await make_queue(limits=ORG)
    await queue.limits.set_rate("tenant", "a", 1, per=10)
    await queue.limits.set_rate("org", "o", 1, per=1, burst=5)
    await put(queue, "a", *many(5), metadata={"org": "o"})
    assert len(await run(queue)) == 1
    assert (await queue.limits.get("org", "o")).rate.tokens == 4
    clock.advance(5)
    assert await run(queue) == []
    assert (await queue.limits.get("org", "o")).rate.tokens == 5


async def test_tenants_of_a_shared_group_take_turns_at_its_tokens(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """One with two hundred queues and one with a single queue: who was served least is next."""
    queue = await make_queue(limits=[Limit("org", key="org")])
    await queue.limits.set_rate("org", "o", 10, per=1)
    await queue.enqueue_many(
        [NewMessage(n, tenant="wide", queue=f"q{n}", metadata={"org": "o"}) for n in range(200)]
    )
    await put(queue, "narrow", *many(30), metadata={"org": "o"})
    served = []
    for _ in range(40):
        served += await run(queue)
        clock.advance(0.1)
    assert len(served) == 40
    assert all(abs(2 * served[:n].count("wide") - n) <= 2 for n in range(41))


async def test_costs_count_in_the_turns_and_not_in_the_tokens(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("org", key="org")])
    await queue.limits.set_rate("org", "o", 10, per=1)
    await put(queue, "dear", *many(30), metadata={"org": "o"}, cost=3)
    await put(queue, "cheap", *many(60), metadata={"org": "o"})
    served = []
    for _ in range(40):
        served += await run(queue)
        clock.advance(0.1)
    assert len(served) == 40
    assert abs(served.count("cheap") - 30) <= 2


async def test_time_without_tokens_brings_no_credit(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=60)
    await put(queue, "a", *many(60))
    await put(queue, "b", *many(200))
    await run(queue, 100)
    await queue.limits.set_rate("tenant", "a", None)
    assert 9 <= Counter(await run(queue, 20))["a"] <= 11


async def test_who_waits_for_a_token_holds_nobody_up(make_queue: MakeQueue) -> None:
    """Nor another lane of its own tenant, that does not need the group."""
    queue = await make_queue(limits=[Limit("org", key="org")])
    await queue.limits.set_rate("org", "o", 1, per=60)
    await put(queue, "a", *many(3), metadata={"org": "o"})
    await put(queue, "a", "free", queue="other")
    await put(queue, "b", "theirs")
    assert sorted(await claimed(queue)) == ["free", "m000", "theirs"]


async def test_a_token_is_kept_for_whom_it_was_promised_to(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("org", key="org")])
    await queue.limits.set_rate("org", "o", 1, per=1)
    await put(queue, "z", "z1", "z2", metadata={"org": "o"})
    assert await claimed(queue) == ["z1"]
    clock.advance(1)
    await queue._engine.run(queue._engine.calls.promote(10))
    await put(queue, "a", "a1", metadata={"org": "o"})  # by its name it would be first in the ring
    assert await claimed(queue) == ["z2"]
    clock.advance(1)
    assert await claimed(queue) == ["a1"]


# --- what takes a token ------------------------------------------------------------------------------------------------


async def test_each_delivery_takes_one(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Of a retry, and of what comes back from a lost worker, too."""
    queue = await make_queue(limits=TENANT, retry=RetryPolicy.fixed(1))
    await queue.limits.set_rate("tenant", "a", 1, per=60)
    await put(queue, "a", "m")
    await (await one(queue)).fail("no")
    clock.advance(59)
    assert await claimed(queue) == []
    clock.advance(1)
    await one(queue)
    clock.advance(31)
    assert (await queue.reclaim()).reclaimed == [("a", "m")]
    assert await claimed(queue) == []
    clock.advance(29)
    assert await claimed(queue) == ["m"]


async def test_a_claim_that_is_repeated_takes_no_second_token(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=60, burst=3)
    await put(queue, "a", "m")
    calls = queue._engine.calls
    call = calls.claim(queue._engine.claim_streams.take(("default",)), 1, 30_000, "me", ("default",))
    tokens = set()
    for _ in range(2):
        (message,) = (await queue._engine.run(call)).messages
        tokens.add(message.token)
        assert (await queue.limits.get("tenant", "a")).rate.tokens == 2
    assert len(tokens) == 1


async def tokens(queue: FairQueue[Any], group: str, id_: str) -> int:
    return (await queue.limits.get(group, id_)).rate.tokens


@pytest.mark.parametrize("delay", [0, 5])
async def test_a_release_before_it_began_gives_the_tokens_back(make_queue: MakeQueue, delay: float) -> None:
    """In every group, and to whoever waits there."""
    queue = await make_queue(limits=ORG)
    await queue.limits.set_rate("tenant", "a", 1, per=60, burst=2)
    await queue.limits.set_rate("org", "o", 1, per=60)
    await put(queue, "a", "m1", metadata={"org": "o"})
    await put(queue, "b", "n1", metadata={"org": "o"})
    lease = await one(queue)
    assert (lease.message.id, await tokens(queue, "tenant", "a"), await tokens(queue, "org", "o")) == (
        "m1",
        1,
        0,
    )
    assert await claimed(queue) == []
    await lease.release(delay)
    assert (await tokens(queue, "tenant", "a"), await tokens(queue, "org", "o")) == (2, 1)
    assert await claimed(queue) == ["n1"]
    assert await tokens(queue, "org", "o") == 0


async def test_what_had_begun_or_failed_keeps_its_token(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT, retry=RetryPolicy.fixed(0.001))
    await queue.limits.set_rate("tenant", "a", 1, per=60, burst=4)
    await put(queue, "a", "m")
    lease = await one(queue)
    async with lease.keep_alive():
        pass
    await lease.release()
    assert await tokens(queue, "tenant", "a") == 3
    await (await one(queue)).fail("no")
    clock.advance(0.001)
    assert await tokens(queue, "tenant", "a") == 2
    await (await one(queue)).complete()
    assert await tokens(queue, "tenant", "a") == 1


async def test_tokens_that_are_given_back_never_exceed_the_burst(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=10, burst=3)
    await put(queue, "a", *many(9))
    leases = await queue.claim(3)
    clock.advance(25)
    await queue.release_many(leases)
    assert await tokens(queue, "tenant", "a") == 3
    assert len(await claimed(queue)) == 3


async def test_a_settle_that_is_repeated_gives_back_one_token(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=60, burst=3)
    await put(queue, "a", "m", "n")
    leases = await queue.claim(2)
    engine = queue._engine
    rows = [SettleRow("a", "m", leases[0].token, "release", begun=False)]
    call = engine.calls.settle(engine.settle_streams.take(), rows, 60_000)
    for _ in range(2):
        assert await engine.run(call) == ["released"]
        assert await tokens(queue, "tenant", "a") == 2


# --- live ----------------------------------------------------------------------------------------------------------------


async def test_set_and_removed_by_another_client(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, other = await make_queue(limits=TENANT), await make_queue()
    await put(queue, "a", *many(10))
    await other.limits.set_rate("tenant", "a", 1, per=60, burst=2)
    assert len(await claimed(queue)) == 2
    await other.limits.set_rate("tenant", "a", 2, per=1, burst=2)
    assert await claimed(queue) == []
    clock.advance(1)
    assert len(await claimed(queue)) == 2
    await other.limits.set_rate("tenant", "a", None)
    assert len(await claimed(queue)) == 6


async def test_a_faster_rate_forgets_what_was_owed_to_a_slower_one(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=86_400)
    await put(queue, "a", *many(3))
    assert len(await run(queue)) == 1
    await queue.limits.set_rate("tenant", "a", 10, per=1)
    assert await run(queue) == []
    clock.advance(0.1)
    assert len(await run(queue)) == 1


async def test_setting_it_again_gives_no_tokens(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    await put(queue, "a", *many(9))
    for _ in range(3):
        await queue.limits.set_rate("tenant", "a", 7, per=60, burst=4)
        await run(queue)
    assert (await queue.stats("a")).ready == 5


async def test_more_waiters_than_one_script_wakes(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("org", key="org")])
    await queue.limits.set_rate("org", "o", 1000, per=1, burst=1000)
    await put(queue, "z", *many(1000), metadata={"org": "o"})
    await run(queue)
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n}", metadata={"org": "o"}) for n in range(450)])
    assert await run(queue) == []
    clock.advance(0.4)
    assert len(await run(queue)) == 400
    await queue.limits.set_rate("org", "o", None)
    assert len(await run(queue)) == 50


async def test_it_says_what_it_is_and_when_the_next_one_comes(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=TENANT)
    assert (await queue.limits.get("tenant", "a")).rate is None
    await queue.limits.set_rate("tenant", "a", 4, per=timedelta(seconds=2), burst=3)
    rate = (await queue.limits.get("tenant", "a")).rate
    assert (rate.n, rate.per, rate.burst, rate.tokens, rate.next_at) == (4, timedelta(seconds=2), 3, 3, None)
    await put(queue, "a", *many(5))
    await run(queue, 2)
    clock.advance(0.2)
    rate = (await queue.limits.get("tenant", "a")).rate
    assert (rate.tokens, rate.next_at) == (1, clock.now + timedelta(seconds=0.3))
    await run(queue)
    state = await queue.limits.get("tenant", "a")
    assert (state.waiting, state.limit, state.rate.tokens) == (2, None, 0)
    assert [(s.id, s.rate.n) async for s in queue.limits.list("tenant")] == [("a", 4)]


@pytest.mark.parametrize(
    "wrong",
    [{"n": 0}, {"n": -1}, {"n": 1.5}, {"n": True}, {"n": 1_000_001}, {"per": 0}, {"per": -1}, {"per": "1"},
     {"per": timedelta(days=367)}, {"per": float("nan")}, {"burst": 0}, {"burst": None}, {"burst": 100_001}],
)  # fmt: skip
async def test_what_is_no_rate_is_refused(make_queue: MakeQueue, wrong: dict[str, Any]) -> None:
    queue = await make_queue(limits=TENANT)
    with pytest.raises(ConfigurationError, match=f"expected {next(iter(wrong))} to be"):
        await queue.limits.set_rate("tenant", "a", **({"n": 1, "per": 1, "burst": 1} | wrong))
    assert (await queue.limits.get("tenant", "a")).rate is None


async def test_a_limit_nobody_declared_has_no_rate(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    with pytest.raises(ConfigurationError, match="'org'"):
        await queue.limits.set_rate("org", "x", 1)


@pytest.mark.parametrize(
    ("n", "per", "burst"),
    [(1_000_000, 0.001, 100_000), (1, 366 * 86_400, 100_000), (999_983, 86_399.999, 99_991)],
)
async def test_the_widest_rates_are_exact(
    make_queue: MakeQueue, clock: ManualClock, n: int, per: float, burst: int
) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", n, per, burst)
    await put(queue, "a", "m1", "m2")
    await run(queue, 1)
    rate = (await queue.limits.get("tenant", "a")).rate
    assert rate.tokens == burst - 1
    due = -(-round(per * 1000) // n)
    assert rate.next_at == clock.now + timedelta(milliseconds=due)
    clock.advance(due / 1000)
    assert (await queue.limits.get("tenant", "a")).rate.tokens == burst
    await run(queue)


@pytest.mark.parametrize("order", ["claim first", "rate first"])
async def test_a_claim_and_another_client_that_sets_the_rate(make_queue: MakeQueue, order: str) -> None:
    queue, other = await make_queue(limits=TENANT), await make_queue()
    await put(queue, "a", *many(5))
    steps = [lambda: claimed(queue, 3), lambda: other.limits.set_rate("tenant", "a", 1, per=60, burst=2)]
    answers = [await step() for step in (steps if order == "claim first" else steps[::-1])]
    got = answers[0 if order == "claim first" else 1]
    assert len(got) == (3 if order == "claim first" else 2)
    assert len(await claimed(queue)) == (2 if order == "claim first" else 0), (
        "what ran before it was set took no token"
    )


async def test_many_clients_at_once_share_the_tokens(make_queue: MakeQueue) -> None:
    queues = [await make_queue(limits=TENANT) for _ in range(4)]
    await queues[0].limits.set_rate("tenant", "a", 1, per=60, burst=7)
    await put(queues[0], "a", *many(40))
    got = await asyncio.gather(*(claimed(queue, 3) for queue in queues for _ in range(3)))
    assert sorted(id_ for ids in got for id_ in ids) == many(7)


# --- nobody polls ----------------------------------------------------------------------------------------------------------


async def test_a_claim_tells_when_the_next_token_comes(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=7)
    await put(queue, "a", *many(2))
    await queue.enqueue("later", tenant="b", delay=9)
    await run(queue)
    assert queue._consumer._claimer.next_due_ms == 7000
    clock.advance(7)
    await run(queue)
    assert queue._consumer._claimer.next_due_ms == 2000, (
        "nobody waits for a token: the delayed message is next"
    )


async def test_an_idle_claimer_wakes_with_the_token_and_asks_for_nothing_meanwhile(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(limits=TENANT, clock=None)
    await queue.limits.set_rate("tenant", "a", 1, per=0.7)
    await put(queue, "a", *many(2))
    await run(queue)
    assert await queue.claim(1) == []
    before, began = await commands(queue), time.monotonic()
    (lease,) = await queue.claim(1, wait=30)
    waited, sent = time.monotonic() - began, await commands(queue) - before
    await lease.complete()
    assert lease.message.id == "m001"
    assert waited > 0.5
    assert sent < 250, "a claim that found nothing, and the one that got it"


async def test_a_token_that_comes_before_all_others_wakes_idle_claimers(make_queue: MakeQueue) -> None:
    """They would set their timers by what the last of their own claims was told."""
    queue, other = await make_queue(limits=TENANT), await make_queue()
    await queue.limits.set_rate("tenant", "a", 1, per=60)
    assert await other.claim(1) == []
    await put(queue, "a", *many(2))
    await queue.claim(1)
    bell = key(queue._engine.calls.root, "bell", "default")
    assert await queue._engine.command("EXISTS", bell), "this client is full: another one is to set its timer"


@pytest.mark.leaves_findings  # all is removed: to look through it takes longer than the test
async def test_ten_thousand_tenants_out_of_tokens_cost_a_claim_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    tenants = [f"t{n}" for n in range(10_000)]
    rates = [word for tenant in tenants for word in (join("tenant", tenant), join("1", "3600000", "1"))]
    await raw(queue, "HSET", "rates", args=rates)
    await put(queue, "free", *many(4))
    await run(queue, 1)
    alone, _ = await commands_of_a_claim(queue)
    await queue.enqueue_many([NewMessage(n, tenant=tenant) for tenant in tenants for n in range(2)])
    while len(await run(queue)) > 2:
        pass
    await put(queue, "free", *many(4))
    beside, leases = await commands_of_a_claim(queue)
    assert [lease.message.tenant for lease in leases] == ["free"]
    assert beside <= alone + 2
    root = queue._engine.calls.root
    names = [name async for name in scan(queue._engine, "SCAN", None, escaped(root) + "*")]
    await queue._engine.command("UNLINK", *names)


# --- damage ------------------------------------------------------------------------------------------------------------------


@pytest.mark.leaves_findings
@pytest.mark.parametrize(
    "value", ["", "rubbish", "1", join("0", "5", "1"), join("1", "5"), join("9" * 15, "9" * 15, "9" * 15)]
)
async def test_a_rate_that_cannot_be_read_is_never_no_rate(make_queue: MakeQueue, value: str) -> None:
    """Nothing of the group starts, others go on, the doctor names it; set again, it goes on."""
    queue = await make_queue(limits=TENANT)
    await raw(queue, "HSET", "rates", args=(join("tenant", "a"), value))
    await put(queue, "a", *many(3))
    await put(queue, "b", "theirs")
    assert await claimed(queue) == ["theirs"]
    rate = (await queue.limits.get("tenant", "a")).rate
    assert (rate.n, rate.tokens, rate.next_at) == (0, 0, None)
    for fix in (False, True):
        assert found(await queue.audit(fix=fix)) == [("SLOTS", "rates/tenant/a")]
    assert await claimed(queue) == []
    await queue.limits.set_rate("tenant", "a", 1, per=1, burst=2)
    assert len(await claimed(queue)) == 2
    assert found(await queue.audit()) == []


@pytest.mark.leaves_findings
async def test_rates_of_another_type_are_refused_by_name_and_stop_no_settle(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await put(queue, "a", *many(6))
    leases = await queue.claim(2)
    await faults.wrong_type(queue, "rates")
    await finish(queue, leases)
    await put(queue, "a", "one more")
    for call in (queue.claim(1), queue.limits.get("tenant", "a"), queue.limits.set_rate("tenant", "a", 1)):
        with pytest.raises(FairQueueError, match="WRONGTYPE"):
            await call
    await raw(queue, "DEL", "rates")
    await queue.reconcile()
    assert len(await claimed(queue)) == 2


@pytest.mark.parametrize("arrival", [join("99999999999999", "0"), join("99999999999999", "99"), "rubbish"])
async def test_damaged_arrivals_heal_by_themselves(
    make_queue: MakeQueue, clock: ManualClock, arrival: str
) -> None:
    """No later than after the burst's time from when it is met."""
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 10, per=1, burst=5)
    await put(queue, "a", *many(20))
    await raw(queue, "HSET", "arrivals", args=(join("tenant", "a"), arrival))
    assert len(await run(queue)) in {0, 5}
    clock.advance(0.5)
    assert len(await run(queue)) == 5


@pytest.mark.parametrize("how", ["DEL", "SET"])
@pytest.mark.parametrize("kind", ["rated", "arrivals"])
async def test_lost_lists_are_written_again(
    make_queue: MakeQueue, clock: ManualClock, kind: str, how: str
) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=1)
    await put(queue, "a", *many(4))
    await run(queue)
    await raw(queue, how, kind, args=("not what it was",) if how == "SET" else ())
    await queue.reconcile()
    assert found(await queue.audit()) == []
    clock.advance(1)
    assert len(await run(queue)) == 1


@pytest.mark.leaves_findings
async def test_waiters_whom_no_token_would_wake_are_found(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=1)
    await put(queue, "a", *many(4))
    await run(queue)
    for damage in (("DEL", ()), ("ZADD", (clock.now_ms() + 1001, join("tenant", "a")))):
        await raw(queue, damage[0], "rated", args=damage[1])
        (finding,) = (await queue.audit()).findings
        assert (finding.check, "wakes nobody" in finding.evidence) == ("MOVES", True)
        await queue.audit(fix=True)
        assert found(await queue.audit()) == []


async def test_nothing_is_left_of_a_rate_that_was_removed(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TENANT)
    await queue.limits.set_rate("tenant", "a", 1, per=60)
    await put(queue, "a", *many(2))
    await run(queue)
    await queue.limits.set_rate("tenant", "a", None)
    await run(queue)
    assert [await raw(queue, "EXISTS", kind) for kind in ("rates", "arrivals", "rated")] == [0, 0, 0]


async def test_a_waiting_worker_is_told_when_a_rate_is_lifted(make_queue: MakeQueue) -> None:
    queue, other = await make_queue(limits=TENANT, clock=None), await make_queue(clock=None)
    await queue.limits.set_rate("tenant", "a", 1, per=3600)
    await put(queue, "a", *many(2))
    await run(queue)
    waiting = asyncio.ensure_future(queue.claim(1, wait=60))
    await eventually(lambda: any(bell._waiters for bell in queue._engine._bells.values()), "it waits")
    await other.limits.set_rate("tenant", "a", None)
    await finish(queue, await waiting)


async def test_a_full_limit_of_its_own_and_two_pools_are_no_finding(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """A token is there, and nobody can take it before the slot comes free: that wakes whoever waits, in both pools."""
    queue = await make_queue(limits=TENANT)
    await queue.limits.set("tenant", "a", 1)
    await queue.limits.set_rate("tenant", "a", 1, per=10, burst=2)
    for pool in ("default", "gpu"):
        await put(queue, "a", *(f"{pool}{n}" for n in range(3)), pool=pool)
    leases = await queue.claim(1)
    assert await queue.claim(10, pools=("default", "gpu")) == []  # all wait
    for _ in range(2):
        await finish(queue, leases)  # in each pool one is woken
        leases = await queue.claim(1)
        for _ in range(3):
            assert await queue.claim(10) == []
            assert found(await queue.audit()) == []
            clock.advance(10)
    await finish(queue, leases)
    assert found(await queue.audit()) == []
    while leases := await queue.claim(10, pools=("gpu",)):
        await finish(queue, leases)
        clock.advance(10)
