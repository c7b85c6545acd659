"""Cancel: one message ends, wherever it is; one that runs ends with its delivery. Purge: all that wait end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from fairqueue import (
    ConfigurationError,
    FairQueue,
    FairQueueError,
    LeaseLostError,
    Limit,
    NewMessage,
    RetryPolicy,
)
from fairqueue._engine.keys import join, key
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, held, one, put, raw, ready_order
from tests.support.cuts import every_cut

LIMITS = [Limit("tenant", default=2)]


async def totals(queue: FairQueue[Any]) -> dict[str, int]:
    of = (await queue.stats()).totals
    names = (
        "cancelled",
        "completed",
        "failed",
        "retried",
        "released",
        "reclaimed",
        "dead_lettered",
        "purged",
    )
    return {name: of[name] for name in names if of[name]}


# --- what nobody runs --------------------------------------------------------------------------------------------


async def test_a_ready_message_is_gone(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await put(queue, "a", "m1", "m2", "m3")
    assert await queue.cancel("a", "m2") == "cancelled"
    assert await queue.get("a", "m2") is None
    assert await queue.cancel("a", "m2") == "not_found"
    assert await claimed(queue) == ["m1", "m3"]
    assert await totals(queue) == {"cancelled": 1}


async def test_a_delayed_message_never_comes_due(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", delay=5)
    assert await queue.cancel("a", "m") == "cancelled"
    clock.advance(10)
    assert await claimed(queue) == []
    assert (await queue.stats("a")).delayed == 0


async def test_one_that_would_expire_never_does(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2", expires=5)
    assert await queue.cancel("a", "m1") == "cancelled"
    assert await queue.purge("a") == 1
    clock.advance(10)
    assert await claimed(queue) == []
    assert await queue.dead_letters.count("a") == 0


async def test_a_dead_letter_is_gone(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await (await one(queue)).dead_letter("no")
    assert await queue.cancel("a", "m") == "cancelled"
    assert await queue.dead_letters.count("a") == 0
    assert [tenant async for tenant in queue.dead_letters.tenants()] == []


async def test_what_is_parked_is_cancelled_too(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2", "m3")
    lease = await one(queue)
    assert await claimed(queue) == []
    assert [await queue.cancel("a", id_) for id_ in ("m2", "m3")] == ["cancelled"] * 2
    await lease.complete()
    await put(queue, "a", "m4")
    assert await claimed(queue) == ["m4"]


async def test_a_promised_slot_goes_to_the_next_when_its_message_is_cancelled(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    for tenant in "abc":
        await put(queue, tenant, tenant, metadata={"org": "o"})
    lease = await one(queue)
    assert await claimed(queue) == []
    await lease.complete()  # b is woken
    assert await queue.cancel("b", "b") == "cancelled"
    assert await claimed(queue) == ["c"]


async def test_the_last_who_waits_at_a_group_leaves_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.limits.set("tenant", "a", 0)
    await put(queue, "a", "m1")
    assert await claimed(queue) == []  # it is parked
    assert await queue.cancel("a", "m1") == "cancelled"
    assert (await queue.audit()).ok
    await queue.limits.reset("tenant", "a")
    await put(queue, "a", "m1", "m2")
    lease = await one(queue)
    assert await claimed(queue) == []
    await lease.complete()  # m2 is promised a slot
    await queue.pause(tenant="a")
    assert await claimed(queue) == []  # it gives the promise back
    assert await queue.purge("a") == 1
    assert (await queue.audit()).ok


async def test_only_the_tenants_own_message(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for tenant in ("*", "a", "?"):
        await put(queue, tenant, "m", "*")
    assert await queue.cancel("*", "*") == "cancelled"
    assert sorted(await claimed(queue)) == ["*", "*", "m", "m", "m"]


@pytest.mark.parametrize("named", [("", "m"), ("a", ""), ("a", 5), ("a\x1f", "m")])
async def test_what_can_be_no_message_is_refused(make_queue: MakeQueue, named: tuple[Any, Any]) -> None:
    queue = await make_queue()
    with pytest.raises(ConfigurationError):
        await queue.cancel(*named)


async def test_an_id_that_was_cancelled_may_be_used_again(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await queue.cancel("a", "m")
    assert (await queue.enqueue("new", tenant="a", id="m")).created
    assert (await one(queue)).message.payload == "new"


async def test_a_reply_that_was_lost_is_answered_as_the_first(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    calls = queue._engine.calls
    call = calls.cancel("a", "m", stream=queue._engine.settle_streams.take())
    assert [await queue._engine.run(call) for _ in range(2)] == ["cancelled"] * 2
    assert await totals(queue) == {"cancelled": 1}


# --- what runs ---------------------------------------------------------------------------------------------------


async def cancelling(queue: FairQueue[Any]) -> Any:
    """The lease of a message that was cancelled while it ran."""
    await put(queue, "a", "m")
    lease = await one(queue)
    assert await queue.cancel("a", "m") == "cancelling"
    assert await queue.cancel("a", "m") == "cancelling"
    assert not lease.cancelled.is_set()
    info = await queue.get("a", "m")
    assert info is not None
    assert (info.state.value, info.cancelling) == ("in_flight", True)
    return lease


@pytest.mark.parametrize("end", ["fail", "release", "release later", "dead_letter"])
async def test_whatever_ends_its_delivery_ends_it(make_queue: MakeQueue, end: str) -> None:
    queue = await make_queue(limits=LIMITS)
    lease = await cancelling(queue)
    ends = {
        "fail": lease.fail, "release": lease.release,
        "release later": lambda: lease.release(5), "dead_letter": lambda: lease.dead_letter("no"),
    }  # fmt: skip
    assert await ends[end]() == "cancelled"
    assert lease.cancelled.is_set()
    assert await queue.get("a", "m") is None
    assert await held(queue, "tenant", "a") == 0
    assert await totals(queue) == {"cancelled": 1}
    with pytest.raises(LeaseLostError):
        await lease.complete()


async def test_complete_wins(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    lease = await cancelling(queue)
    assert await lease.complete() == "done"
    assert await queue.get("a", "m") is None
    assert await totals(queue) == {"completed": 1}


async def test_its_lease_expires(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS, retry=RetryPolicy(max_crashes=1))
    lease = await cancelling(queue)
    clock.advance(31)
    report = await queue.reclaim()
    assert (report.reclaimed, report.dead) == ([], [])
    assert await queue.get("a", "m") is None
    assert await held(queue, "tenant", "a") == 0
    assert await totals(queue) == {"cancelled": 1}
    with pytest.raises(LeaseLostError):
        await lease.complete()


async def test_extend_tells_and_keeps_the_lease(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    lease = await cancelling(queue)
    await put(queue, "b", "other")
    other = await one(queue)
    clock.advance(20)
    assert await queue.extend_many([other, lease]) == ["extended"] * 2
    assert (other.cancelled.is_set(), lease.cancelled.is_set()) == (False, True)
    clock.advance(20)
    assert (await queue.reclaim()).reclaimed == []
    await finish(queue, [lease, other])


async def test_the_mark_outlives_a_lost_record(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    lease = await cancelling(queue)
    await faults.delete(queue, "lease", "a", "m")
    await lease.extend()
    assert lease.cancelled.is_set()
    await queue.reconcile()
    await queue.audit(fix=True)
    clock.advance(31)
    await queue.reclaim()
    assert await queue.get("a", "m") is None


async def test_a_claim_whose_reply_was_lost_is_told_of_the_cancel(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    calls, stream = queue._engine.calls, queue._engine.claim_streams.take(("default",))
    call = calls.claim(stream, 1, 30_000, "me", ("default",))
    await queue._engine.run(call)
    await queue.cancel("a", "m")
    repeated = await queue._engine.run(call)
    (lease,) = await queue._consumer._claimer._hand_over.leases(repeated, "me", 30_000, 0)
    assert lease.cancelled.is_set()
    assert await lease.release() == "cancelled"


async def test_a_running_message_without_a_header_is_marked(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    for how in ("delete", "overwrite"):
        await put(queue, "a", how)
        lease = await one(queue)
        if how == "delete":
            await faults.delete(queue, "header", "a", how)
        else:
            await faults.overwrite(queue, "header", "a", how, b"rubbish")
        assert await queue.cancel("a", how) == "cancelling"
        assert await lease.release() == "cancelled"
        assert await queue.get("a", how) is None


async def test_a_message_that_cannot_be_read_is_gone(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", "next")
    await faults.overwrite(queue, "header", "a", "m", b"rubbish")
    assert await queue.cancel("a", "m") == "cancelled"
    assert await claimed(queue) == ["next"]
    assert await queue.dead_letters.count("a") == 0
    await queue.audit(fix=True)


async def test_what_a_cut_settle_left_is_not_made_anew(make_queue: MakeQueue, clock: ManualClock) -> None:
    """A release was cut when the message was ready again: its lease record is still there."""
    queue = await make_queue(limits=LIMITS)
    await put(queue, "a", "m")
    lease = await one(queue)
    record = await raw(queue, "HGET", "leases", args=(join("a", "m"),))
    token = await raw(queue, "HGET", "slots", "tenant", "a", args=(join("a", "m"),))
    await lease.release()
    await raw(queue, "HSET", "leases", args=(join("a", "m"), record))
    await raw(queue, "HSET", "slots", "tenant", "a", args=(join("a", "m"), token))
    await raw(queue, "SADD", "groups", args=(join("tenant", "a"),))
    await raw(queue, "ZADD", "deadlines", args=(1, join("a", "m")))
    assert await queue.cancel("a", "m") == "cancelled"
    clock.advance(60)
    await queue.reclaim()
    assert await queue.get("a", "m") is None
    assert await held(queue, "tenant", "a") == 0


# --- purge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["fair", "fifo"])
async def test_purge_ends_what_waits_and_nothing_else(
    make_queue: MakeQueue, clock: ManualClock, scheduler: str
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)], scheduler=scheduler)
    await put(queue, "a", "runs", "dead")
    _, dead = await queue.claim(2)
    await dead.dead_letter("no")
    await put(queue, "a", *(f"m{n:03}" for n in range(180)))
    await put(queue, "a", *(f"d{n:03}" for n in range(160)), delay=5)
    await put(queue, "a", "elsewhere", pool="fast", queue="q2")
    await put(queue, "b", "m", "d", delay=5)
    assert await queue.purge("a") == 341
    assert await queue.purge("a") == 0
    stats = await queue.stats("a")
    assert (stats.ready, stats.delayed, stats.in_flight, stats.dead) == (0, 0, 1, 1)
    assert (await totals(queue))["purged"] == 341
    clock.advance(10)
    assert sorted(await claimed(queue, pools=("default", "fast"))) == ["d", "m"]
    await put(queue, "a", "new")
    assert await claimed(queue) == ["new"]


async def test_purge_of_one_queue(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    for name in ("q1", "q2"):
        for org in "xyz":  # a lane each
            await put(queue, "a", f"{name}{org}", f"{name}{org}2", queue=name, metadata={"org": org})
        await put(queue, "a", f"{name}late", queue=name, delay=5)
    await claimed(queue, 1)
    assert await queue.purge("a", "q2") == 7
    assert await queue.purge("a", "q3") == 0
    clock.advance(10)
    assert {id_[:2] for id_ in await ready_order(queue, "a")} == {"q1"}


async def test_a_glob_as_tenant_is_that_tenant_alone(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for tenant in ("*", "a*", "[a]", "a"):
        await put(queue, tenant, "m")
        await put(queue, tenant, "late", delay=5)
    assert await queue.purge("*") == 2
    assert (await queue.stats()).ready == 3
    assert (await queue.stats()).delayed == 3


async def test_what_is_paused_or_parked_is_purged(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    for tenant in "ab":
        await put(queue, tenant, "m1", "m2", "m3")
        await put(queue, tenant, "m4", queue="q2")
    await queue.pause(tenant="b")
    assert await claimed(queue) == ["m1"]
    assert await queue.purge("a") == 3
    assert await queue.purge("b") == 4
    await queue.resume(tenant="b")
    assert await claimed(queue) == []


async def test_beside_a_worker_and_a_producer_nothing_that_waited_is_skipped(make_queue: MakeQueue) -> None:
    """What no worker had in hand meanwhile is gone; what is new stays, and the walk ends."""
    queue, other = await make_queue(), await make_queue()
    await put(queue, "a", *(f"m{n:04}" for n in range(600)))
    await put(queue, "a", *(f"d{n:04}" for n in range(300)), delay=0.001)
    purging, new, ran = asyncio.ensure_future(queue.purge("a")), 0, set[str]()
    while not purging.done():
        leases = await other.claim(20)
        ran |= {lease.message.id for lease in leases}
        await other.release_many(leases)
        await put(other, "a", f"new{new}", priority=100)
        new += 1
    left = [id_ for id_ in await ready_order(queue, "a") if not id_.startswith("new")]
    assert await purging == 900 - len(left)
    assert set(left) <= ran
    assert await queue.purge("a") == len(left) + new


async def test_a_purge_that_was_cut_is_ended_by_the_next(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", *(f"m{n:03}" for n in range(120)))
    calls, (lane,) = queue._engine.calls, await queue._engine.run(queue._engine.calls.lanes("a"))
    call = calls.purge("a", "", lane.name, "0", 2**45, stream=queue._engine.settle_streams.take())
    first = await queue._engine.run(call)
    assert first == await queue._engine.run(call)  # its reply was lost
    assert first[1:] == (True, 50)
    await faults.delete(queue, "header", "a", (await ready_order(queue, "a"))[0])  # and another one cut
    assert await queue.purge("a") == 69
    assert await queue._engine.command("HLEN", key(calls.root, "body")) == 0
    await queue.reconcile()  # counts the messages anew


async def test_a_lane_that_cannot_be_read_stops_no_purge(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", queue="q1")
    await put(queue, "a", "m2", queue="q2")
    await faults.wrong_type(queue, "lane", "a", "q1")
    assert await queue.purge("a") == 1
    await queue.audit(fix=True)
    assert [message.id for message in await drain(queue)] == ["m1"]


async def test_no_step_of_a_purge_holds_the_server_up(make_queue: MakeQueue) -> None:
    """A step ends fifty messages, with two or three commands for each and some for all."""
    queue = await make_queue(limits=[Limit("tenant", default=5), Limit("org", default=5, key="org")])
    await queue.enqueue_many([NewMessage(n, tenant="a", metadata={"org": "o"}) for n in range(3000)])
    await queue.enqueue_many([NewMessage(n, tenant="a", delay=50) for n in range(3000)])
    steps, commands = await scripts_run(queue), await commands_run(queue)
    assert await queue.purge("a") == 6000
    steps, commands = await scripts_run(queue) - steps, await commands_run(queue) - commands
    assert 120 <= steps <= 135
    assert commands / steps <= 150


async def test_a_purge_looks_at_what_is_of_its_tenant_alone(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for tenant in ("a", "a ", "aa", "b"):
        await queue.enqueue_many([NewMessage(n, tenant=tenant, delay=50) for n in range(1000)])
    await put(queue, "a!", "m", delay=50)
    before = await scripts_run(queue)
    assert await queue.purge("a!") == 1
    assert await queue.purge("nobody") == 0
    assert await scripts_run(queue) - before <= 6
    assert (await queue.stats()).delayed == 4000


async def test_what_is_delayed_is_found_again_when_its_names_were_lost(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2", delay=50)
    await raw(queue, "ZREM", "delayed_names", args=(join("a", "m1"),))
    await queue.reconcile()
    assert await queue.purge("a") == 2


async def test_names_that_cut_scripts_left_are_struck(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "ready")
    await put(queue, "a", "late", delay=50)
    for id_ in ("ready", "none"):
        await raw(queue, "ZADD", "delayed_names", args=(0, join("a", id_)))
    await queue.reconcile()
    assert await raw(queue, "ZRANGE", "delayed_names", args=(0, -1)) == [join("a", "late").encode()]
    assert await queue.purge("a") == 2


async def scripts_run(queue: FairQueue[Any]) -> int:
    """How many the server has run."""
    used = await queue._engine.command("INFO", "commandstats")
    return sum(int(used.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("eval", "evalsha"))


async def commands_run(queue: FairQueue[Any]) -> int:
    """By the server, inside scripts too."""
    told = await queue._engine.command("INFO", "commandstats")
    return sum(int(one["calls"]) for one in told.values())


async def test_a_cancel_that_is_cut_ends_what_expires_or_leaves_it_to_expire(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Cut at whatever command: what still waits is still listed to expire, and does."""
    queue = await make_queue()
    async for cut in every_cut(queue, "cancel"):
        await queue.enqueue(1, tenant="a", id="m", expires=60)
        with contextlib.suppress(FairQueueError):
            async with cut.knife():
                await queue.cancel("a", "m")
        there = await queue.get("a", "m") is not None
        listed = await raw(queue, "ZSCORE", "expiring", args=(join("a", "m"),)) is not None
        assert listed or not there, cut
        clock.advance(61)
        assert await queue.claim() == [], cut
        await queue.dead_letters.purge("a")
        await queue.audit(fix=True)  # what a cut leaves of a message that has ended
