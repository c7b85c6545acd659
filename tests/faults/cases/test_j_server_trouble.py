"""J: the server restarts, loses its scripts, stops answering, or refuses."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from fairqueue import FairQueue, Limit, Message, NewMessage, QueueUnavailableError, RetryPolicy
from fairqueue.claiming import claim_options
from fairqueue.lease import failure
from tests.conftest import MakeQueue
from tests.engine.tools import held, one, put
from tests.support.fixtures import MakeServer
from tests.support.processes import Server
from tests.support.proxy import Proxy
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually
from tests.support.working import working


async def all_completed(queue: FairQueue[Any], expected: int) -> bool:
    return (await queue.stats()).totals.completed == expected


# --- J1 ----------------------------------------------------------------------------------------------------------


async def flush(server: Server) -> None:
    server.command("SCRIPT", "FLUSH")


async def restart(server: Server) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


@pytest.mark.case("J1")
@pytest.mark.parametrize("fault", [flush, restart])
async def test_every_operation_works_after_the_scripts_are_gone(
    make_queue: MakeQueue, make_server: MakeServer, fault: Callable[[Server], Awaitable[None]]
) -> None:
    own = make_server(appendfsync="always")
    queue = await make_queue(
        url=own.url,
        clock=None,
        limits=[Limit("tenant", default=9)],
        retry=RetryPolicy.fixed(0, max_attempts=2),
    )
    await fault(own)
    await put(queue, "T", *(f"m{n}" for n in range(8)))
    await fault(own)
    completed, failed, released, dead, kept, first, second, third = await queue.claim(8)
    await fault(own)
    await kept.extend()
    await fault(own)
    assert await completed.complete() == "done"
    await fault(own)
    assert await failed.fail("no") == "retried"
    await fault(own)
    assert await released.release() == "released"
    await fault(own)
    assert await dead.dead_letter("no use") == "dead"
    await fault(own)
    assert (await queue.reclaim()).reclaimed == []
    await fault(own)
    assert (await queue.reconcile()).restored == []
    await fault(own)
    assert await queue.dead_letters.redrive_all("T") == 1
    await fault(own)
    options = claim_options(queue._engine, 3, None, ["default"])
    outcomes, leases = await queue._consumer.exchange(  # in one pipeline
        [(lease, failure("no")) for lease in (first, second)], options
    )
    assert (outcomes, len(leases)) == (["retried"] * 2, 3)
    assert await queue.complete_many([*leases, kept, third]) == ["done"] * 5
    assert (await queue.stats()).totals.completed == 6


@pytest.mark.case("J1")
async def test_scripts_that_vanish_under_load_cost_nothing(
    make_queue: MakeQueue, make_server: MakeServer
) -> None:
    own = make_server(appendfsync="always")
    queue = await make_queue(url=own.url, clock=None, limits=[Limit("tenant", default=3)])
    ran: list[str] = []

    async def handle(message: Message[Any]) -> None:
        ran.append(message.id)

    async with working(queue, handle):
        for n in range(300):
            await put(queue, f"T{n % 4}", f"m{n}")
            if n % 50 == 25:
                await (restart(own) if n == 175 else flush(own))
        await eventually(lambda: all_completed(queue, 300), "all to be completed")
    assert sorted(ran) == sorted(f"m{n}" for n in range(300))


# --- J2 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("J2")
async def test_connections_that_carry_nothing_any_more_are_left_by_an_idle_worker(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """The one it waits on, and the one that reclaims."""
    queue = await make_queue(url=proxy.url, clock=None, visibility_timeout=1, reclaim_interval=0.2)
    direct = await make_queue(clock=None, visibility_timeout=1)
    await put(direct, "T", "abandoned")
    await one(direct)
    handled: dict[str, float] = {}

    async def handle(message: Message[Any]) -> None:
        handled[message.id] = time.monotonic()

    async with working(queue, handle):
        await eventually(lambda: proxy.count("BLPOP") > 0, "the worker to be idle")
        proxy.silence()
        watch, began = Stopwatch(), time.monotonic()
        await put(direct, "T", "new")
        await eventually(lambda: len(handled) == 2, "both to be handled")
    for id_ in ("new", "abandoned"):
        watch.check(10, f"the {id_} one to be handled", began, handled[id_])


@pytest.mark.case("J2")
async def test_a_connection_that_carries_nothing_any_more_costs_no_lease(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """Visibility is 2 s: the extends are to notice it within that, whatever they may wait elsewhere."""
    queue = await make_queue(url=proxy.url, clock=None, visibility_timeout=2)
    direct = await make_queue(clock=None)
    await put(direct, "T", "m")
    go_on, attempts = asyncio.Event(), []

    async def handle(message: Message[Any]) -> None:
        attempts.append(message.attempt)
        await go_on.wait()

    async with working(queue, handle):
        await eventually(lambda: proxy.count("extend") > 0, "the first extend")
        proxy.silence()
        until = time.monotonic() + 4

        async def over() -> bool:
            return (await direct.reclaim()).reclaimed != [] or time.monotonic() > until

        await eventually(over, "twice the visibility timeout to pass")
        go_on.set()
        await eventually(lambda: all_completed(direct, 1), "it to be completed")
    assert attempts == [1]


# --- J3 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("J3")
async def test_a_cancelled_call_never_leaves_its_reply_to_another(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    rng = random.Random(3)
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=50)])
    await queue.enqueue_many([NewMessage(n, tenant="known", id=f"k{n}", pool="never") for n in range(20)])
    await put(queue, "work", *(f"w{n}" for n in range(30)))
    lease = await one(queue)
    under_way, most = Counter[int](), 0
    for n in range(1000):
        task: asyncio.Task[Any] = asyncio.create_task((queue.claim, lease.extend, lease.complete)[n % 3]())
        await asyncio.wait([task], timeout=rng.uniform(0, rng.choice([0.0005, 0.005])))
        under_way[n % 3] += task.cancel()
        number = rng.randrange(20)
        info = await queue.get("known", f"k{number}")
        assert info is not None
        assert (info.message.id, info.message.payload) == (f"k{number}", number)
        await asyncio.wait([task])
        most = max(most, proxy.connections)
        if not task.cancelled() and n % 3 == 0:
            await queue.release_many(task.result())
        if n % 3 == 2:
            lease = await replaced(queue, lease)
    assert all(under_way[kind] >= 50 for kind in range(3)), f"hardly a call was under way: {under_way}"
    assert most <= 33, "the pool and one for the bell"
    await eventually(lambda: nothing_held_but(queue, lease), "what nobody got to be given back")
    assert await lease.complete() == "done"
    assert (await queue.stats()).totals.reclaimed == 0


async def replaced(queue: FairQueue[Any], lease: Any) -> Any:
    """Completes it for certain, and takes another; its id is known before."""
    assert await lease.complete() == "done"
    await put(queue, "work", lease.message.id)

    async def next_one() -> Any:
        return (await queue.claim() or [None])[0]

    taken = await eventually(next_one, "another one to be free")
    assert taken.message.payload == taken.message.id
    return taken


async def nothing_held_but(queue: FairQueue[Any], lease: Any) -> bool:
    holders = (await queue.limits.get("tenant", "work")).holders
    return holders == [("work", lease.message.id)]


# --- J4 ----------------------------------------------------------------------------------------------------------

LONG = 5.0  # seconds of trouble: how long it lasts is what the case is about


def load_slowly(own: Server) -> None:
    own.kill()
    own.start(until_loaded=False)
    with pytest.raises(redis.exceptions.BusyLoadingError):
        own.command("GET", "weight1")


def loaded(own: Server) -> None:
    own.command("GET", "weight1")


def follow_a_dead_host(own: Server) -> None:
    own.command("REPLICAOF", "127.0.0.1", "1")


def lead(own: Server) -> None:
    own.command("REPLICAOF", "NO", "ONE")


def fail_to_save(own: Server) -> None:
    shutil.rmtree(own.directory)
    own.command("BGSAVE")


def save(own: Server) -> None:
    own.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")


TROUBLES = {
    "LOADING": (load_slowly, loaded),
    "READONLY": (follow_a_dead_host, lead),
    "MISCONF": (fail_to_save, save),
}


def troubled_server(make_server: MakeServer, trouble: str) -> Server:
    if trouble == "LOADING":  # each key takes 4 ms to load
        own = make_server(
            appendonly="no", key_load_delay="4000", loading_process_events_interval_bytes="1024"
        )
        fill = "for n = 1, 1000 do redis.call('SET', KEYS[1] .. n, string.rep('x', 500)) end"
        own.command("EVAL", fill, 1, "weight")
        return own
    return make_server(appendonly="no", save="3600 1") if trouble == "MISCONF" else make_server()


@pytest.mark.case("J4")
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_worker_waits_for_a_server_that_refuses_and_goes_on(
    make_queue: MakeQueue, make_server: MakeServer, trouble: str
) -> None:
    """It asks again fewer than 60 times in 5 s: every half a second on average would be 10, without a pause thousands."""
    own = troubled_server(make_server, trouble)
    begin, end = TROUBLES[trouble]
    queue = await make_queue(url=own.url, clock=None, limits=[Limit("tenant", default=2)])
    producer = await make_queue(url=own.url, clock=None)
    producer._engine.connection._patience = 0.3
    await put(queue, "T", "running", "idle too", "waits")
    go_on, ended = asyncio.Event(), []

    async def handle(message: Message[Any]) -> None:
        if message.id == "running":
            await go_on.wait()
        ended.append(message.id)

    async with working(queue, handle):
        await eventually(lambda: all_completed(queue, 2), "the worker to work")
        if trouble == "LOADING":
            own.command("SAVE")
        await asyncio.to_thread(begin, own)
        began = time.monotonic()
        await eventually(lambda: is_refused(producer), "an enqueue to raise")
        go_on.set()
        await eventually(lambda: "running" in ended, "the handler to end meanwhile")
        refused = await refusals_until(own, began + LONG)
        assert refused < 60, "the worker asks again without a pause"
        await asyncio.to_thread(until_over, own, end)
        watch = Stopwatch()
        await put(producer, "T", "after")
        await eventually(lambda: "after" in ended, "the worker to go on")
        watch.check(5, "the worker to go on")
    accepted = {"after", "idle too", "running", "waits"}
    assert Counter(ended) == dict.fromkeys(accepted | set(ended), 1)
    assert (await queue.stats()).totals.completed == len(ended)
    assert await held(queue, "tenant", "T") == 0


async def is_refused(producer: FairQueue[Any]) -> bool:
    """One that is not, while the trouble only begins, is handled like any other."""
    try:
        await put(producer, "T", f"at {time.monotonic()}")
    except QueueUnavailableError:
        return True
    return False


async def refusals_until(own: Server, instant: float) -> int:
    """How many requests the server has refused when that instant comes: the trouble lasts until then."""
    before = replies_with_an_error(own)
    await asyncio.sleep(max(0.0, instant - time.monotonic()))
    return replies_with_an_error(own) - before


def replies_with_an_error(own: Server) -> int:
    return int(own.command("INFO", "stats")["total_error_replies"])


def until_over(own: Server, end: Callable[[Server], None]) -> None:
    while True:
        try:
            return end(own)
        except redis.exceptions.BusyLoadingError:
            time.sleep(0.02)
