"""A caller is cancelled at any moment: what it would have got is given back, and no reply reaches another call."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, Limit, NewMessage
from fairqueue.testing import drain
from tests.conftest import MakeQueue
from tests.support.proxy import Proxy, hold_reply
from tests.support.waiting import eventually


async def cancel_after(work: Any, seconds: float) -> Any:
    """Its result, or None when it was cancelled first."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


def at_rest(queue: FairQueue[Any]) -> bool:
    """Nothing is under way any more for those who were cancelled: no late claim can take or give back anything."""
    return not queue._consumer._tasks and not queue._engine.connection._exchanges


async def nothing_held(queue: FairQueue[Any], but: int = 0) -> bool:
    return (await queue.stats()).in_flight == but


@pytest.mark.parametrize("seed", range(3))
async def test_a_claim_cancelled_at_any_moment_loses_nothing(
    make_queue: MakeQueue, proxy: Proxy, seed: int
) -> None:
    rng = random.Random(seed)
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=4)])
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 5}", id=f"m{n}") for n in range(60)])
    got: list[Lease[Any]] = []
    for _ in range(250):
        wait = rng.choice([0, 0.002])
        got += await cancel_after(queue.claim(rng.randint(1, 4), wait=wait), rng.uniform(0, 0.003)) or []
        if len(got) > 15:
            assert set(await queue.release_many(got)) == {"released"}
            got = []
    await eventually(lambda: at_rest(queue), "what was cancelled to have ended")
    assert await nothing_held(queue, len(got)), "all that was taken for nobody was released"
    assert await queue.complete_many(got) == ["done"] * len(got)
    rest = await drain(queue)
    assert {message.attempt for message in rest} <= {1}
    assert len(rest) + len(got) == 60
    assert (await queue.stats()).totals.reclaimed == 0
    assert proxy.connections <= 33  # the pool and one that listens for the bell


async def test_a_claim_cancelled_before_its_reply_gives_back_what_the_reply_brings(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(3)])
    gate = threading.Event()
    proxy.next("claim", hold_reply(gate))
    claiming = asyncio.ensure_future(queue.claim(2))
    other = await make_queue()
    await eventually(lambda: nothing_held(other, 2), "the server to have given two leases")
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    gate.set()
    await eventually(lambda: nothing_held(other), "both to be released")
    leases = await other.claim(3)
    assert [(lease.message.id, lease.message.attempt) for lease in leases] == [
        ("m0", 1),
        ("m1", 1),
        ("m2", 1),
    ]


async def test_close_waits_for_what_a_cancelled_claim_has_to_give_back(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await queue.enqueue(1, tenant="a")
    gate = threading.Event()
    proxy.next("claim", hold_reply(gate))
    claiming = asyncio.ensure_future(queue.claim(1))
    other = await make_queue()
    await eventually(lambda: nothing_held(other, 1), "the server to have given a lease")
    claiming.cancel()
    closing = asyncio.ensure_future(queue.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert await nothing_held(other)


async def test_the_outcome_of_a_cancelled_settle_is_known_to_its_lease(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await queue.enqueue(1, tenant="a")
    (lease,) = await queue.claim()
    gate = threading.Event()
    proxy.next("settle", hold_reply(gate))
    completing = asyncio.ensure_future(lease.complete())
    await eventually(lambda: proxy.count("settle") == 1, "the complete to be under way")
    completing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await completing
    again = asyncio.ensure_future(lease.complete())
    gate.set()
    assert await again == "done"
    assert proxy.count("settle") == 1


@pytest.mark.parametrize("seed", range(2))
async def test_no_reply_ever_reaches_another_call(make_queue: MakeQueue, proxy: Proxy, seed: int) -> None:
    """Calls of every kind are cancelled at random while others read what they know."""
    rng = random.Random(seed)
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=100)])
    await queue.enqueue_many([NewMessage(n, tenant="known", id=f"k{n}", pool="never") for n in range(20)])
    await queue.enqueue_many([NewMessage(n, tenant="work", id=f"w{n}") for n in range(40)])

    async def disturb() -> None:
        """Takes, extends, completes and enqueues, and is cancelled meanwhile."""
        (lease,) = await queue.claim() or [None]
        if lease is not None:
            await lease.extend()
            await lease.complete()
            await queue.enqueue(0, tenant="work")
        await queue.stats()

    for _ in range(250):
        number = rng.randrange(20)
        disturbing = cancel_after(disturb(), rng.uniform(0, 0.004))
        reading = [queue.get("known", f"k{number}"), queue.limits.get("tenant", f"g{number}")]
        _, info, limit = await asyncio.gather(disturbing, *reading)
        assert (info.message.id, info.message.payload, limit.id) == (f"k{number}", number, f"g{number}")
    assert proxy.connections <= 33

    await eventually(lambda: at_rest(queue), "what was cancelled to have ended")
    stats = await queue.stats()
    # Disturbers that were cancelled holding a lease left it: it is theirs until it expires.
    assert stats.ready + stats.in_flight == 20 + 40 + stats.totals.enqueued - 60 - stats.totals.completed


async def test_many_claims_at_once_share_a_bounded_number_of_connections(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n % 7}", id=f"m{n}") for n in range(300)])
    claims = [asyncio.ensure_future(queue.claim(1)) for _ in range(300)]
    most = 0
    while not all(claim.done() for claim in claims):
        most = max(most, proxy.connections)
        await asyncio.sleep(0.001)
    taken = Counter(lease.message.id for claim in claims for lease in claim.result())
    assert len(taken) == 300
    assert set(taken.values()) == {1}
    assert most <= 32


@pytest.mark.usefixtures("no_idle_look")
async def test_a_ring_that_reaches_a_cancelled_claimer_is_handed_on(make_queue: MakeQueue) -> None:
    """Nobody looks by himself: a ring that is not handed on leaves the message lying."""
    queue = await make_queue()
    rng = random.Random(5)
    for n in range(100):
        waiting = [asyncio.ensure_future(queue.claim(1, wait=60)) for _ in range(4)]
        await asyncio.sleep(rng.uniform(0, 0.002))
        sending = asyncio.ensure_future(queue.enqueue(n, tenant="a"))
        for claim in waiting[:3]:
            await asyncio.sleep(rng.uniform(0, 0.001))
            claim.cancel()
        await sending
        (lease,) = await first_result(waiting)
        assert await lease.complete() == "done"
        waiting[3].cancel()
        await asyncio.wait(waiting)


async def first_result(claims: list[asyncio.Future[list[Lease[Any]]]]) -> list[Lease[Any]]:
    """What the first of them to end without being cancelled got."""

    def found() -> list[Lease[Any]]:
        return [
            lease for claim in claims if claim.done() and not claim.cancelled() for lease in claim.result()
        ]

    return await eventually(found, "one of the claims to get the message")
