"""Slots: a claim takes one in every limit group of the message, all or none, and every way out gives them back."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, held, ids, one, put, waiting

TWO = [Limit("tenant", default=2), Limit("org", default=3, key="org")]


async def test_a_claim_takes_one_slot_in_every_group_of_the_message(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TWO)
    await put(queue, "a", "m", metadata={"org": "x"})
    lease = await one(queue)
    assert lease.message.groups == (("tenant", "a"), ("org", "x"))
    for group, id_ in lease.message.groups:
        assert (await queue.limits.get(group, id_)).holders == [("a", "m")]


async def test_a_message_without_the_metadata_is_not_counted_by_that_limit(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=0, key="org")])
    await put(queue, "a", "m")
    assert (await one(queue)).message.groups == ()


async def test_a_limit_s_key_may_be_a_function(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("model", default=1, key=lambda m: m.queue.split(".")[0])])
    await put(queue, "a", "m1", queue="big.1")
    await put(queue, "a", "m2", queue="big.2")
    await put(queue, "a", "m3", queue="small.1")
    assert sorted(await claimed(queue)) == ["m1", "m3"]
    assert await held(queue, "model", "big") == 1


async def test_one_batch_takes_no_more_than_the_limit(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await put(queue, "a", *(f"m{n}" for n in range(10)))
    await put(queue, "b", "n0")
    assert sorted(await claimed(queue)) == ["m0", "m1", "m2", "n0"]
    assert await claimed(queue) == []


async def test_all_slots_are_taken_or_none(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=TWO)
    await put(queue, "a", "a1", "a2", metadata={"org": "x"})
    await put(queue, "b", "b1", "b2", metadata={"org": "x"})
    assert ids(await queue.claim(10)) == ["a1", "b1", "a2"]
    assert (await held(queue, "tenant", "b"), await held(queue, "org", "x")) == (1, 3)


async def test_the_first_group_keeps_its_slots_when_the_last_refuses(make_queue: MakeQueue) -> None:
    limits = [
        Limit("tenant", default=9),
        Limit("org", default=9, key="org"),
        Limit("all", 0, lambda _: "all"),
    ]
    queue = await make_queue(limits=limits)
    await put(queue, "a", "m", metadata={"org": "x"})
    assert await claimed(queue) == []
    assert [await held(queue, *group) for group in (("tenant", "a"), ("org", "x"), ("all", "all"))] == [
        0,
        0,
        0,
    ]
    assert await waiting(queue, "all", "all") == 1


async def test_a_default_of_none_is_unlimited_and_still_counted(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant")])
    await put(queue, "a", *(f"m{n}" for n in range(50)))
    assert len(await queue.claim(50)) == 50
    assert await held(queue, "tenant", "a") == 50


async def test_a_default_of_zero_admits_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=0)])
    await put(queue, "a", "m")
    assert await claimed(queue) == []
    assert await queue.limits.get("tenant", "a") == (await queue.limits.get("tenant", "a"))
    assert (await queue.stats("a")).blocked == 1


async def test_groups_of_different_limits_with_one_id_are_different_groups(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=1, key="org")])
    await put(queue, "same", "m1")
    await put(queue, "other", "m2", metadata={"org": "same"})
    assert sorted(await claimed(queue)) == ["m1", "m2"]


async def test_two_tenants_with_one_message_id_hold_two_slots_of_a_shared_group(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(limits=[Limit("org", default=2, key="org")])
    for tenant in ("a", "b"):
        await put(queue, tenant, "m", metadata={"org": "x"})
    first, second = await queue.claim(2)
    assert (await queue.limits.get("org", "x")).holders == [("a", "m"), ("b", "m")]
    await first.complete()
    assert (await queue.limits.get("org", "x")).holders == [(second.message.tenant, "m")]


async def test_delayed_and_retrying_messages_hold_no_slot(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)], retry=RetryPolicy.fixed(60))
    await put(queue, "a", "late", delay=60)
    await put(queue, "a", "m1", "m2")
    await (await one(queue)).fail("no")
    assert await held(queue, "tenant", "a") == 0
    assert await claimed(queue) == ["m2"]


Ending = Callable[[FairQueue[Any], Lease[Any], ManualClock], Awaitable[object]]


async def expire(queue: FairQueue[Any], _: Lease[Any], clock: ManualClock) -> None:
    clock.advance(30)
    await queue.reclaim()


ENDINGS: dict[str, Ending] = {
    "complete": lambda _, lease, __: lease.complete(),
    "fail and retry": lambda _, lease, __: lease.fail("no"),
    "fail for good": lambda _, lease, __: lease.fail("no"),
    "release": lambda _, lease, __: lease.release(),
    "release for later": lambda _, lease, __: lease.release(60),
    "dead_letter": lambda _, lease, __: lease.dead_letter("enough"),
    "reclaim": expire,
}
endings = pytest.mark.parametrize("ending", ENDINGS)


@endings
async def test_every_way_out_frees_every_slot(make_queue: MakeQueue, clock: ManualClock, ending: str) -> None:
    queue = await make_queue(limits=TWO, retry=RetryPolicy.fixed(60))
    tries = 1 if ending == "fail for good" else None
    await put(queue, "a", "m", metadata={"org": "x"}, max_attempts=tries)
    await ENDINGS[ending](queue, await one(queue), clock)
    assert (await held(queue, "tenant", "a"), await held(queue, "org", "x")) == (0, 0)


@endings
async def test_every_way_out_wakes_who_waits(make_queue: MakeQueue, clock: ManualClock, ending: str) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")], retry=RetryPolicy.fixed(60))
    tries = 1 if ending == "fail for good" else None
    await put(queue, "a", "m", metadata={"org": "x"}, max_attempts=tries)
    lease = await one(queue)
    await put(queue, "b", "waits", metadata={"org": "x"})
    assert await claimed(queue) == []
    await ENDINGS[ending](queue, lease, clock)
    admitted = await one(queue)
    assert admitted.message.id == ("waits" if ending not in ("release", "reclaim") else admitted.message.id)
    assert await held(queue, "org", "x") == 1


@endings
async def test_slots_are_freed_right_by_a_process_that_never_saw_the_enqueue(
    make_queue: MakeQueue, clock: ManualClock, ending: str
) -> None:
    """Groups come from a function and from metadata; the other process has neither, nor a declaration."""
    limits = [Limit("model", default=1, key=lambda m: m.payload[:1]), Limit("org", default=1, key="org")]
    producer = await make_queue(limits=limits, retry=RetryPolicy.fixed(60))
    tries = 1 if ending == "fail for good" else None
    await put(producer, "a", "m", metadata={"org": "x"}, max_attempts=tries)
    stranger = await make_queue()
    await ENDINGS[ending](stranger, await one(stranger), clock)
    assert (await held(producer, "model", "m"), await held(producer, "org", "x")) == (0, 0)


async def test_groups_are_fixed_at_enqueue_whatever_is_declared_later(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await put(queue, "a", "m1", "m2", metadata={"org": "x", "team": "t"})
    later = await make_queue(
        limits=[Limit("team", default=1, key="team"), Limit("org", default=1, key="org")]
    )
    lease = await one(later)
    assert lease.message.groups == (("org", "x"),)
    assert await claimed(later) == []
    await lease.complete()
    assert await claimed(later) == ["m2"]
    assert await held(later, "team", "t") == 0


async def test_a_full_group_blocks_only_the_messages_that_need_it(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await put(queue, "a", "x1", "x2", metadata={"org": "x"})
    await put(queue, "b", "y1", metadata={"org": "y"})
    assert sorted(await claimed(queue)) == ["x1", "y1"]
    stats = await queue.stats()
    assert (stats.ready, stats.blocked, stats.in_flight) == (1, 1, 2)


async def test_a_thousand_slots_of_one_group_are_taken_and_freed_in_one_call_each(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(limits=[Limit("all", key=lambda _: "all")])
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 7}") for n in range(1000)])
    leases = await queue.claim(1000)
    assert await held(queue, "all", "all") == 1000
    await finish(queue, leases)
    assert await held(queue, "all", "all") == 0


@pytest.mark.parametrize("seed", range(4))
async def test_held_never_exceeds_a_limit_under_random_limits_and_endings(
    make_queue: MakeQueue, seed: int
) -> None:
    rng = random.Random(seed)
    limits = [
        Limit("tenant", default=3),
        Limit("org", default=4, key="org"),
        Limit("all", 6, lambda _: "all"),
    ]
    queue = await make_queue(limits=limits, retry=RetryPolicy.fixed(0))
    groups = [("tenant", f"t{n}") for n in range(4)] + [("org", f"o{n}") for n in range(3)] + [("all", "all")]
    maxima = dict.fromkeys(groups, 0)
    for group, id_ in groups:
        await queue.limits.set(group, id_, limit := rng.choice([0, 1, 2, 3, 5]))
        maxima[group, id_] = limit
    await queue.enqueue_many(
        [
            NewMessage(
                n, tenant=f"t{rng.randrange(4)}", metadata={"org": f"o{rng.randrange(3)}"} if n % 3 else None
            )
            for n in range(150)
        ]
    )
    running: list[Lease[Any]] = []
    for _ in range(60):
        running += await queue.claim(rng.choice([1, 2, 5, 50]))
        expected = dict.fromkeys(groups, 0)
        for lease in running:
            for named in lease.message.groups:
                expected[named] += 1
        for (group, id_), count in expected.items():
            assert await held(queue, group, id_) == count <= maxima[group, id_]
        rng.shuffle(running)
        ended, running = running[: len(running) // 2 + 1], running[len(running) // 2 + 1 :]
        for lease in ended:
            await rng.choice([lease.complete, lease.release, lease.fail])()
