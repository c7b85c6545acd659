"""Pauses: nothing that they name starts, whatever happens meanwhile, until exactly they are lifted."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from fairqueue import ConfigurationError, FairQueue, FairQueueError, Limit, NewMessage, Pause
from fairqueue._engine.keys import key
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, commands_of_a_claim, finish, found, held, names, one, put, raw, state
from tests.support.monitor import monitored
from tests.support.processes import Server

POOLS = ("p", "q")
ALL = [f"{t}{q}{p}" for t in "ab" for q in "xy" for p in "pq"]  # tenant, queue and pool of one message each
SELECTORS = ("tenant", "queue", "pool")
COMBINATIONS = [
    chosen for size in (1, 2, 3) for chosen in itertools.combinations(SELECTORS, size)
]  # each alone, two together, all three


async def one_of_each(queue: FairQueue[Any]) -> None:
    await queue.enqueue_many([NewMessage(n, tenant=n[0], queue=n[1], pool=n[2], id=n) for n in ALL])


async def everything(queue: FairQueue[Any], n: int = 1000) -> list[str]:
    return sorted(await claimed(queue, n, pools=POOLS))


@pytest.mark.parametrize("scheduler", ["fair", "fifo"])
@pytest.mark.parametrize("chosen", COMBINATIONS, ids="-".join)
async def test_what_has_all_selectors_waits_and_nothing_else(
    make_queue: MakeQueue, chosen: tuple[str, ...], scheduler: str
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=50)], scheduler=scheduler)
    await one_of_each(queue)
    selectors = {name: dict(zip(SELECTORS, "axp", strict=True))[name] for name in chosen}
    assert await queue.pause(**selectors)
    stopped = [
        n for n in ALL if all(n[SELECTORS.index(name)] == "axp"[SELECTORS.index(name)] for name in chosen)
    ]
    assert await everything(queue) == sorted(set(ALL) - set(stopped))
    assert (await queue.audit()).ok
    assert await queue.resume(**selectors)
    assert await everything(queue) == stopped
    assert await queue._engine.command("SCARD", key(queue._engine.calls.root, "blocked", "p")) == 0


async def test_two_pauses_together_are_no_conjunction(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await one_of_each(queue)
    await queue.pause(tenant="a")
    await queue.pause(queue="x")
    assert await everything(queue) == ["byp", "byq"]
    await queue.resume(tenant="a")
    assert await everything(queue) == ["ayp", "ayq"]
    assert not await queue.resume(tenant="a", queue="x")
    assert await everything(queue) == []
    await queue.resume(queue="x")
    assert await everything(queue) == ["axp", "axq", "bxp", "bxq"]


async def test_a_lane_that_is_parked_at_one_pause_and_let_go_waits_at_the_next(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await one_of_each(queue)
    pauses: list[dict[str, str]] = [
        {"tenant": "a"}, {"queue": "x"}, {"pool": "p"}, {"tenant": "a", "queue": "x", "pool": "p"}
    ]  # fmt: skip
    for selectors in pauses:
        await queue.pause(**selectors)
    assert "axp" not in await everything(queue)
    for selectors in pauses[:-1]:
        await queue.resume(**selectors)
        assert "axp" not in await everything(queue)
    await queue.resume(**pauses[-1])
    assert "axp" in await everything(queue)


async def test_what_is_said_of_a_pause(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    began = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    assert await queue.pause(tenant="a", queue="x", by="ops", reason="why \x1f\x1e {not}")
    clock.advance(5)
    assert await queue.pause(pool="p")
    assert not await queue.pause(tenant="a", queue="x", by="other", reason="ü")
    other = await make_queue()
    assert [pause async for pause in other.pauses()] == [
        Pause(tenant="a", queue="x", pool=None, by="other", reason="ü", since=began),
        Pause(tenant=None, queue=None, pool="p", by=None, reason=None,
              since=datetime.fromtimestamp(clock.now_ms() / 1000, UTC)),
    ]  # fmt: skip
    for selectors in ({"tenant": "a", "queue": "x"}, {"pool": "p"}):
        assert await queue.resume(**selectors)  # type: ignore[arg-type]
        assert not await queue.resume(**selectors)  # type: ignore[arg-type]
    assert [pause async for pause in queue.pauses()] == []


@pytest.mark.parametrize(
    "selectors", [{}, {"tenant": ""}, {"pool": 5}, {"queue": "a\x1eb"}, {"tenant": "a", "by": 5}]
)
async def test_what_names_nothing_is_refused(make_queue: MakeQueue, selectors: dict[str, Any]) -> None:
    queue = await make_queue()
    with pytest.raises(ConfigurationError, match="expected"):
        await queue.pause(**selectors)
    if "by" not in selectors:
        with pytest.raises(ConfigurationError, match="expected"):
            await queue.resume(**selectors)
    assert [pause async for pause in queue.pauses()] == []


@pytest.mark.parametrize("odd", ["*", "a:b", "{x}", " ", "😀", "!pause"])
async def test_odd_names_are_paused_as_any(make_queue: MakeQueue, odd: str) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=5)])
    for tenant in (odd, "other"):
        await put(queue, tenant, "m", queue=odd)
    await queue.pause(tenant=odd, queue=odd)
    assert names(await queue.claim(5)) == ["other/m"]
    await queue.resume(tenant=odd, queue=odd)
    assert names(await queue.claim(5)) == [f"{odd}/m"]


# --- what happens meanwhile --------------------------------------------------------------------------------------


async def test_nothing_starts_however_it_comes_back(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=4)])
    await put(queue, "a", "released", "failed", "expired", "dead", "next", "done")
    released, failed, expired, dead = await queue.claim(4)
    await queue.pause(tenant="a")
    await dead.dead_letter("no")
    assert await queue.claim(10) == []
    await released.release()
    await failed.fail("later")
    clock.advance(40)
    assert expired.message.id in [id_ for _, id_ in (await queue.reclaim()).reclaimed]
    assert await queue.dead_letters.redrive_all("a") == 1
    await put(queue, "a", "new")
    await put(queue, "a", "elsewhere", queue="q2")
    await queue.limits.set("tenant", "a", None)
    await queue.reconcile()
    await queue.audit(fix=True)
    clock.advance(4000)
    assert await queue.claim(10) == []
    await queue.resume(tenant="a")
    assert sorted(await claimed(queue)) == sorted(
        ["released", "failed", "expired", "dead", "next", "done", "new", "elsewhere"]
    )


async def test_what_is_in_flight_goes_on(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    lease = await one(queue)
    await queue.pause(tenant="a")
    await lease.extend()
    assert await lease.complete() == "done"
    assert await queue.claim(5) == []
    assert await held(queue, "tenant", "a") == 0
    await queue.resume(tenant="a")
    assert await claimed(queue) == ["m2"]


async def test_a_pause_outlives_the_server_and_its_clients(namespace: str) -> None:
    """It must show: pause, set limit, reconcile, redrive_all, restart: not one start before resume."""
    own = Server()
    try:
        own.start()
        async with FairQueue(own.url, namespace, limits=[Limit("tenant", default=1)]) as queue:
            await put(queue, "a", "m1", "m2", "m3")
            await (await one(queue)).dead_letter("no")
            await queue.pause(tenant="a", by="ops", reason="why")
            assert await queue.claim(5) == []
            await queue.limits.set("tenant", "a", 10)
            await queue.reconcile()
            assert await queue.dead_letters.redrive_all("a") == 1
            assert await queue.claim(5) == []
            own.kill()
            own.start()
            assert await queue.claim(5) == []
        async with FairQueue(own.url, namespace) as queue:
            assert [(pause.tenant, pause.by) async for pause in queue.pauses()] == [("a", "ops")]
            await queue.limits.reset("tenant", "a")
            await queue.limits.set("tenant", "a", None)
            await queue.reconcile()
            assert await queue.claim(5) == []
            await queue.resume(tenant="a")
            assert sorted(message.id for message in await drain(queue)) == ["m1", "m2", "m3"]
            assert (await queue.audit()).ok
    finally:
        own.remove()


async def test_limit_and_pause_are_independent(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    lease = await one(queue)
    await queue.pause(tenant="a")
    await queue.resume(tenant="a")
    assert await queue.claim(5) == []  # the limit holds
    await queue.pause(tenant="a")
    await lease.complete()
    assert await queue.claim(5) == []  # the pause holds
    await queue.limits.set("tenant", "a", 0)
    await queue.resume(tenant="a")
    assert await queue.claim(5) == []  # the limit again
    await queue.limits.reset("tenant", "a")
    assert await claimed(queue) == ["m2"]


async def test_a_slot_that_a_paused_lane_was_promised_goes_to_the_next(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    for tenant in "abc":
        await put(queue, tenant, "m1", "m2", metadata={"org": "o"})
    for wanted in ("a/m1", "a/m2"):
        lease = await one(queue)
        assert names([lease]) == [wanted]
        assert await queue.claim(5) == []
        await lease.complete()  # in the end b is woken
    await queue.pause(tenant="b")
    lease = await one(queue)
    assert names([lease]) == ["c/m1"]
    await lease.complete()  # b's turn at the org comes again: it waits at its pause
    lease = await one(queue)
    assert names([lease]) == ["c/m2"]
    await queue.resume(tenant="b")
    assert await queue.claim(5) == []
    await lease.complete()
    assert names(await queue.claim(5)) == ["b/m1"]


async def test_a_leftover_slot_starts_nothing_that_is_paused(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    await faults.leak_slot(queue, "tenant", "a", "m")
    await queue.pause(tenant="a")
    assert await queue.claim(5) == []
    await queue.resume(tenant="a")
    assert await claimed(queue) == ["m"]


# --- fairness and cost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "selectors", [{"tenant": "a"}, {"queue": "x"}, {"tenant": "a", "queue": "x"}], ids=str
)
async def test_the_time_paused_is_neither_credit_nor_debt(
    make_queue: MakeQueue, selectors: dict[str, str]
) -> None:
    queue = await make_queue()
    ids = [f"m{n:03}" for n in range(100)]
    await put(queue, "a", *ids, queue="x")
    await put(queue, "b", *ids)
    await finish(queue, await queue.claim(10))
    await queue.pause(**selectors)
    leases = await queue.claim(50)
    assert {lease.message.tenant for lease in leases} == {"b"}
    await finish(queue, leases)
    await queue.resume(**selectors)
    served = [lease.message.tenant for lease in await queue.claim(20)]
    assert abs(served.count("a") - 10) <= 1


async def test_the_turns_of_a_paused_pool_stand_still(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for tenant in "ab":
        await put(queue, tenant, *(f"m{n:03}" for n in range(50)), pool="p")
    await finish(queue, await queue.claim(3, pools=("p",)))
    await queue.pause(pool="p")
    assert await queue.claim(50, pools=("p",)) == []
    await put(queue, "c", *(f"m{n:03}" for n in range(50)), pool="p")
    await queue.resume(pool="p")
    served = [lease.message.tenant for lease in await queue.claim(30, pools=("p",))]
    assert all(abs(served.count(tenant) - 10) <= 1 for tenant in "abc")


async def test_paused_tenants_cost_later_claims_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "z", *(f"m{n:03}" for n in range(10)))
    alone, leases = await commands_of_a_claim(queue)
    await finish(queue, leases)
    for n in range(300):
        await put(queue, f"t{n:03}", "m", queue="q")
    await queue.pause(queue="q")
    assert names(await queue.claim(1)) == ["z/m001"]
    cost, leases = await commands_of_a_claim(queue)
    assert names(leases) == ["z/m002"]
    assert cost <= alone + 4  # are there pauses, is the pool paused (twice: its bell too), is the lane
    await queue.resume(queue="q")
    assert len(await queue.claim(1000)) == 307


async def test_without_a_pause_a_claim_costs_one_command_more(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    for tenant in "abc":
        await put(queue, tenant, "m0", "m1")
    pauses = key(queue._engine.calls.root, "pauses").encode()
    async with monitored(queue.url) as monitor:
        assert await claimed(queue, 2) == ["m0", "m0"]
        asked = [one.words[0] for one in await monitor.seen() if one.in_script and pauses in one.words]
    assert asked == [b"EXISTS"]  # together with what else is seldom there


async def test_resume_wakes_idle_claimers(make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None)
    for selectors in ({"tenant": "a"}, {"pool": "default"}, {"queue": "q", "pool": "default"}):
        await put(queue, "a", "m", queue="q")
        await queue.pause(**selectors)  # type: ignore[arg-type]
        assert await queue.claim(1) == []
        waiting = asyncio.ensure_future(queue.claim(1, wait=30))
        await asyncio.sleep(0)
        await queue.resume(**selectors)  # type: ignore[arg-type]
        await finish(queue, await asyncio.wait_for(waiting, 5))


async def test_many_paused_tenants_are_let_go_in_steps(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n:04}") for n in range(700)])
    await queue.pause(queue="default")
    assert await queue.claim(1000) == []
    assert await queue.resume(queue="default")
    leases = await queue.claim(1000)
    assert len(leases) == 700


async def test_a_resume_that_was_cut_is_ended_by_reconcile(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n:04}") for n in range(450)])
    await queue.pause(queue="default")
    assert await queue.claim(1000) == []
    await queue._engine.command("DEL", key(queue._engine.calls.root, "pauses"))
    assert await queue.claim(1000) == []
    assert ("MOVES", "!pause/\x1edefault\x1e") in found(await queue.audit())
    await queue.reconcile()
    assert len(await queue.claim(1000)) == 450


# --- damage ------------------------------------------------------------------------------------------------------


async def test_pauses_that_cannot_be_read_resume_nobody(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    await put(queue, "b", "m1", "m2")
    lease = await one(queue)
    await queue.pause(tenant="b")
    assert await queue.claim(5) == []
    await faults.wrong_type(queue, "pauses")
    await lease.complete()
    await put(queue, "c", "m1")
    await queue.reconcile()
    with pytest.raises(FairQueueError, match="WRONGTYPE"):
        await queue.claim(5)
    with pytest.raises(FairQueueError, match="WRONGTYPE"):
        await queue.pause(tenant="c")
    with pytest.raises(FairQueueError, match="WRONGTYPE"):
        [pause async for pause in queue.pauses()]
    assert await state(queue, "b", "m1") == "ready"
    assert found(await queue.audit()) == [("SLOTS", "pauses")]
    await queue._engine.command("DEL", key(queue._engine.calls.root, "pauses"))
    await queue.pause(tenant="b")
    assert sorted(names(await queue.claim(5))) == ["a/m2", "c/m1"]
    await queue.resume(tenant="b")
    assert names(await queue.claim(5)) == ["b/m1"]


async def test_a_damaged_pause_stands(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await queue.pause(tenant="a")
    await queue._engine.command("HSET", key(queue._engine.calls.root, "pauses"), "a\x1e\x1e", b"\xff rubbish")
    await queue._engine.command("HSET", key(queue._engine.calls.root, "pauses"), "nobody", "1")
    assert await queue.claim(1) == []
    assert [(pause.tenant, pause.since) async for pause in queue.pauses()] == [("a", None)]
    await queue.resume(tenant="a")
    assert await claimed(queue) == ["m"]


async def test_a_lane_without_messages_that_a_cut_left_waiting_is_forgotten(make_queue: MakeQueue) -> None:
    """Nobody comes by it: what is purged and cancelled may leave it so, where the script is cut at the very end."""
    queue = await make_queue()
    await put(queue, "a", "m")
    await queue.pause(tenant="a")
    assert await queue.claim() == []
    parked = await raw(queue, "HGETALL", "parked", "default", "a")
    assert await queue.purge("a") == 1
    (at,) = parked.items()
    await raw(queue, "HSET", "parked", "default", "a", args=at)
    await raw(queue, "SADD", "blocked", "default", args=("a",))
    await raw(queue, "SADD", "pools", args=("default",))
    await queue.reconcile()
    assert await raw(queue, "EXISTS", "parked", "default", "a") == 0
    assert await raw(queue, "EXISTS", "blocked", "default") == 0
    await queue.resume(tenant="a")
