"""R: settings that cannot work, accepted in silence."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, Message, NewMessage, RetryPolicy, Worker
from fairqueue.lease_keeper import LeaseKeeper
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, one, put, raw
from tests.faults.scale import sized
from tests.support.fixtures import MakeServer
from tests.support.processes import Server
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually

# --- R1 ----------------------------------------------------------------------------------------------------------


def a_queue(**options: Any) -> FairQueue[Any]:
    return FairQueue("embedded://", **options)


def a_worker(**options: Any) -> Worker[Any]:
    return Worker(a_queue(), print, **options)


WRONG: list[tuple[str, Callable[..., Any], str, Any]] = [
    ("FairQueue", a_queue, "visibility_timeout", 0),
    ("FairQueue", a_queue, "visibility_timeout", -3),
    ("FairQueue", a_queue, "visibility_timeout", math.nan),
    ("FairQueue", a_queue, "visibility_timeout", "30"),
    ("FairQueue", a_queue, "visibility_timeout", 0.0001),
    ("FairQueue", a_queue, "reclaim_interval", -1),
    ("FairQueue", a_queue, "reconcile_interval", math.inf),
    ("FairQueue", a_queue, "scheduler", "fare"),
    ("FairQueue", a_queue, "shards", 0),
    ("FairQueue", a_queue, "max_payload_bytes", 0),
    ("FairQueue", a_queue, "limits", "tenant"),
    ("FairQueue", a_queue, "retry", 3),
    ("FairQueue", a_queue, "dead_letters", 1),
    ("RetryPolicy", RetryPolicy, "max_attempts", 0),
    ("RetryPolicy", RetryPolicy, "max_crashes", 0),
    ("RetryPolicy", RetryPolicy, "initial", -1),
    ("RetryPolicy", RetryPolicy, "factor", math.nan),
    ("RetryPolicy", RetryPolicy, "maximum", 0.5),
    ("Worker", a_worker, "concurrency", 0),
    ("Worker", a_worker, "concurrency", True),
    ("Worker", a_worker, "grace", -1),
    ("Worker", a_worker, "handler_timeout", 0),
    ("Worker", a_worker, "pools", ()),
    ("NewMessage", lambda **given: NewMessage(1, tenant="T", **given), "delay", -1),
    ("NewMessage", lambda **given: NewMessage(1, tenant="T", **given), "max_attempts", 0),
]  # fmt: skip


@pytest.mark.case("R1")
@pytest.mark.parametrize(
    ("make", "option", "value"), [case[1:] for case in WRONG], ids=[f"{c[0]} {c[2]} {c[3]!r}" for c in WRONG]
)
def test_a_wrong_option_is_named_when_the_object_is_made(make: Any, option: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=f"expected {option} to be"):
        make(**{option: value})


@pytest.mark.case("R1")
async def test_a_wrong_argument_is_named_when_the_call_is_made(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    for n in (0, -1, 1.5, True, 1001):
        with pytest.raises(ValueError, match="expected n to be an integer from 1 to 1000"):
            await queue.claim(n)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected group to be a declared limit \(tenant\), got 'org'"):
        await queue.limits.set("org", "o", 1)
    assert (await queue.stats()).totals.claimed == 0


@pytest.mark.case("R1")
@pytest.mark.parametrize("visibility", [0.1, 0.11, 1, 30, 86_400])
async def test_extends_come_often_enough_whatever_the_timeout(
    make_queue: MakeQueue, visibility: float
) -> None:
    """There is no interval of heartbeats to set: it follows from the timeout, unrounded."""
    with pytest.raises(TypeError, match="heartbeat"):
        a_queue(heartbeat=10)
    queue = await make_queue(visibility_timeout=visibility)
    keeper = LeaseKeeper(queue._engine, queue._options.visibility_ms)
    assert 3 * keeper.interval < visibility


# --- R2 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("R2")
async def test_a_short_socket_timeout_breaks_no_wait_for_work(
    make_queue: MakeQueue, make_server: MakeServer
) -> None:
    """0.5 s, for 1: shorter than the second a wait lasts, which is not 5 s here. A worker that takes its own impatience for
    an outage would not reclaim either.

    2,000 messages, but only one in forty comes after a random pause of up to 2 s, the others after one of up to 0.02 s:
    with the case's 2 s for all it would take half an hour, for the same fifty waits or so that outlast the timeout.
    """
    messages = sized(2000)
    own = make_server(appendonly="no")
    options = {"clock": None, "visibility_timeout": 2, "reclaim_interval": 0.2}
    producer = await make_queue(url=own.url, **options)
    queue = await make_queue(url=f"{own.url}?socket_timeout=0.5", **options)
    await put(producer, "T", "abandoned")
    await one(producer)
    watch, abandoned = Stopwatch(), time.monotonic()
    handled: dict[str, float] = {}
    asked: dict[str, float] = {}

    async def handle(message: Message[Any]) -> None:
        handled[message.id] = time.monotonic()

    worker = Worker(queue, handle)
    working = asyncio.ensure_future(worker.run(signals=False))
    rng = random.Random(2)
    with watch.looking():
        for n in range(messages):
            asked[f"m{n}"] = time.monotonic()
            await put(producer, "T", f"m{n}")
            await asyncio.sleep(rng.uniform(0, 2 if n % 40 == 20 else 0.02))
        await eventually(lambda: len(handled) == messages + 1, "all to be handled")
    worker.stop()
    await working
    watch.check_each(1.5, "each to be handled", [(asked[id_], handled[id_]) for id_ in asked])
    watch.check(2 + 3, "the abandoned one to be handled", abandoned, handled["abandoned"])
    assert queue._engine.connection.lost_at is None, "nothing was lost"


# --- R3 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("R3")
@pytest.mark.parametrize(
    ("policy", "warned"), [("allkeys-lru", True), ("volatile-ttl", True), ("noeviction", False)]
)
async def test_a_server_that_may_evict_is_warned_of_at_start(
    make_queue: MakeQueue,
    make_server: MakeServer,
    caplog: pytest.LogCaptureFixture,
    policy: str,
    warned: bool,
) -> None:
    own: Server = make_server(appendonly="no", maxmemory_policy=policy)
    with caplog.at_level(logging.WARNING, "fairqueue"):
        await make_queue(url=own.url)
    assert (f"may evict keys (maxmemory-policy {policy})" in caplog.text) == warned


@pytest.mark.case("R3")
@pytest.mark.parametrize("meanwhile", [False, True], ids=["at once", "after more were let in"])
async def test_evicted_slots_are_counted_again_by_one_reconcile(
    make_queue: MakeQueue, meanwhile: bool
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await put(queue, "T", *(f"m{n}" for n in range(12)))
    leases = await queue.claim(3)
    await raw(queue, "DEL", "slots", "tenant", "T")
    if meanwhile:  # the next completion finds nothing held, and wakes them
        await leases.pop(0).complete()
        leases += await queue.claim(10)
        assert len(leases) == 5, "as many as there seemed to be room for"
    assert len((await queue.reconcile()).restored) == 3 - meanwhile
    assert await held(queue, "tenant", "T") == len(leases)
    while len(leases) >= 3:
        assert await queue.claim(10) == []
        await leases.pop().complete()
    assert len(await queue.claim(10)) == 1


@pytest.mark.case("R3")
@pytest.mark.parametrize("kinds", [["vtime"], ["tags"], ["vtime", "tags"]], ids=" and ".join)
async def test_without_its_fairness_state_the_queue_is_fair_again_at_once(
    make_queue: MakeQueue, kinds: list[str]
) -> None:
    queue = await make_queue()
    for n in range(60):
        await queue.enqueue_many([NewMessage(n, tenant=tenant, id=str(n)) for tenant in "ABC"])
    await put(queue, "D", "leaves a tag behind")
    assert len(await claimed(queue, 30)) == 30
    await evict(queue, kinds)
    await put(queue, "D", *(str(n) for n in range(60)))
    leases = await queue.claim(80)
    share = Counter(lease.message.tenant for lease in leases)
    assert len(leases) == 80
    assert max(share.values()) - min(share.values()) <= 10, "a few rounds of four"
    share = Counter(lease.message.tenant for lease in await queue.claim(40))
    assert max(share.values()) - min(share.values()) <= 1


@pytest.mark.case("R3")
@pytest.mark.parametrize(
    "kinds",
    [
        ["ring:p"],
        ["ring:t"],
        ["ring:g"],
        ["ring"],
        ["waiting"],
        ["waiters"],
        ["pools"],
        ["delayed"],
        ["ring", "pools", "delayed"],
    ],
    ids=" and ".join,
)
async def test_what_was_evicted_of_turns_and_due_times_is_written_again_by_one_reconcile(
    make_queue: MakeQueue, clock: ManualClock, kinds: list[str]
) -> None:
    """Rings say who takes turns and are an index too: without theirs, lanes stand still until they are put back."""
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    for tenant in "ABC":
        await put(queue, tenant, *(str(n) for n in range(4)))
    await put(queue, "A", "late", delay=30)
    held = await queue.claim(6)
    assert await queue.claim(6) == []
    await put(queue, "D", "free")
    await evict(queue, kinds)
    await queue.claim(1)  # what meets the damage before reconcile does makes it no worse
    await queue.reconcile()
    assert (await queue.audit()).ok
    clock.advance(30)
    await queue.complete_many(held)
    assert len(await drain(queue)) >= 7


@pytest.mark.case("R3")
async def test_a_counter_that_is_behind_has_all_messages_looked_at_once_not_each_time(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(n, tenant=f"t{n}") for n in range(201)])
    assert len(await queue.claim(201)) == 201
    await raw(queue, "HSET", "totals", args=("r", 3))
    with caplog.at_level(logging.WARNING, "fairqueue"):
        await queue.reconcile()
        assert "are missing" in caplog.text
        caplog.clear()
        await queue.reconcile()
        assert caplog.text == ""
    await raw(queue, "HSET", "totals", args=("r", 0))


async def evict(queue: FairQueue[Any], kinds: list[str]) -> None:
    """Deletes all keys of these families."""
    root = queue._engine.calls.root
    for kind in kinds:
        for key in await queue._engine.command("KEYS", root.replace("{", "\\{") + kind + "*"):
            await queue._engine.command("DEL", key)


@pytest.mark.case("R3")
async def test_the_doctor_puts_back_the_turns_that_were_evicted(make_queue: MakeQueue) -> None:
    """Rings say who takes turns and are an index too: without theirs, lanes stand still until they are put back."""
    queue = await make_queue(limits=[Limit("tenant", default=5)])
    for tenant in "ABC":
        await put(queue, tenant, *(str(n) for n in range(10)))
    await queue.claim(3)
    await evict(queue, ["ring"])
    assert {finding.check for finding in (await queue.audit()).findings} == {"MOVES"}
    await queue.audit(fix=True)
    assert (await queue.audit()).ok
    share = Counter(lease.message.tenant for lease in await queue.claim(12))
    assert share == {"A": 4, "B": 4, "C": 4}
