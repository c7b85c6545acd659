"""A lease knows how it ended, whoever asks, however often, and whatever the server does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, LeaseLostError, Limit, QueueUnavailableError, RetryPolicy
from fairqueue.claiming import claim_options
from tests.conftest import MakeQueue
from tests.support.proxy import Proxy, lose_reply

WAYS: dict[str, Callable[[Lease[Any]], Awaitable[str]]] = {
    "complete": lambda lease: lease.complete(),
    "fail": lambda lease: lease.fail("no"),
    "release": lambda lease: lease.release(),
    "dead_letter": lambda lease: lease.dead_letter("no use"),
}
OUTCOMES = {"complete": "done", "fail": "retried", "release": "released", "dead_letter": "dead"}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def leased(queue: FairQueue[Any], id: str = "m") -> Lease[Any]:
    await queue.enqueue({"n": 1}, tenant="a", id=id)
    (lease,) = await queue.claim()
    return lease


async def test_asked_for_the_same_it_answers_the_first_outcome(
    make_queue: MakeQueue, proxy: Proxy, way: str
) -> None:
    lease = await leased(await make_queue(url=proxy.url))
    assert [await WAYS[way](lease) for _ in range(3)] == [OUTCOMES[way]] * 3
    assert proxy.count("settle") == 1


async def test_asked_for_something_else_it_is_lost(make_queue: MakeQueue, way: str) -> None:
    queue = await make_queue()
    lease = await leased(queue)
    await WAYS[way](lease)
    for other in WAYS.keys() - {way}:
        with pytest.raises(LeaseLostError, match="'m' of tenant 'a'"):
            await WAYS[other](lease)
    totals = (await queue.stats()).totals
    assert totals.completed + totals.retried + totals.released + totals.dead_lettered == 1


async def test_two_completes_at_once_are_one(make_queue: MakeQueue, proxy: Proxy) -> None:
    queue = await make_queue(url=proxy.url)
    lease = await leased(queue)
    assert await asyncio.gather(*(lease.complete() for _ in range(5))) == ["done"] * 5
    assert proxy.count("settle") == 1
    assert (await queue.stats()).totals.completed == 1


async def test_of_a_complete_and_a_fail_at_once_one_is_done_and_one_is_lost(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    lease = await leased(queue)
    done, lost = await asyncio.gather(lease.complete(), lease.fail("no"), return_exceptions=True)
    assert done == "done"
    assert isinstance(lost, LeaseLostError)
    assert await queue.get("a", "m") is None


async def test_in_one_batch_a_lease_named_twice_is_settled_once(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    lease, other = await leased(queue, "m"), await leased(queue, "n")
    assert await queue.complete_many([lease, other, lease]) == ["done"] * 3
    assert (await queue.stats()).totals.completed == 2


async def test_a_batch_says_lost_where_a_single_call_raises(make_queue: MakeQueue, clock: Any) -> None:
    queue = await make_queue()
    lost, kept = await leased(queue, "m"), await leased(queue, "n")
    clock.advance(31)
    assert await kept.extend()
    await queue.reclaim()
    (newer,) = await queue.claim()
    assert await queue.extend_many([lost, kept]) == ["lost", "extended"]
    assert await queue.fail_many([lost, kept]) == ["lost", "retried"]
    assert lost.lost.is_set()
    assert not kept.lost.is_set()
    assert await newer.complete() == "done"


async def test_unavailable_after_patience_and_completed_when_the_server_is_back(
    make_queue: MakeQueue, proxy: Proxy, way: str
) -> None:
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=1)])
    lease = await leased(queue)
    queue._engine.connection._patience = 0.3
    proxy.refuse()
    with pytest.raises(QueueUnavailableError):
        await WAYS[way](lease)
    assert not lease.lost.is_set()
    proxy.refuse(False)
    assert await WAYS[way](lease) == OUTCOMES[way]


async def test_unavailable_after_it_was_done_and_answered_as_done(
    make_queue: MakeQueue, proxy: Proxy, way: str
) -> None:
    queue = await make_queue(url=proxy.url)
    lease = await leased(queue)
    queue._engine.connection._patience = 0.2
    proxy.next("settle", lose_reply(), times=1000)
    with pytest.raises(QueueUnavailableError):
        await WAYS[way](lease)
    proxy.reset()
    assert await WAYS[way](lease) == OUTCOMES[way]
    totals = (await queue.stats()).totals
    assert totals.completed + totals.retried + totals.released + totals.dead_lettered == 1


async def test_after_an_unknown_outcome_another_wish_does_not_change_it(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    lease = await leased(queue)
    queue._engine.connection._patience = 0.2
    proxy.next("settle", lose_reply(), times=1000)
    with pytest.raises(QueueUnavailableError):
        await lease.complete()
    proxy.reset()
    with pytest.raises(LeaseLostError):
        await lease.fail("no")
    assert await lease.complete() == "done"


async def test_a_settle_that_two_callers_repeat_at_once_is_answered_to_both(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """One by a settle of its own, one together with a claim: neither takes the other's answer for a loss."""
    queue = await make_queue(url=proxy.url)
    lease = await leased(queue)
    await queue.enqueue({"n": 2}, tenant="a", id="next")
    queue._engine.connection._patience = 0.2
    proxy.next("settle", lose_reply(), times=1000)
    with pytest.raises(QueueUnavailableError):
        await lease.complete()
    proxy.reset()
    asked = lease._held.settlement
    assert asked is not None
    options = claim_options(queue._engine, 1, None, ["default"])
    single, (outcomes, leases) = await asyncio.gather(
        lease.complete(), queue._consumer.exchange([(lease, asked)], options)
    )
    assert (single, outcomes) == ("done", ["done"])
    assert not lease.lost.is_set()
    (following,) = leases
    numbers = {stream.number for stream in queue._engine.settle_streams._free}
    assert len(numbers) == len(queue._engine.settle_streams._free)
    assert await following.complete() == "done"


async def test_a_batch_of_a_settled_and_an_open_lease_answers_for_both(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    settled, fresh = await leased(queue, "m"), await leased(queue, "n")
    await settled.complete()
    options = claim_options(queue._engine, 1, None, ["default"])
    asked = [(lease, type(settled._held.settlement)("complete")) for lease in (settled, fresh)]
    outcomes, leases = await queue._consumer.exchange(asked, options)
    assert (outcomes, leases) == (["done", "done"], [])


async def test_out_of_tries_is_dead_and_without_dead_letters_dropped(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=1))
    dead = await leased(queue)
    assert [await dead.fail("no"), await dead.fail("no")] == ["dead", "dead"]
    other = await make_queue(name="other", dead_letters=False, retry=RetryPolicy(max_attempts=1))
    dropped = await leased(other)
    assert [await dropped.fail("no"), await dropped.fail("no")] == ["dropped", "dropped"]
    assert await other.get("a", "m") is None
