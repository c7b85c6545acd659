"""What the server says while it cannot serve us is worth another try, and what it has lost it is given again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from fairqueue import (
    FairQueue,
    LeaseLostError,
    Limit,
    NewMessage,
    QueueFullError,
    QueueUnavailableError,
    RetryPolicy,
)
from fairqueue.claiming import claim_options
from fairqueue.lease import failure
from fairqueue.settlement import Settlement
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.support.fixtures import MakeServer
from tests.support.processes import Server
from tests.support.waiting import eventually

# --- scripts that are gone -----------------------------------------------------------------------------------


async def _enqueue(queue: FairQueue[Any]) -> None:
    assert (await queue.enqueue(1, tenant="a", id="new")).created


async def _claim(queue: FairQueue[Any]) -> None:
    assert [lease.message.id for lease in await queue.claim(5)] == ["m1"]


async def _reclaim(queue: FairQueue[Any]) -> None:
    assert (await queue.reclaim()).reclaimed == []


async def _reconcile(queue: FairQueue[Any]) -> None:
    assert (await queue.reconcile()).freed == []


async def _set_limit(queue: FairQueue[Any]) -> None:
    await queue.limits.set("tenant", "a", 7)
    assert (await queue.limits.get("tenant", "a")).limit == 7


async def _redrive(queue: FairQueue[Any]) -> None:
    assert await queue.dead_letters.redrive("a", "dead") == 1


async def _purge(queue: FairQueue[Any]) -> None:
    assert await queue.dead_letters.purge("a", "dead") == 1


async def _list_dead(queue: FairQueue[Any]) -> None:
    (dead,), _ = await queue.dead_letters.list("a")
    assert dead.message.id == "dead"


async def _get(queue: FairQueue[Any]) -> None:
    assert await queue.get("a", "m1") is not None


async def _stats(queue: FairQueue[Any]) -> None:
    assert (await queue.stats()).dead == 1
    assert (await queue.stats("a")).dead == 1


async def _audit(queue: FairQueue[Any]) -> None:
    assert (await queue.audit()).ok


OPERATIONS: list[Callable[[FairQueue[Any]], Awaitable[None]]] = [
    _enqueue, _claim, _reclaim, _reconcile, _set_limit, _redrive, _purge, _list_dead, _get, _stats, _audit,
]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__[1:])
async def test_every_operation_loads_its_script_again(make_queue: MakeQueue, operation: Any) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=5)])
    await queue.enqueue_many([NewMessage(n, tenant="a", id=id) for n, id in enumerate(["dead", "m0", "m1"])])
    doomed, held = await queue.claim(2)
    await doomed.dead_letter("for the test")
    await queue._engine.command("SCRIPT FLUSH")
    await operation(queue)
    assert await held.complete() == "done"


@pytest.mark.parametrize("way", ["complete", "fail", "release", "dead_letter", "extend"])
async def test_every_way_a_lease_goes_loads_its_script_again(make_queue: MakeQueue, way: str) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a")
    (lease,) = await queue.claim()
    await queue._engine.command("SCRIPT FLUSH")
    await (lease.dead_letter("no use") if way == "dead_letter" else getattr(lease, way)())
    stats = await queue.stats()
    assert (stats.in_flight, stats.ready, stats.delayed, stats.dead) == {
        "complete": (0, 0, 0, 0),
        "fail": (0, 0, 1, 0),
        "release": (0, 1, 0, 0),
        "dead_letter": (0, 0, 0, 1),
        "extend": (1, 0, 0, 0),
    }[way]


async def test_a_settle_and_a_claim_in_one_round_trip_load_their_scripts_again(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(2)])
    (lease,) = await queue.claim()
    await queue._engine.command("SCRIPT FLUSH")
    options = claim_options(queue._engine, 1, None, ["default"])
    outcomes, (following,) = await queue._consumer.exchange([(lease, Settlement("complete"))], options)
    assert (outcomes, following.message.id, following.message.attempt) == (["done"], "m1", 1)
    assert await following.complete() == "done"


# --- a server that lost everything ---------------------------------------------------------------------------


@pytest.mark.parametrize("scripts_too", [False, True], ids=["FLUSHALL", "FLUSHALL and SCRIPT FLUSH"])
async def test_settings_come_back_after_everything_was_deleted(
    make_queue: MakeQueue, own: Server, scripts_too: bool
) -> None:
    queue = await make_queue(
        url=own.url, limits=[Limit("tenant", default=2)], retry=RetryPolicy(max_attempts=1), scheduler="fifo"
    )
    await queue.enqueue_many([NewMessage(n, tenant="a") for n in range(5)])
    (lease, _) = await queue.claim(2)
    own.command("FLUSHALL")
    if scripts_too:
        own.command("SCRIPT", "FLUSH")
    await queue.enqueue_many([NewMessage(n, tenant="a") for n in range(5)])
    assert len(await queue.claim(5)) == 2
    with pytest.raises(LeaseLostError):
        await lease.complete()
    other = await make_queue(url=own.url)
    assert [limit.default for limit in other._engine.limits] == [2]
    assert other._engine.retry.max_attempts == 1
    assert other._engine.settings.stored["scheduler"] == "fifo"


async def test_a_client_that_declares_nothing_gives_back_the_settings_it_knew(
    make_queue: MakeQueue, own: Server
) -> None:
    """It may be the first to speak after the loss: limits must not be gone for those who declared them."""
    declaring = await make_queue(
        url=own.url,
        limits=[Limit("tenant", default=2)],
        retry=RetryPolicy(max_attempts=3),
        dead_letters=False,
    )
    silent = await make_queue(url=own.url)
    own.command("FLUSHALL")
    await silent.enqueue_many([NewMessage(n, tenant="a") for n in range(5)])
    await declaring.enqueue_many([NewMessage(n, tenant="a") for n in range(5)])
    assert len(await silent.claim(10)) == 2
    later = await make_queue(url=own.url)
    assert [limit.default for limit in later._engine.limits] == [2]
    assert later._engine.retry.max_attempts == 3
    assert later._engine.settings.stored["dead_letters"] == "0"


async def test_an_empty_server_in_its_place_is_set_up_and_used(make_queue: MakeQueue, own: Server) -> None:
    queue = await make_queue(url=own.url, limits=[Limit("tenant", default=2)])
    await queue.enqueue(1, tenant="a")
    own.kill()
    shutil.rmtree(own.directory / "appendonlydir")
    own.start()
    await queue.enqueue_many([NewMessage(n, tenant="a") for n in range(3)])
    assert len(await queue.claim(5)) == 2


# --- not now -------------------------------------------------------------------------------------------------


async def through(trouble: Callable[[], Any], over: Callable[[], Any], work: Awaitable[Any]) -> Any:
    """Begins the work in the middle of the trouble and ends the trouble while the work goes on."""
    trouble()
    working = asyncio.ensure_future(work)
    await asyncio.wait([working], timeout=0.3)
    assert not working.done(), f"it should have tried again: {working}"
    over()
    return await working


async def test_a_replica_of_a_dead_host_is_waited_for(make_queue: MakeQueue, own: Server) -> None:
    queue = await make_queue(url=own.url)
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()

    def follow_nobody() -> None:
        own.command("REPLICAOF", "127.0.0.1", "1")

    def lead() -> None:
        own.command("REPLICAOF", "NO", "ONE")

    assert await through(follow_nobody, lead, lease.complete()) == "done"
    assert (await through(follow_nobody, lead, queue.enqueue(1, tenant="a", id="n"))).created
    ((lease,)) = await through(follow_nobody, lead, queue.claim())
    assert (lease.message.id, lease.message.attempt) == ("n", 1)
    await through(follow_nobody, lead, lease.extend())
    outcomes, claimed = await through(
        follow_nobody,
        lead,
        queue._consumer.exchange(
            [(lease, failure("no"))], claim_options(queue._engine, 1, None, ["default"])
        ),
    )
    assert (outcomes, claimed) == (["retried"], [])


async def test_a_replica_for_longer_than_patience_is_unavailable(make_queue: MakeQueue, own: Server) -> None:
    queue = await make_queue(url=own.url)
    queue._engine.connection._patience = 0.3
    own.command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(QueueUnavailableError, match="replica"):
        await queue.enqueue(1, tenant="a")
    own.command("REPLICAOF", "NO", "ONE")
    assert (await queue.stats()).totals.enqueued == 0


async def test_a_server_that_cannot_save_is_waited_for(
    make_queue: MakeQueue, make_server: MakeServer
) -> None:
    own = make_server(appendonly="no", save="3600 1")
    queue = await make_queue(url=own.url)
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    shutil.rmtree(own.directory)  # the snapshot has nowhere to go

    def saved() -> bool:
        return bool(own.command("INFO", "persistence")["rdb_last_bgsave_status"] == "ok")

    own.command("BGSAVE")
    await eventually(lambda: not saved(), "the snapshot to fail")

    def allow_writes() -> None:
        own.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")

    assert await through(lambda: None, allow_writes, lease.complete()) == "done"
    assert (await queue.enqueue(1, tenant="a", id="n")).created


async def test_a_server_that_is_loading_is_waited_for(make_queue: MakeQueue, make_server: MakeServer) -> None:
    own = make_server(appendonly="no", key_load_delay="1000", loading_process_events_interval_bytes="1024")
    queue = await make_queue(url=own.url)
    await queue.enqueue_many([NewMessage("x" * 500, tenant="a", id=f"m{n}") for n in range(3)])
    (lease,) = await queue.claim()
    own.command(
        "EVAL", "for n = 1, 400 do redis.call('SET', KEYS[1] .. n, string.rep('x', 500)) end", 1, "weight"
    )
    own.command("SAVE")
    own.kill()
    own.start(until_loaded=False)
    with pytest.raises(redis.exceptions.BusyLoadingError):
        own.command("GET", "weight1")
    assert await lease.complete() == "done"
    assert [found.message.id for found in (await queue.messages("a"))[0]] == ["m1", "m2"]


# --- out of memory -------------------------------------------------------------------------------------------


@pytest.fixture
async def full(make_queue: MakeQueue, own: Server) -> FairQueue[Any]:
    """A queue whose server has just run out of memory, with work left."""
    queue = await make_queue(url=own.url, limits=[Limit("tenant", default=10)])
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(10)])
    (lease,) = await queue.claim()
    await lease.dead_letter("for the test")
    own.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    own.command("CONFIG", "SET", "maxmemory", "1000000")
    return queue


async def test_out_of_memory_an_enqueue_stores_nothing(full: FairQueue[Any], own: Server) -> None:
    before = int(own.command("DBSIZE"))
    with pytest.raises(QueueFullError):
        await full.enqueue(1, tenant="new", id="new")
    with pytest.raises(QueueFullError):
        await full.enqueue_many([NewMessage(n, tenant=f"new{n}") for n in range(700)])
    with pytest.raises(QueueFullError):
        await full.dead_letters.redrive("a", "m0")
    assert int(own.command("DBSIZE")) == before
    assert await full.get("new", "new") is None


async def test_out_of_memory_the_backlog_drains(full: FairQueue[Any], clock: ManualClock) -> None:
    first, second, third, fourth = await full.claim(4)
    await first.extend()
    assert await first.complete() == "done"
    assert await second.fail("no") == "retried"
    assert await third.release() == "released"
    assert await fourth.dead_letter("no use") == "dead"
    await full.reclaim()
    await full.reconcile()
    clock.advance(3600)
    await full._engine.run(full._engine.calls.promote(10))
    assert len(await drain(full, batch=3)) == 7
    assert await full.dead_letters.purge("a") == 2


async def test_out_of_memory_a_new_client_can_drain(
    full: FairQueue[Any], make_queue: MakeQueue, own: Server
) -> None:
    assert len(await drain(await make_queue(url=own.url))) > 0
    same = await make_queue(url=own.url, limits=[Limit("tenant", default=10)])
    assert (await same.stats()).ready == 0
    with pytest.raises(QueueFullError):
        async with FairQueue(own.url, full.name, limits=[Limit("tenant", default=11)]):
            pass
