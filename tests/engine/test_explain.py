"""What explain says stops a message is what stops it: with exactly that lifted, the next claim takes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fairqueue import Explanation, FairQueue, FairQueueError, Limit, MessageNotFoundError, RetryPolicy
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, commands, lane, one, put, raw

LIMITS = [Limit("tenant", default=10), Limit("model", default=2, key="model")]
LARGE = {"model": "large"}


async def kinds(queue: FairQueue[Any], id_: str, tenant: str = "a") -> list[str]:
    return [stop.kind for stop in (await queue.explain(tenant, id_)).stops]


async def test_a_full_limit_is_named_with_who_holds_it(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await put(queue, "a", "m1", "m2", "m3", queue="mail")
    await claimed(queue, 1, consumer="w1")
    clock.advance(5)
    await claimed(queue, 9, consumer="w2")
    clock.advance(7)
    found = await queue.explain("a", "m3")
    (stop,) = found.stops
    assert (stop.kind, stop.limit, stop.group_id, stop.slots, stop.held) == ("limit", "tenant", "a", 2, 2)
    assert [(one.tenant, one.id, one.consumer) for one in stop.holders] == [
        ("a", "m1", "w1"),
        ("a", "m2", "w2"),
    ]
    assert [found.now - one.since for one in stop.holders if one.since] == [
        timedelta(seconds=12),
        timedelta(seconds=7),
    ]
    holders = "a/m1 (w1 since 2026-01-01 00:00:00 UTC), a/m2 (w2 since 2026-01-01 00:00:05 UTC)"
    assert found.lines == [
        "ready in queue mail of pool default since 2026-01-01 00:00:00 UTC, for 12.0 s",
        f"limit tenant:a is full, 2 of 2: held by {holders}",
        "no worker is alive that claims from pool default",
    ]
    await queue.limits.set("tenant", "a", 3)
    assert await kinds(queue, "m3") == []
    assert await claimed(queue, 1) == ["m3"]


async def test_all_limits_that_stop_it_are_named_and_no_other(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await put(queue, "b", "b1", "b2", metadata=LARGE)
    await put(queue, "a", "a1")
    await claimed(queue)
    await put(queue, "a", "a2", metadata=LARGE)
    assert [stop.limit for stop in (await queue.explain("a", "a2")).stops] == ["model"]
    await queue.limits.set("tenant", "a", 1)
    assert [stop.limit for stop in (await queue.explain("a", "a2")).stops] == ["tenant", "model"]
    assert await claimed(queue) == []
    for group, id_ in (("model", "large"), ("tenant", "a")):
        assert await claimed(queue) == []
        await queue.limits.set(group, id_, 3)
    assert await kinds(queue, "a2") == []
    assert await claimed(queue) == ["a2"]


@pytest.mark.parametrize("before", [True, False], ids=["before a claim met it", "after"])
async def test_a_limit_of_nothing_stops_whether_or_not_a_claim_came_by(
    make_queue: MakeQueue, before: bool
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=0)])
    await put(queue, "a", "m1")
    if not before:
        assert await claimed(queue) == []
    (stop,) = (await queue.explain("a", "m1")).stops
    assert (stop.slots, stop.held, stop.holders, str(stop)) == (0, 0, (), "limit tenant:a is full, 0 of 0")
    await queue.limits.set("tenant", "a", 1)
    assert await claimed(queue) == ["m1"]


async def test_a_freed_slot_that_is_promised_to_another_tenant_is_no_room(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("model", default=1, key="model")])
    await put(queue, "b", "b1", metadata=LARGE)
    holder = await one(queue)
    await put(queue, "a", "a1", metadata=LARGE)
    await put(queue, "b", "b2", metadata=LARGE)
    assert await claimed(queue) == []
    waits = await queue.explain("b", "b2")
    assert (waits.stops[0].held, waits.tenants_ahead, waits.ahead) == (1, 1, ("a",))
    await holder.complete()
    assert await kinds(queue, "a1") == []
    (stop,) = (await queue.explain("b", "b2")).stops
    assert (stop.held, stop.slots, stop.promised) == (0, 1, 1)
    assert str(stop).endswith(
        "0 of 1 slots taken, and the others are promised to 1 lane that waited longer or were served less"
    )
    assert await claimed(queue) == ["a1"]
    assert await kinds(queue, "b2", "b") == ["limit"]
    await queue.limits.set("model", "large", 2)
    assert await claimed(queue) == ["b2"]


@pytest.mark.parametrize("met", [False, True], ids=["before a claim met it", "after"])
async def test_each_pause_is_named_and_lifting_them_is_enough(
    make_queue: MakeQueue, clock: ManualClock, met: bool
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", queue="mail")
    chosen = [
        {"tenant": "a"},
        {"queue": "mail"},
        {"tenant": "a", "queue": "mail", "pool": "default"},
        {"pool": "default"},
    ]
    for selectors in chosen:
        await queue.pause(**selectors, by="ops", reason="their API\nis down")
    for other in ({"tenant": "b"}, {"queue": "default"}, {"tenant": "a", "pool": "gpu"}):
        await queue.pause(**other)
    if met:
        await queue.resume(pool="default")  # claims pass a paused pool over
        assert await claimed(queue) == []
        await queue.pause(pool="default")
    found = await queue.explain("a", "m1")
    named = [
        {name: value for name in ("tenant", "queue", "pool") if (value := getattr(stop.pause, name))}
        for stop in found.stops
    ]
    assert sorted(map(str, named)) == sorted(map(str, chosen))
    assert "queue mail is paused by ops since 2026-01-01 00:00:00 UTC: their API is down" in found.lines
    for selectors in chosen:
        assert await claimed(queue) == []
        await queue.resume(**selectors)
    assert await kinds(queue, "m1") == []
    assert await claimed(queue) == ["m1"]


@pytest.mark.parametrize(
    "selectors",
    [
        {"tenant": "b"},
        {"queue": "mail"},
        {"tenant": "b", "queue": "mail", "pool": "default"},
        {"pool": "default"},
    ],
    ids=str,
)
async def test_what_is_paused_stands_in_no_line(make_queue: MakeQueue, selectors: dict[str, str]) -> None:
    """Before a claim has met the pause, and after; also where it waits at a full limit besides."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "a1")
    await put(queue, "b", "m1", "m2", queue="mail")

    async def ahead() -> tuple[int | None, int | None, tuple[str, ...]]:
        found = await queue.explain("b", "m2")
        return found.lanes_ahead, found.tenants_ahead, found.ahead

    assert await ahead() == (0, 1, ("a",))
    await queue.pause(**selectors)
    assert await ahead() == (None, None, ())
    await claimed(queue, 9)
    assert await ahead() == (None, None, ())
    await queue.resume(**selectors)
    await claimed(queue, 9)  # m1: the limit is full
    assert await ahead() == (None, 0, ())
    await queue.pause(**selectors)
    assert await ahead() == (None, None, ())


