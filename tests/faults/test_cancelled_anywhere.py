"""Every public call, a thousand times cancelled under way at random moments: no call gets another's reply, and nothing is kept.

Others read what they know meanwhile. Afterwards every lease that nobody got has been given back, and every message is
accounted for. ``FAIRQUEUE_SEED=n`` replays a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, LeaseLostError, Limit, MessageNotFoundError, NewMessage, RetryPolicy
from fairqueue.testing import drain
from tests.conftest import MakeQueue
from tests.faults.conftest import Injected
from tests.faults.exchanges import public_operations
from tests.faults.record import none_lost, none_twice
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

CANCELLED = 1000  # calls, none of which had ended by itself
MOST_ROUNDS = 10 * CANCELLED
LONGEST = 0.003  # seconds after which a call is cancelled
KEPT = 0.1  # seconds that a lease lasts which is kept alive; the clock of the test stands still
TENANTS = ("a", "b", "c")
MOST_CONNECTIONS = 33  # the pool, and one that listens for the bell
NOT_HERE = {
    "FairQueue.connect", "FairQueue.close",  # part of every other call; its end
    "Worker.run", "Worker.run_sync", "Worker.stop",  # cancelling a worker is in tests/worker
}  # fmt: skip

Name = tuple[str, str]


@dataclass
class Book:
    """What the caller knows: what it was told is stored, what it holds, and what it was told has ended."""

    queue: FairQueue[Any]
    rng: random.Random
    proxy: Proxy
    kept: int = 0  # extends sent in the background
    sent: int = 0
    accepted: set[Name] = field(default_factory=set)
    held: list[Lease[Any]] = field(default_factory=list)
    doubtful: list[Lease[Any]] = field(default_factory=list)
    ended: set[Name] = field(default_factory=set)

    def new(self) -> NewMessage[Any]:
        self.sent += 1
        return NewMessage(f"m{self.sent}", tenant=self.rng.choice(TENANTS), id=f"m{self.sent}")

    def take(self) -> list[Lease[Any]]:
        """Leases to settle; until that is answered it is not known whether they are ours."""
        self.rng.shuffle(self.held)
        number = self.rng.randint(0, min(3, len(self.held)))
        taken, self.held = self.held[:number], self.held[number:]
        self.doubtful += taken
        return taken

    def settled(self, leases: list[Lease[Any]], done: bool = False) -> None:
        """The answer came."""
        self.doubtful = [lease for lease in self.doubtful if lease not in leases]
        if done:
            self.ended |= {name(lease) for lease in leases}


def name(lease: Lease[Any]) -> Name:
    return lease.message.tenant, lease.message.id


# --- the calls ---------------------------------------------------------------------------------------------------


async def _enqueue(book: Book) -> None:
    new = book.new()
    await book.queue.enqueue(new.payload, tenant=new.tenant, id=new.id)
    book.accepted.add((new.tenant, new.id))


async def _enqueue_many(book: Book) -> None:
    new = [book.new() for _ in range(3)]
    await book.queue.enqueue_many(new)
    book.accepted |= {(each.tenant, each.id) for each in new}


async def _claim(book: Book) -> None:
    wait = book.rng.choice([0, 0, 0.002])
    leases = await book.queue.claim(book.rng.randint(1, 4), wait=wait)
    book.held += leases
    none_twice(sorted(book.ended.intersection(map(name, leases))))


async def _complete_many(book: Book) -> None:
    leases = book.take()
    assert set(await book.queue.complete_many(leases)) <= {"done"}
    book.settled(leases, done=True)


async def _fail_many(book: Book) -> None:
    leases = book.take()
    assert set(await book.queue.fail_many(leases, "no")) <= {"retried"}
    book.settled(leases)


async def _release_many(book: Book) -> None:
    leases = book.take()
    assert set(await book.queue.release_many(leases)) <= {"released"}
    book.settled(leases)


async def _extend_many(book: Book) -> None:
    assert set(await book.queue.extend_many(list(book.held))) <= {"extended"}


async def _complete(book: Book) -> None:
    for lease in book.take():
        assert await lease.complete() == "done"
        book.settled([lease], done=True)


async def _fail(book: Book) -> None:
    for lease in book.take():
        assert await lease.fail("no") == "retried"
        book.settled([lease])


async def _release(book: Book) -> None:
    for lease in book.take():
        assert await lease.release() == "released"
        book.settled([lease])


async def _dead_letter(book: Book) -> None:
    for lease in book.take():
        assert await lease.dead_letter("no use") == "dead"
        book.settled([lease])


async def _extend(book: Book) -> None:
    for lease in list(book.held):
        await lease.extend()


async def _keep_alive(book: Book) -> None:
    """The lease is claimed for it: an extend is sent every 25 ms, and some meet the cancellation."""
    book.held += (claimed := await book.queue.claim(1, visibility_timeout=KEPT))
    before = book.proxy.count("extend")
    try:
        async with contextlib.AsyncExitStack() as stack:
            for lease in claimed:
                await stack.enter_async_context(lease.keep_alive())
            await eventually(lambda: not claimed or book.proxy.count("extend") > before + 1, "two extends")
    finally:
        book.kept += book.proxy.count("extend") - before


async def _redrive(book: Book) -> None:
    items, _ = await book.queue.dead_letters.list("a")
    if items:
        with contextlib.suppress(MessageNotFoundError):  # an earlier one that was cancelled is done only now
            await book.queue.dead_letters.redrive("a", items[0].message.id)


async def _redrive_all(book: Book) -> None:
    await book.queue.dead_letters.redrive_all("b")


async def _purge(book: Book) -> None:
    items, _ = await book.queue.dead_letters.list("c")
    for item in items[:3]:
        book.accepted.discard(("c", item.message.id))
        with contextlib.suppress(MessageNotFoundError):  # as above
            await book.queue.dead_letters.purge("c", item.message.id)


async def _pause(book: Book) -> None:
    assert await book.queue.pause(tenant="known", by="ops") in (True, False)


async def _resume(book: Book) -> None:
    assert await book.queue.resume(tenant="known") in (True, False)


async def _pauses(book: Book) -> None:
    assert {pause.tenant async for pause in book.queue.pauses()} <= {"known"}


async def _cancel(book: Book) -> None:
    items, _ = await book.queue.dead_letters.list("c")
    for item in items[:3]:
        book.accepted.discard(("c", item.message.id))
        assert await book.queue.cancel("c", item.message.id) in ("cancelled", "not_found")  # as above
    assert await book.queue.cancel("known", "none") == "not_found"


async def _purge_waiting(book: Book) -> None:
    await book.queue.enqueue_many([NewMessage(n, tenant="gone", pool="never") for n in range(3)])
    assert await book.queue.purge("gone") >= 3


async def _set_limit(book: Book) -> None:
    await book.queue.limits.set("tenant", book.rng.choice(TENANTS), book.rng.randint(2, 6))


async def _reset_limit(book: Book) -> None:
    await book.queue.limits.reset("tenant", book.rng.choice(TENANTS))


async def _set_rate(book: Book) -> None:
    await book.queue.limits.set_rate(
        "tenant", book.rng.choice(TENANTS), book.rng.choice([None, 1000]), 1, 500
    )


async def _get_limit(book: Book) -> None:
    assert (await book.queue.limits.get("tenant", "a")).id == "a"


async def _list_limits(book: Book) -> None:
    assert {state.group async for state in book.queue.limits.list("tenant")} <= {"tenant"}


async def _get_tenant(book: Book) -> None:
    assert (await book.queue.tenants.get("b")).tenant == "b"


async def _set_backlog(book: Book) -> None:
    await book.queue.limits.set_backlog("known", book.rng.choice([None, 1000]))


async def _explain(book: Book) -> None:
    assert (await book.queue.explain("known", "k1")).id == "k1"


async def _fairness(book: Book) -> None:
    assert {one.tenant for one in (await book.queue.fairness(60)).tenants} <= {*TENANTS, "known", "gone"}


async def _set_weight(book: Book) -> None:
    await book.queue.tenants.set_weight(book.rng.choice(TENANTS), book.rng.choice([0.5, 1, 1, 3]))


async def _list_tenants(book: Book) -> None:
    assert {state.tenant async for state in book.queue.tenants.list()} <= {*TENANTS, "known", "gone"}


async def _count_dead(book: Book) -> None:
    assert await book.queue.dead_letters.count("known") == 0


async def _list_dead(book: Book) -> None:
    items, _ = await book.queue.dead_letters.list("a")
    assert {item.message.tenant for item in items} <= {"a"}


async def _dead_tenants(book: Book) -> None:
    assert {tenant async for tenant in book.queue.dead_letters.tenants()} <= set(TENANTS)


async def _stats(book: Book) -> None:
    assert (await book.queue.stats("known")).ready == KNOWN


async def _get(book: Book) -> None:
    info = await book.queue.get("known", "k1")
    assert info is not None
    assert info.message.payload == 1


async def _messages(book: Book) -> None:
    items, _ = await book.queue.messages("known")
    assert len(items) == KNOWN


async def _queues(book: Book) -> None:
    assert [(state.pool, state.ready) async for state in book.queue.queues("known")] == [("never", KNOWN)]


async def _workers(book: Book) -> None:
    assert [state async for state in book.queue.workers()] == []


async def _reclaim(book: Book) -> None:
    assert (await book.queue.reclaim()).reclaimed == []


async def _reconcile(book: Book) -> None:
    assert (await book.queue.reconcile()).restored == []


async def _audit(book: Book) -> None:
    assert (await book.queue.audit()).findings == []


KNOWN = 20
CALLS: dict[str, Callable[[Book], Awaitable[None]]] = {
    "FairQueue.enqueue": _enqueue,
    "FairQueue.enqueue_many": _enqueue_many,
    "FairQueue.claim": _claim,
    "FairQueue.complete_many": _complete_many,
    "FairQueue.fail_many": _fail_many,
    "FairQueue.release_many": _release_many,
    "FairQueue.extend_many": _extend_many,
    "FairQueue.stats": _stats,
    "FairQueue.get": _get,
    "FairQueue.messages": _messages,
    "FairQueue.queues": _queues,
    "FairQueue.workers": _workers,
    "FairQueue.explain": _explain,
    "FairQueue.fairness": _fairness,
    "LimitsControl.set_backlog": _set_backlog,
    "FairQueue.pause": _pause,
    "FairQueue.resume": _resume,
    "FairQueue.pauses": _pauses,
    "FairQueue.cancel": _cancel,
    "FairQueue.purge": _purge_waiting,
    "FairQueue.reclaim": _reclaim,
    "FairQueue.reconcile": _reconcile,
    "FairQueue.audit": _audit,
    "Lease.complete": _complete,
    "Lease.fail": _fail,
    "Lease.release": _release,
    "Lease.dead_letter": _dead_letter,
    "Lease.extend": _extend,
    "Lease.keep_alive": _keep_alive,
    "LimitsControl.set": _set_limit,
    "LimitsControl.reset": _reset_limit,
    "LimitsControl.set_rate": _set_rate,
    "LimitsControl.get": _get_limit,
    "LimitsControl.list": _list_limits,
    "Tenants.get": _get_tenant,
    "Tenants.set_weight": _set_weight,
    "Tenants.list": _list_tenants,
    "DeadLetters.count": _count_dead,
    "DeadLetters.list": _list_dead,
    "DeadLetters.redrive": _redrive,
    "DeadLetters.redrive_all": _redrive_all,
    "DeadLetters.purge": _purge,
    "DeadLetters.tenants": _dead_tenants,
}
OFTEN = ["FairQueue.enqueue_many", "FairQueue.claim", "FairQueue.claim", "FairQueue.complete_many"]


def test_every_public_operation_is_among_the_calls() -> None:
    assert set(CALLS) | NOT_HERE == public_operations()


# --- the rounds --------------------------------------------------------------------------------------------------


async def cancelled(work: Awaitable[None], seconds: float, begun: Callable[[], bool]) -> bool:
    """Cancels it so long after it has come so far; whether it had not ended by itself."""
    task = asyncio.ensure_future(work)
    await eventually(lambda: task.done() or begun(), "it to have come so far")
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


async def read(queue: FairQueue[Any], number: int) -> None:
    info, limit = await asyncio.gather(
        queue.get("known", f"k{number}"), queue.limits.get("tenant", f"g{number}")
    )
    assert info is not None
    assert (info.message.id, info.message.payload, limit.id) == (f"k{number}", number, f"g{number}")


@pytest.mark.timeout(300)
async def test_calls_cancelled_at_any_moment(make_queue: MakeQueue, proxy: Proxy, injected: Injected) -> None:
    seed = int(os.environ.get("FAIRQUEUE_SEED", "1"))
    queue = await make_queue(
        url=proxy.url, limits=[Limit("tenant", default=4)], retry=RetryPolicy.fixed(0, max_attempts=1000)
    )
    await queue.enqueue_many([NewMessage(n, tenant="known", id=f"k{n}", pool="never") for n in range(KNOWN)])
    book, most, rounds = Book(queue, random.Random(seed), proxy), 0, 0
    of_each: Counter[str] = Counter()
    while injected.faults < CANCELLED and (rounds := rounds + 1) < MOST_ROUNDS:
        called = book.rng.choice([*CALLS, *OFTEN])
        keeps = called == "Lease.keep_alive"
        seen = proxy.count("extend") + (book.rng.choice((0, 1, 2, 2)) if keeps else 0)
        moment = book.rng.uniform(0, KEPT if keeps else LONGEST)
        disturbing = cancelled(CALLS[called](book), moment, lambda seen=seen: proxy.count("extend") >= seen)  # type: ignore[misc]
        was_cancelled, _ = await asyncio.gather(disturbing, read(queue, book.rng.randrange(KNOWN)))
        injected.faults += was_cancelled
        of_each[called] += was_cancelled
        most = max(most, proxy.connections)
    assert injected.faults == CANCELLED, "hardly a call was under way when it was cancelled"
    assert book.kept > of_each["Lease.keep_alive"] > 0, "no extend was sent in the background"
    assert not (never := set(CALLS) - set(+of_each)), f"never cancelled: {never}"
    assert most <= MOST_CONNECTIONS
    await accounted_for(book)


async def accounted_for(book: Book) -> None:
    """Leases that nobody got are given back, and what was stored is run to its end exactly once."""
    queue = book.queue
    await eventually(
        lambda: not queue._consumer._tasks and not queue._engine.connection._exchanges,
        "what was cancelled to have ended",
    )
    for lease in book.held + book.doubtful:
        try:
            await lease.complete()
        except LeaseLostError:
            continue  # what was asked of it before came to be
        book.ended.add(name(lease))
    await queue.resume(tenant="known")
    await queue.purge("gone")
    stats = await queue.stats()
    assert stats.in_flight == 0, "leases that nobody got were kept"
    assert stats.totals.reclaimed == 0
    for tenant in TENANTS:
        await queue.limits.reset("tenant", tenant)
        await queue.dead_letters.redrive_all(tenant)
    ran = {(message.tenant, message.id) for message in await drain(queue, batch=10)}
    none_twice(sorted(ran & book.ended))
    none_lost(sorted(book.accepted - ran - book.ended))
    stats = await queue.stats()
    assert (stats.ready, stats.delayed, stats.in_flight, stats.dead) == (KNOWN, 0, 0, 0)
    gone = stats.totals.completed + stats.totals.purged + stats.totals.cancelled
    assert stats.totals.enqueued == gone + KNOWN
