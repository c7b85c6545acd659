"""Whatever the rates, the bursts, the claims and the steps of the clock: the engine lets through what exact fractions say."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairqueue import FairQueue, Limit, NewMessage
from fairqueue.testing import ManualClock, assert_whole
from tests.property.conftest import Stage
from tests.property.rate_oracle import Bucket, Rate


@dataclass(frozen=True)
class Claim:
    n: int


@dataclass(frozen=True)
class Advance:
    ms: int


@dataclass(frozen=True)
class Change:
    rate: Rate


RATES = st.tuples(
    st.integers(1, 50) | st.sampled_from([999, 4000]),
    st.sampled_from([1, 7, 10, 100, 999, 1000]),
    st.integers(1, 6),
)
STEPS = st.lists(
    st.builds(Claim, st.integers(1, 12))
    | st.builds(Advance, st.sampled_from([1, 1, 2, 3, 14, 34, 100, 333, 334, 5000])),
    min_size=1, max_size=40,
)  # fmt: skip
ORG = ("org", "o")


async def set_rate(queue: FairQueue[Any], group: tuple[str, str], rate: Rate) -> None:
    n, per, burst = rate
    await queue.limits.set_rate(*group, n, per=per / 1000, burst=burst)


async def stored(queue: FairQueue[Any], tenants: str, each: int, **metadata: str) -> None:
    await queue.enqueue_many(
        [NewMessage(n, tenant=tenant, metadata=metadata) for n in range(each) for tenant in tenants]
    )


def assert_within(bucket: Bucket, came: list[int]) -> None:
    """In no time more than the burst and what comes in it, by the instants of the claims."""
    burst = bucket.rate[2]
    for first, begin in enumerate(came):
        for last in range(first, len(came)):
            assert last - first + 1 <= burst + Fraction(came[last] - begin + 1) / bucket.interval


@given(RATES, STEPS, st.lists(st.tuples(st.integers(0, 39), RATES), max_size=2))
@settings(max_examples=60)
@example((3, 1000, 1), [Claim(1), Advance(334), Claim(2), Advance(333), Claim(2), Advance(333), Claim(2)], [])
@example((4000, 1000, 1), [Claim(9), Advance(1), Claim(9), Advance(1), Claim(3), Claim(3)], [])
def test_a_claim_gets_exactly_the_tokens_that_are_there(
    stage: Stage, rate: Rate, steps: list[Claim | Advance], changes: list[tuple[int, Rate]]
) -> None:
    clock, plan = ManualClock(), list[Claim | Advance | Change](steps)
    for at, changed in changes:
        plan.insert(at, Change(changed))

    async def play() -> None:
        async with stage.opened(limits=[Limit("tenant")], clock=clock) as queue:
            bucket, came = Bucket(rate), list[int]()
            await set_rate(queue, ("tenant", "a"), rate)
            await stored(queue, "a", 500)
            for step in plan:
                now = clock.now_ms()
                if isinstance(step, Advance):
                    clock.advance(step.ms / 1000)
                elif isinstance(step, Change):
                    bucket.change(step.rate, now)
                    await set_rate(queue, ("tenant", "a"), step.rate)
                else:
                    expected = min(step.n, bucket.tokens(now))
                    leases = await queue.claim(step.n)
                    assert len(leases) == expected
                    for _ in leases:
                        bucket.take(now)
                    came += [now] * len(leases)
                    await queue.complete_many(leases)
            if not changes:
                assert_within(bucket, came)
            await assert_whole(queue)

    stage.run(play)


@given(RATES, RATES, RATES, STEPS)
@settings(max_examples=40)
def test_each_group_keeps_its_rate_and_nothing_is_held_back(
    stage: Stage, of_a: Rate, of_b: Rate, of_org: Rate, steps: list[Claim | Advance]
) -> None:
    """Two tenants with a rate each, a third without one, and a rate of the org that all of them share."""
    clock = ManualClock()

    async def play() -> None:
        limits = [Limit("tenant", default=7), Limit("org", default=9, key="org")]
        async with stage.opened(limits=limits, clock=clock) as queue:
            buckets = {("tenant", "a"): Bucket(of_a), ("tenant", "b"): Bucket(of_b), ORG: Bucket(of_org)}
            for group, bucket in buckets.items():
                await set_rate(queue, group, bucket.rate)
            await stored(queue, "abc", 200, org="o")
            for step in steps:
                now = clock.now_ms()
                if isinstance(step, Advance):
                    clock.advance(step.ms / 1000)
                    continue
                leases = await queue.claim(step.n)
                for lease in leases:
                    for group in lease.message.groups:
                        if group in buckets:
                            buckets[group].take(now)
                room = min(9 - len(leases), buckets[ORG].tokens(now))
                assert len(leases) == step.n or room == 0 or not could_start(leases, buckets, now)
                await queue.complete_many(leases)
            await assert_whole(queue)

    stage.run(play)


def could_start(leases: list[Any], buckets: dict[tuple[str, str], Bucket], now: int) -> list[str]:
    """The tenants that have a slot and a token of their own."""
    held = [lease.message.tenant for lease in leases]
    return [
        tenant
        for tenant in "abc"
        if held.count(tenant) < 7
        and (("tenant", tenant) not in buckets or buckets["tenant", tenant].tokens(now) > 0)
    ]