async def test_a_pause_and_a_full_limit_are_both_named(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    holder = await one(queue)
    await queue.pause(tenant="a")
    assert await kinds(queue, "m2") == ["paused", "limit"]
    await queue.resume(tenant="a")
    assert await kinds(queue, "m2") == ["limit"]
    await holder.complete()
    assert await claimed(queue) == ["m2"]


@pytest.mark.leaves_findings  # what operators set is left to them
async def test_pauses_that_cannot_be_read_stop_everything(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1")
    await raw(queue, "SET", "pauses", args=("broken",))
    (stop,) = (await queue.explain("a", "m1")).stops
    assert str(stop).startswith("pauses cannot be read, and nothing starts")
    with pytest.raises(FairQueueError):
        await queue.claim()
    await raw(queue, "DEL", "pauses")
    assert await claimed(queue) == ["m1"]


async def test_who_comes_to_a_promised_slot_is_told_whether_it_may_have_it(make_queue: MakeQueue) -> None:
    """No claim has met them yet: one that was served less than whom the slot is promised to takes the promise over."""
    queue = await make_queue(limits=[Limit("model", default=1, key="model")])
    await put(queue, "a", "a1", metadata=LARGE)
    holder = await one(queue)
    await put(queue, "a", "a2", metadata=LARGE)
    assert await claimed(queue) == []
    await holder.complete()
    await put(queue, "a", "other", metadata=LARGE, queue="other")
    (stop,) = (await queue.explain("a", "other")).stops
    assert (stop.held, stop.promised) == (0, 1)
    assert await claimed(queue) == ["a2"]


async def test_a_rate_is_named_with_the_instant_of_the_next_token(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await queue.limits.set_rate("tenant", "a", 2, per=5, burst=2)
    await put(queue, "a", "m1", "m2", "m3", "m4")
    assert await claimed(queue) == ["m1", "m2"]
    found = await queue.explain("a", "m3")
    (stop,) = found.stops
    assert (stop.kind, stop.limit, stop.until) == ("rate", "tenant", clock.now + timedelta(seconds=2.5))
    assert found.lines[1] == (
        "limit tenant:a has no token left of its rate, 2 each 5 s: the next comes at 2026-01-01 00:00:02.500 UTC"
    )
    clock.advance(2.499)
    assert await claimed(queue) == []
    assert await kinds(queue, "m3") == ["rate"]
    clock.advance(0.001)
    assert await kinds(queue, "m3") == []
    assert await claimed(queue) == ["m3"]
    assert await kinds(queue, "m4") == ["limit", "rate"]
    await queue.limits.set_rate("tenant", "a", None)
    assert await kinds(queue, "m4") == ["limit"]
    await queue.limits.set("tenant", "a", 4)
    assert await claimed(queue) == ["m4"]


async def test_where_all_tokens_are_promised_the_first_after_them_is_told(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("model", key="model")])
    await queue.limits.set_rate("model", "large", 1, per=60)
    await put(queue, "a", "a1", "a2", metadata=LARGE)
    assert await claimed(queue) == ["a1"]
    assert await claimed(queue) == []
    clock.advance(60)
    await queue._engine.run(queue._engine.calls.promote(10))
    await put(queue, "a", "other", metadata=LARGE, queue="other")
    (stop,) = (await queue.explain("a", "other")).stops
    assert stop.rate
    assert (stop.rate.tokens, stop.rate.next_at, stop.promised) == (1, None, 1)
    assert stop.until == clock.now + timedelta(seconds=60)
    assert str(stop) == (
        "limit model:large has promised the tokens of its rate, 1 each 60 s, to others that were served less: "
        "one more comes at 2026-01-01 00:02:00 UTC at the earliest"
    )
    assert await claimed(queue) == ["a2"]
    clock.advance(60)
    assert await claimed(queue) == ["other"]


@pytest.mark.leaves_findings  # what operators set is left to them
async def test_a_rate_that_cannot_be_read_is_told(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant")])
    await put(queue, "a", "m1")
    await raw(queue, "HSET", "rates", args=("tenant\x1fa", "fast"))
    assert (
        str((await queue.explain("a", "m1")).stops[0])
        == "limit tenant:a has a rate that cannot be read: set it again"
    )
    assert await claimed(queue) == []
    await raw(queue, "DEL", "rates")
    await raw(queue, "SET", "rates", args=("broken",))
    assert str((await queue.explain("a", "m1")).stops[0]).startswith(
        "rates cannot be read, and nothing starts"
    )
    with pytest.raises(FairQueueError):
        await queue.claim()


async def test_a_slot_of_its_own_from_before_does_not_stop_it(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    await faults.leak_slot(queue, "tenant", "a", "m2")
    assert await kinds(queue, "m1") == ["limit"]
    (stop,) = (await queue.explain("a", "m1")).stops
    assert [(one.id, one.consumer, one.since) for one in stop.holders] == [("m2", None, None)]
    assert "a/m2 (no lease: it will be freed)" in str(stop)
    assert await kinds(queue, "m2") == []
    assert await claimed(queue) == ["m2"]


async def test_a_delay_and_a_limit_both_stop_it(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", delay=60)
    await put(queue, "a", "m2")
    holder = await one(queue)
    found = await queue.explain("a", "m1")
    assert [stop.kind for stop in found.stops] == ["delayed", "limit"]
    assert found.lines[:2] == [
        "delayed in queue default of pool default since 2026-01-01 00:00:00 UTC, for 0.0 s",
        "it is delayed until 2026-01-01 00:01:00 UTC",
    ]
    await holder.complete()
    assert await kinds(queue, "m1") == ["delayed"]
    assert await claimed(queue) == []
    clock.advance(60)
    due = await queue.explain("a", "m1")
    assert (due.stops, due.lines[1]) == ((), "it is due: the next claim makes it ready")
    assert await claimed(queue) == ["m1"]


async def test_a_time_to_live_is_told_and_what_it_ended(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=0)])
    await put(queue, "a", "m1", "m2", expires=10)
    await queue.claim()
    found = await queue.explain("a", "m1")
    assert ([stop.kind for stop in found.stops], found.lines[-1]) == (
        ["limit"], "it expires if it has not started by 2026-01-01 00:00:10 UTC",
    )  # fmt: skip
    clock.advance(10)
    assert await kinds(queue, "m1") == ["expired", "limit"]
    await queue.limits.set("tenant", "a", 5)
    assert await kinds(queue, "m1") == ["expired"]
    assert await claimed(queue) == []
    dead = await queue.explain("a", "m1")
    assert (dead.state, dead.reason, dead.stops, dead.expires_at) == ("dead", "expired", (), None)


async def test_after_a_failure_it_tells_of_the_next_try(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(30, max_attempts=3))
    await put(queue, "a", "m1")
    clock.advance(1)
    await (await one(queue)).fail("no\nmail server")
    clock.advance(9)
    found = await queue.explain("a", "m1")
    assert (found.attempt, found.max_attempts, found.error) == (1, 3, "no\nmail server")
    assert found.lines == [
        "delayed in queue default of pool default since 2026-01-01 00:00:01 UTC, for 9.0 s",
        "it is delayed until 2026-01-01 00:00:31 UTC",
        "no worker is alive that claims from pool default",
        "attempt 1 of 3",
        "last error, at 2026-01-01 00:00:01 UTC: no mail server",
    ]


async def test_its_turn_has_not_come(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for tenant in "bcdefgh":
        await put(queue, tenant, "m1")
    await put(queue, "i", "other", queue="other")
    await put(queue, "i", "m1", "m2", "m3")
    found = await queue.explain("i", "m3")
    assert (found.stops, found.position, found.lanes_ahead, found.tenants_ahead) == ((), 2, 0, 7)
    assert found.lines[1:4] == [
        "nothing stops it: its turn has not come",
        "2 messages of its queue before it",
        "7 tenants before its tenant: b, c, d, e, f and 2 more",
    ]
    assert (await queue.explain("i", "other")).lanes_ahead == 1
    assert (await claimed(queue, 8))[-1] == "m1"
    nearer = await queue.explain("i", "m3")
    assert (nearer.position, nearer.lanes_ahead, nearer.tenants_ahead, nearer.ahead) == (1, 1, 0, ())
    assert await claimed(queue, 3) == ["other", "m2", "m3"]


async def test_in_flight_by_whom_and_since_when(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1")
    await claimed(queue, consumer="w1")
    clock.advance(20)
    found = await queue.explain("a", "m1")
    assert found.lease
    assert (found.lease.consumer, found.stops, found.position) == ("w1", (), None)
    assert found.lines == [
        "in flight: w1 has it since 2026-01-01 00:00:00 UTC, for 20.0 s",
        "its lease lasts until 2026-01-01 00:00:30 UTC",
        "attempt 1 of 12",
    ]
    clock.advance(15)
    assert (await queue.explain("a", "m1")).lines[1] == (
        "its lease expired at 2026-01-01 00:00:30 UTC: the next reclaim takes it back"
    )
    await queue.reclaim()
    assert (await queue.explain("a", "m1")).lines[-1] == "attempt 1 of 12, 1 crash"
    assert await claimed(queue) == ["m1"]


async def test_a_cancelled_message_that_runs_is_told(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1")
    lease = await one(queue)
    assert not (await queue.explain("a", "m1")).cancelling
    await queue.cancel("a", "m1")
    found = await queue.explain("a", "m1")
    assert (found.cancelling, found.lines[1].startswith("it is cancelled")) == (True, True)
    await lease.release()
    with pytest.raises(MessageNotFoundError):
        await queue.explain("a", "m1")


async def alive(queue: FairQueue[Any], pool: str = "default") -> None:
    """A worker's sign of life, good for a minute."""
    info = f'{{"host":"h","pid":1,"pools":["{pool}"],"concurrency":1,"running":0,"version":"1","up_ms":0}}'
    await queue._engine.run(queue._engine.calls.beat("w1", info, 60_000))


async def test_an_estimate_from_recent_service(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", *(f"m{number}" for number in range(12)))
    await alive(queue)
    assert (await queue.explain("a", "m11")).estimate is None
    for _ in range(6):
        lease = await one(queue)
        clock.advance(10)
        await lease.complete()
    found = await queue.explain("a", "m11")  # six started in a minute, and five are before it
    assert found.estimate == timedelta(seconds=60)
    assert "as its tenant was served in the last five minutes, it starts in about 60.0 s" in found.lines
    await queue.pause(tenant="a")
    assert (await queue.explain("a", "m11")).estimate is None
    await queue.resume(tenant="a")
    clock.advance(600)
    await alive(queue)
    assert (await queue.explain("a", "m11")).estimate is None


async def test_no_estimate_where_no_worker_is_alive(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Though its tenant is served in another pool; nor where none was served in this one of late."""
    queue = await make_queue()
    await put(queue, "a", "m1", "m2")
    await put(queue, "a", "g0", "g1", pool="gpu")
    await alive(queue)
    await (await one(queue)).complete()
    clock.advance(1)
    assert (await queue.explain("a", "m2")).estimate == timedelta(seconds=1)
    found = await queue.explain("a", "g1")
    assert (found.estimate, found.lines[-1]) == (None, "no worker is alive that claims from pool gpu")
    await alive(queue, "gpu")
    assert (await queue.explain("a", "g1")).estimate is None
    await (await one(queue, pools=("gpu",))).complete()
    clock.advance(1)
    assert (await queue.explain("a", "g1")).estimate == timedelta(seconds=2)
    assert (await queue.explain("a", "m2")).estimate is None


@pytest.mark.parametrize("limit", [None, 1], ids=["in turn", "at a full limit"])
async def test_an_estimate_knows_that_queues_take_turns(
    make_queue: MakeQueue, clock: ManualClock, limit: int | None
) -> None:
    """One claim a second: after as many seconds as it says, the message starts."""
    queue = await make_queue(limits=[Limit("tenant", default=limit)])
    for name in "vwxyz":
        await put(queue, "a", *(f"{name}{number}" for number in range(8)), queue=name)
    leases = list[str]()

    async def a_second() -> None:
        lease = await one(queue)
        leases.append(lease.message.id)
        if limit:
            assert await claimed(queue) == []
        clock.advance(1)
        await lease.complete()

    for _ in range(12):
        await a_second()
    await alive(queue)
    for id_ in ("v5", "z7"):
        assert (estimate := (await queue.explain("a", id_)).estimate)
        before = len(leases)
        while id_ not in leases:
            await a_second()
        round_ = 5 if limit else 1  # seconds; whose turn is next at a limit is not known
        assert abs(estimate.total_seconds() - (len(leases) - before)) <= round_
        await alive(queue)


async def test_dead_and_why(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.none())
    await put(queue, "a", "m1")
    await (await one(queue)).fail("broken")
    found = await queue.explain("a", "m1")
    assert (found.reason, found.error, found.stops) == ("failed", "broken", ())
    assert found.lines[1] == "it died: failed; it stays dead until it is redriven or purged"
    await queue.dead_letters.redrive("a", "m1")
    assert await claimed(queue) == ["m1"]


async def test_what_is_not_there_is_not_found(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1")
    await (await one(queue)).complete()
    with pytest.raises(MessageNotFoundError, match="there is no message 'm1' of tenant 'a': it is gone"):
        await queue.explain("a", "m1")


async def test_workers_of_its_pool_that_are_alive_are_counted(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", pool="gpu")
    info = '{"host":"h","pid":1,"pools":["gpu"],"concurrency":1,"running":0,"version":"1","up_ms":0}'
    await queue._engine.run(queue._engine.calls.beat("w1", info, 60_000))
    assert (await queue.explain("a", "m1")).workers == 1
    clock.advance(61)
    gone = await queue.explain("a", "m1")
    assert (gone.workers, gone.lines[-1]) == (0, "no worker is alive that claims from pool gpu")
    assert await claimed(queue, pools=["gpu"]) == ["m1"]


async def test_a_group_that_cannot_be_counted_is_told(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=5)])
    await put(queue, "a", "m1")
    await faults.wrong_type(queue, "slots", "tenant", "a")
    found = await queue.explain("a", "m1")
    assert [(stop.kind, stop.limit, stop.group_id) for stop in found.stops] == [("repair", "tenant", "a")]
    assert (
        str(found.stops[0])
        == "limit tenant:a cannot be counted: its key is broken (a claim or reconcile mends it)"
    )
    assert await claimed(queue) == ["m1"]  # the claim that meets it has it counted anew


async def test_a_broken_lane_and_a_lost_turn_are_told(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1")
    name = lane("a")
    (ring,) = await raw(queue, "ZRANGE", "ring", "p", "default", args=(0, -1))
    assert ring == b"a"
    await raw(queue, "DEL", "ring", "p", "default")
    assert str((await queue.explain("a", "m1")).stops[0]) == "its queue takes no turns (reconcile mends it)"
    await queue.reconcile()
    assert await kinds(queue, "m1") == []
    await faults.wrong_type(queue, "lane", "a", "default")
    assert await claimed(queue) == []
    (stop,) = (await queue.explain("a", "m1")).stops
    assert (stop.kind, str(stop).startswith("the messages of its queue cannot be read")) == ("repair", True)
    await raw(queue, "DEL", "lane", name)
    await queue.audit(fix=True)
    assert await kinds(queue, "m1") == []
    assert await claimed(queue) == ["m1"]


async def test_it_costs_a_bounded_number_of_commands_and_writes_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue(
        limits=[Limit("tenant", default=1000), Limit("model", default=1000, key="model")]
    )
    await put(queue, "a", *(f"m{number}" for number in range(1300)), metadata=LARGE)
    await claimed(queue, 1000)
    before = await commands(queue)
    found = await queue.explain("a", "m1200")
    assert await commands(queue) - before < 300
    assert [(stop.held, len(stop.holders)) for stop in found.stops] == [(1000, 100), (1000, 100)]
    assert isinstance(found, Explanation)
    assert str(found.stops[0]).endswith(" and 997 more")
