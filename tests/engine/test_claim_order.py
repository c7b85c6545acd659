"""The order of claims within a lane, between a tenant's lanes, and over pools."""

from __future__ import annotations

import pytest

from fairqueue import Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, ids, names, put


def numbers(count: int) -> list[str]:
    return [f"m{n}" for n in range(count)]


@pytest.mark.parametrize("n", [1, 7, 1000])
async def test_a_batch_of_one_millisecond_is_claimed_in_its_order(make_queue: MakeQueue, n: int) -> None:
    queue = await make_queue()
    await put(queue, "a", *numbers(30))
    assert [message.id for message in await drain(queue, batch=n)] == numbers(30)


async def test_a_batch_larger_than_one_call_keeps_its_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", *numbers(1203))
    order = await claimed(queue, 1000) + await claimed(queue, 1000)
    assert order == numbers(1203)


async def test_batches_of_several_clients_are_claimed_in_the_order_of_acceptance(
    make_queue: MakeQueue,
) -> None:
    first, second = await make_queue(), await make_queue()
    await put(first, "a", "1", "2")
    await put(second, "a", "3")
    await put(first, "a", "4")
    assert await claimed(second) == ["1", "2", "3", "4"]


async def test_ids_say_nothing_about_the_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "z", "10", "9", "a", "Z")
    assert await claimed(queue) == ["z", "10", "9", "a", "Z"]


async def test_higher_priority_goes_first_and_equal_ones_in_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for id_, priority in [("low", -100), ("m1", 0), ("high1", 50), ("top", 100), ("m2", 0), ("high2", 50)]:
        await put(queue, "a", id_, priority=priority)
    assert await claimed(queue) == ["top", "high1", "high2", "m1", "m2", "low"]


async def test_priority_orders_one_queue_and_gives_no_share_over_others(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "a1", "a2", priority=100)
    await put(queue, "b", "b1", "b2", priority=-100)
    assert [lease.message.tenant for lease in await queue.claim(4)] == ["a", "b", "a", "b"]


