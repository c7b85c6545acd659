"""The "fifo" scheduler: the oldest message of the pool first, whoever's it is. It exists to be compared with."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, ids, one, put, raw


async def spread(queue: FairQueue[Any], count: int, rng: random.Random) -> list[str]:
    """Messages of many tenants and queues in random order; their ids in the order of acceptance."""
    messages = [
        NewMessage(
            n,
            tenant=f"t{rng.randrange(5)}",
            queue=f"q{rng.randrange(3)}",
            id=f"m{n}",
            cost=rng.choice([1, 50]),
        )
        for n in range(count)
    ]
    await queue.enqueue_many(messages)
    return [message.id for message in messages]


@pytest.mark.parametrize("batch", [1, 9, 1000])
async def test_fifo_is_one_order_over_all_tenants_and_queues(make_queue: MakeQueue, batch: int) -> None:
    queue = await make_queue(scheduler="fifo")
    expected = await spread(queue, 200, random.Random(batch))
    got: list[str] = []
    while some := await claimed(queue, batch):
        got += some
    assert got == expected


async def test_what_comes_back_goes_to_its_old_place_among_all(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(scheduler="fifo", retry=RetryPolicy.fixed(5))
    expected = await spread(queue, 40, random.Random(1))
    leases = await queue.claim(20)
    for number, lease in enumerate(leases):
        if number % 3 == 0:
            await lease.release()
        elif number % 3 == 1:
            await lease.fail("no")
    clock.advance(30)
    await queue.reclaim()
    assert await claimed(queue) == expected


@pytest.mark.parametrize("seed", range(6))
async def test_the_oldest_is_next_whatever_happens(
    make_queue: MakeQueue, clock: ManualClock, seed: int
) -> None:
    rng = random.Random(seed)
    queue = await make_queue(scheduler="fifo", retry=RetryPolicy.fixed(3))
    number = 0
    ready: set[int] = set()
    due: dict[int, float] = {}
    running: dict[int, Any] = {}
    now = 0.0
    for _ in range(250):
        action = rng.choice(["enqueue", "enqueue", "delayed", "claim", "claim", "settle", "advance"])
        if action in ("enqueue", "delayed"):
            delay = rng.choice([1, 2]) if action == "delayed" else 0
            for _ in range(rng.randrange(1, 4)):
                await put(
                    queue, f"t{rng.randrange(4)}", f"{number}", queue=f"q{rng.randrange(2)}", delay=delay
                )
                if delay:
                    due[number] = now + delay
                else:
                    ready.add(number)
                number += 1
        elif action == "advance":
            clock.advance(1)
            now += 1
        elif action == "claim":
            ready |= {n for n, at in due.items() if at <= now}
            due = {n: at for n, at in due.items() if at > now}
            leases = await queue.claim(rng.choice([1, 1, 3]))
            expected = sorted(ready)[: max(len(leases), 1)]
            assert [int(id_) for id_ in ids(leases)] == expected
            ready -= set(expected)
            running.update((int(lease.message.id), lease) for lease in leases)
        elif running:
            chosen = rng.choice(sorted(running))
            lease = running.pop(chosen)
            how = rng.choice(["complete", "release", "fail"])
            await getattr(lease, how)()
            if how == "release":
                ready.add(chosen)
            elif how == "fail":
                due[chosen] = now + 3


async def test_a_full_group_is_passed_over_and_its_oldest_goes_when_there_is_room(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(scheduler="fifo", limits=[Limit("tenant", default=1)])
    for n, tenant in enumerate("aabbacab"):
        await put(queue, tenant, f"{n}", queue=f"q{n % 3}")
    leases = await queue.claim(10)
    assert ids(leases) == ["0", "2", "5"]
    await finish(queue, leases)
    assert await claimed(queue) == ["1", "3"]


async def test_a_late_complete_of_the_oldest_leaves_the_order_of_the_rest(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(scheduler="fifo")
    await put(queue, "a", "0")
    late = await one(queue)
    await put(queue, "b", "1")
    await put(queue, "a", "2")
    await put(queue, "b", "3", queue="other")
    await put(queue, "a", "4", queue="other")
    clock.advance(30)
    await queue.reclaim()
    await late.complete()
    assert await claimed(queue) == ["1", "2", "3", "4"]


async def test_the_same_queue_turned_to_fair_shares_again(make_queue: MakeQueue) -> None:
    queue = await make_queue(scheduler="fifo")
    await queue.enqueue_many([NewMessage(n, tenant="big", id=f"b{n}") for n in range(50)])
    await put(queue, "small", "s0", "s1", "s2")
    assert await claimed(queue, 5) == ["b0", "b1", "b2", "b3", "b4"]
    fair = await make_queue(scheduler="fair")
    await put(fair, "new", "n0", "n1", "n2")
    turns = [lease.message.tenant for lease in await fair.claim(60)]
    assert len(turns) == 51
    assert max(position for position, tenant in enumerate(turns) if tenant != "big") <= 51


async def test_a_slot_promised_beside_another_sets_no_endless_virtual_time(make_queue: MakeQueue) -> None:
    """At a group where nobody else waits any more the lane's turn was taken for one at the end of all time."""
    limits = [Limit("org", default=1, key="org"), Limit("room", default=2, key="room")]
    queue = await make_queue(scheduler="fifo", limits=limits)
    for id_, metadata in (
        ("holds both", {"org": "o", "room": "r"}),
        ("holds room", {"room": "r"}),
        ("waits at org", {"org": "o", "room": "r"}),
        ("waits at room", {"room": "r"}),
    ):
        await queue.enqueue(id_, tenant=id_, id=id_, metadata=metadata)
    both, room = await queue.claim(10)
    await finish(queue, [room])  # "waits at room" is woken: its promise is all that is left there
    await finish(queue, [both])
    assert b"inf" not in dict(await raw(queue, "HGETALL", "vtime")).values()
    assert await claimed(queue, 10) == ["waits at org", "waits at room"]