async def test_a_released_message_keeps_its_place(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", *numbers(5))
    first, second = await queue.claim(2)
    await second.release()
    await first.release()
    assert await claimed(queue) == numbers(5)


async def test_a_released_message_keeps_its_place_among_its_priority(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2")
    await put(queue, "a", "h1", "h2", priority=1)
    leases = await queue.claim(3)
    assert await queue.release_many(leases) == ["released"] * 3
    assert await claimed(queue) == ["h1", "h2", "m1", "m2"]


async def test_a_reclaimed_message_keeps_its_place(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", *numbers(5))
    await queue.claim(3)
    clock.advance(30)
    await queue.reclaim()
    assert await claimed(queue) == numbers(5)


async def test_a_delayed_message_takes_the_place_of_its_number_when_due(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "late", delay=10)
    await put(queue, "a", "now1", "now2")
    clock.advance(10)
    assert await claimed(queue) == ["late", "now1", "now2"]


async def test_a_retried_message_takes_the_place_of_its_number_when_due(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(10))
    await put(queue, "a", "m0", "m1")
    (lease,) = await queue.claim()
    await lease.fail("no")
    await put(queue, "a", "m2")
    clock.advance(10)
    assert await claimed(queue) == ["m0", "m1", "m2"]


async def test_a_message_released_for_later_takes_the_place_of_its_number_when_due(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m0", "m1")
    (lease,) = await queue.claim()
    await lease.release(delay=5)
    clock.advance(5)
    assert await claimed(queue) == ["m0", "m1"]


@pytest.mark.parametrize("asked", [["m3", "m1", "m2"], ["m2", "m3", "m1"]])
async def test_redriven_messages_go_to_the_end_in_their_old_order(
    make_queue: MakeQueue, asked: list[str]
) -> None:
    queue = await make_queue()
    await put(queue, "a", *numbers(4))
    leases = await queue.claim(4)
    for lease in [leases[2], leases[3], leases[1]]:
        await lease.dead_letter("enough")
    await leases[0].release()
    await put(queue, "a", "new")
    assert await queue.dead_letters.redrive("a", *asked) == 3
    assert await claimed(queue) == ["m0", "new", "m1", "m2", "m3"]


async def test_redrive_all_goes_to_the_end_in_the_old_order_whatever_the_order_of_death(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue()
    await put(queue, "a", *numbers(700))
    leases = await queue.claim(700)
    for lease in reversed(leases[600:]):
        await lease.dead_letter("enough")
    for lease in leases[:600]:
        await lease.dead_letter("enough")
    await put(queue, "a", "new")
    assert await queue.dead_letters.redrive_all("a") == 700
    assert await claimed(queue) == ["new", *numbers(700)]


async def test_more_redriven_than_fit_one_call_keep_their_old_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", *numbers(600))
    for lease in await queue.claim(600):
        await lease.dead_letter("enough")
    assert await queue.dead_letters.redrive("a", *reversed(numbers(600))) == 600
    assert await claimed(queue) == numbers(600)


async def test_nothing_waits_behind_a_message_of_another_lane(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await put(queue, "a", "x1", "x2", "x3", metadata={"org": "x"})
    await put(queue, "a", "y1", metadata={"org": "y"})
    await put(queue, "a", "free")
    assert sorted(await claimed(queue)) == ["free", "x1", "y1"]


async def test_a_delayed_head_blocks_nobody(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", *(f"late{n}" for n in range(100)), delay=3600)
    await put(queue, "a", "now")
    await put(queue, "a", "other", queue="q2")
    assert sorted(await claimed(queue)) == ["now", "other"]


async def test_a_tenant_s_queues_take_turns(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "p1", "p2", "p3", queue="p")
    await put(queue, "a", "q1", "q2", "q3", queue="q")
    assert await claimed(queue) == ["p1", "q1", "p2", "q2", "p3", "q3"]


async def test_tenants_take_turns_whatever_they_have_queued(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "big", *numbers(50))
    await put(queue, "small", "s0", "s1")
    assert names(await queue.claim(5)) == ["big/m0", "small/s0", "big/m1", "small/s1", "big/m2"]


async def test_pools_are_tried_in_the_order_given(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "d1", "d2")
    await put(queue, "a", "f1", "f2", pool="fast")
    assert ids(await queue.claim(3, pools=("fast", "default"))) == ["f1", "f2", "d1"]
    await put(queue, "a", "f3", pool="fast")
    assert ids(await queue.claim(3, pools=("default", "fast"))) == ["d2", "f3"]


async def test_a_pool_that_is_not_named_is_not_touched(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", pool="other")
    assert await queue.claim() == []
    assert await queue.claim(pools=("third",)) == []
    assert ids(await queue.claim(pools=("other",))) == ["m"]


async def test_a_pool_named_twice_is_one_pool(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2")
    assert ids(await queue.claim(2, pools=("default", "default"))) == ["m1", "m2"]


async def test_a_claim_gives_at_most_n_and_an_empty_list_when_there_is_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    assert await queue.claim(5) == []
    await put(queue, "a", *numbers(3))
    assert len(await queue.claim(2)) == 2
    assert len(await queue.claim(2)) == 1
    assert await queue.claim(2) == []


async def test_a_claim_of_a_thousand_over_many_tenants_is_one_batch(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=20), Limit("all", key=lambda _: "all")])
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 60}") for n in range(1200)])
    leases = await queue.claim(1000)
    assert len(leases) == 1000
    assert len({(lease.message.tenant, lease.message.id) for lease in leases}) == 1000
    assert (await queue.limits.get("all", "all")).held == 1000
    await finish(queue, leases)
    assert (await queue.limits.get("all", "all")).held == 0
    assert len(await queue.claim(1000)) == 200
