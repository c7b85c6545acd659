"""Settings that are declared anew while other clients run: the server owns them, and whoever runs learns them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fairqueue import (
    ConfigurationError,
    FairQueue,
    FairQueueError,
    Limit,
    Message,
    NewMessage,
    RetryPolicy,
    SettingsChangedError,
    SyncFairQueue,
    Worker,
)
from fairqueue._engine.calls import CallNumber, Stream
from fairqueue.limits import to_settings
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, one, put, raw, twin_of
from tests.support.proxy import Proxy, hold_request, lose_reply
from tests.support.waiting import eventually

ORG = [Limit("org", default=1, key="org")]
SHOPS = {"org": "shops"}


def by_queue(message: NewMessage[Any]) -> str:
    return message.queue


def declare(queue: FairQueue[Any], **options: Any) -> None:
    """Another program declares, from start to end, while this one stands still."""
    with SyncFairQueue(queue.url, queue.name, **options):
        pass


def once(then: Callable[[], None]) -> Callable[[NewMessage[Any]], str]:
    """A limit's function during whose first call something happens: after it the groups are resolved, not sent."""
    left = [then]

    def key(message: NewMessage[Any]) -> str:
        if left:
            left.pop()()
        return message.queue

    return key


async def test_messages_of_a_client_that_ran_before_count_against_a_new_limit(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await make_queue(limits=ORG)
    await put(queue, "a", "m1", metadata=SHOPS)
    await put(queue, "b", "m2", metadata=SHOPS)
    lease = await one(queue)
    assert lease.message.groups == (("org", "shops"),)
    assert await claimed(queue) == []
    assert await lease.complete() == "done"
    assert await claimed(queue) == ["m2"]


async def test_a_batch_is_counted_against_a_new_limit(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await make_queue(limits=ORG)
    sent = await queue.enqueue_many(NewMessage(n, tenant=f"t{n % 7}", metadata=SHOPS) for n in range(600))
    assert all(each.created for each in sent)
    assert len(await claimed(queue)) == 1
    assert (await queue.limits.get("org", "shops")).waiting == 599


async def test_it_costs_a_look_at_the_settings_once(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m0")
    trips = []
    await make_queue(limits=ORG)
    for n in (1, 2):
        before = queue._engine.connection.round_trips
        await put(queue, "a", f"m{n}", metadata=SHOPS)
        trips.append(queue._engine.connection.round_trips - before)
    assert trips == [3, 1]


async def test_a_declaration_between_resolving_and_sending(make_queue: MakeQueue) -> None:
    limits: list[Limit] = []
    key = once(lambda: declare(queue, limits=[*limits, *ORG]))
    limits.append(Limit("model", default=9, key=key))
    queue = await make_queue(limits=limits)
    await put(queue, "a", "m1", "m2", metadata=SHOPS)
    assert (await one(queue)).message.groups == (("model", "default"), ("org", "shops"))
    assert await claimed(queue) == []


async def test_a_declaration_between_two_calls_of_one_batch(proxy: Proxy, make_queue: MakeQueue) -> None:
    queue, gate = await make_queue(url=proxy.url), threading.Event()
    proxy.next("enqueue", hold_request(gate), after=1)
    messages = [NewMessage(n, tenant="a", metadata=SHOPS if n >= 500 else {}) for n in range(510)]
    sending = asyncio.create_task(queue.enqueue_many(messages))
    await eventually(lambda: proxy.count("enqueue") == 2, "the second call to be under way")
    await make_queue(limits=ORG)
    gate.set()
    assert all(each.created for each in await sending)
    assert len(await claimed(queue)) == 501


async def test_an_enqueue_whose_answer_was_lost_is_not_stored_anew_for_new_settings(
    proxy: Proxy, make_queue: MakeQueue
) -> None:
    """What has been done is answered, whatever was declared since; else its message, done by then, would come back."""
    queue = await make_queue(url=proxy.url)
    gate = threading.Event()
    proxy.next("enqueue", lose_reply())
    proxy.next("enqueue", hold_request(gate))
    sending = asyncio.create_task(queue.enqueue(1, tenant="a", id="m", metadata=SHOPS))
    await eventually(lambda: proxy.count("enqueue") == 2, "the call to be repeated")
    other = await make_queue(limits=ORG)
    assert await (await one(other)).complete() == "done"
    gate.set()
    assert (await sending).created
    assert await claimed(other) == []


async def test_limits_declared_since_can_be_set_read_and_listed(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    with pytest.raises(ConfigurationError, match="declared limit"):
        await queue.limits.set("org", "shops", 2)
    await make_queue(limits=ORG)
    await queue.limits.set("org", "shops", 2)
    assert (await queue.limits.get("org", "shops")).limit == 2
    assert [(state.id, state.limit) async for state in queue.limits.list("org")] == [("shops", 2)]
    await queue.limits.reset("org", "shops")
    assert (await queue.limits.get("org", "shops")).limit == 1


async def test_limits_that_are_no_longer_declared_are_refused(make_queue: MakeQueue) -> None:
    for use in ("set", "reset", "get", "list"):
        queue = await make_queue(limits=ORG)
        await make_queue(limits=[Limit("tenant", default=1)])
        calls = {
            "set": lambda queue=queue: queue.limits.set("org", "shops", 2),
            "reset": lambda queue=queue: queue.limits.reset("org", "shops"),
            "get": lambda queue=queue: queue.limits.get("org", "shops"),
            "list": lambda queue=queue: anext(queue.limits.list("org")),
        }
        with pytest.raises(ConfigurationError, match="declared limit"):
            await calls[use]()
    assert await raw(queue, "HGETALL", "limits") == {b"tenant": b"1"}


async def test_a_claim_tells_of_a_new_retry_policy(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await make_queue(retry=RetryPolicy.fixed(77, max_crashes=3))
    lease = await one(queue)
    assert queue._engine.settings.stored["max_crashes"] == "3"
    before = queue._engine.connection.round_trips
    assert await lease.fail("no") == "retried"
    assert queue._engine.connection.round_trips == before + 1
    await waits(queue, clock, 77)


async def waits(queue: FairQueue[Any], clock: ManualClock, seconds: int) -> None:
    clock.advance(seconds - 0.001)
    assert await claimed(queue) == []
    clock.advance(0.001)
    assert await claimed(queue) == ["m"]


async def test_a_failure_of_a_lease_claimed_before_waits_by_the_new_policy(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(5))
    await put(queue, "a", "m")
    lease = await one(queue)
    await make_queue(retry=RetryPolicy.fixed(77))
    assert await lease.fail("no") == "retried"
    await waits(queue, clock, 77)


async def test_failures_that_travel_with_a_claim_wait_by_the_new_policy(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(5))
    await put(queue, "a", "m")
    failed, ran = asyncio.Event(), []

    async def handle(message: Message[Any]) -> None:
        if message.attempt == 1:
            await asyncio.to_thread(declare, queue, retry=RetryPolicy.fixed(77))
            failed.set()
            raise ValueError("no")
        ran.append(message.id)

    worker: Worker[Any] = Worker(queue, handle, concurrency=2)
    running = asyncio.create_task(worker.run(signals=False))
    try:
        await failed.wait()
        info = await queue.get("a", "m")
        while info is None or info.state != "delayed":
            info = await queue.get("a", "m")
        assert info.due_at is not None
        assert round(info.due_at.timestamp() * 1000) == clock.now_ms() + 77_000
    finally:
        worker.stop()
        await running
    assert ran == []


async def test_a_wait_the_caller_chose_and_a_complete_ask_no_policy(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2")
    first, second = await queue.claim(2)
    await make_queue(retry=RetryPolicy.fixed(77))
    before = queue._engine.connection.round_trips
    assert await queue.complete_many([first]) == ["done"]
    assert await queue.release_many([second], delay=3) == ["released"]
    assert queue._engine.connection.round_trips == before + 2


async def test_an_end_of_a_delivery_does_not_wait_for_settings_that_cannot_be_read(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(5))
    await put(queue, "a", "m")
    lease = await one(queue)
    settings = ["limits", "nonsense", "revision", "1"]
    before = await raw(queue, "HMGET", "settings", args=settings[::2])
    await raw(queue, "HSET", "settings", args=settings)
    assert await lease.fail("no") == "retried"
    await raw(queue, "HSET", "settings", args=[settings[0], before[0], settings[2], before[1]])


async def test_a_failure_that_was_done_is_answered_whatever_was_declared_since(
    proxy: Proxy, make_queue: MakeQueue
) -> None:
    queue, gate = await make_queue(url=proxy.url, retry=RetryPolicy.fixed(5)), threading.Event()
    await put(queue, "a", "m")
    lease = await one(queue)
    proxy.next("settle", lose_reply())
    proxy.next("settle", hold_request(gate))
    failing = asyncio.create_task(lease.fail("no"))
    await eventually(lambda: proxy.count("settle") == 2, "the call to be repeated")
    await make_queue(retry=RetryPolicy.fixed(77))
    gate.set()
    assert await failing == "retried"
    assert (await queue.stats()).totals.retried == 1


async def test_who_declared_and_was_overruled_follows_and_says_so(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)], retry=RetryPolicy.fixed(5))
    await make_queue(limits=ORG, retry=RetryPolicy.fixed(77))
    with caplog.at_level(logging.WARNING, "fairqueue"):
        await put(queue, "a", "m1", "m2", metadata=SHOPS)
        await put(queue, "a", "m3", metadata=SHOPS)
    followed = [record for record in caplog.records if "follows" in record.getMessage()]
    assert ["retry, limits" in record.getMessage() for record in followed] == [True]
    assert (await one(queue)).message.groups == (("org", "shops"),)
    assert queue._engine.retry.delay_ms(1) == 77_000


async def test_a_function_is_kept_for_a_limit_that_still_has_its_name(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("model", default=5, key=by_queue)])
    await make_queue(limits=[Limit("model", default=1, key=lambda _: "other"), *ORG])
    await put(queue, "a", "m", metadata=SHOPS)
    assert (await one(queue)).message.groups == (("model", "default"), ("org", "shops"))


async def test_a_function_that_only_the_other_has_refuses_the_enqueue(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=5)])
    other = await make_queue(limits=[Limit("model", default=1, key=by_queue)])
    with pytest.raises(ConfigurationError, match="'model' is computed by a function"):
        await put(queue, "a", "m")
    assert await queue.get("a", "m") is None
    await put(other, "a", "m")
    assert await claimed(queue) == ["m"]


async def test_the_waits_of_a_custom_policy_are_kept_with_new_numbers_of_tries(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.custom(lambda attempt, error: 3, max_attempts=4))
    await make_queue(retry=RetryPolicy.custom(lambda attempt, error: 9, max_attempts=6))
    await put(queue, "a", "m")
    await one(queue)
    assert (queue._engine.retry.max_attempts, queue._engine.retry.delay_ms(1)) == (6, 3000)


async def test_settings_that_never_come_to_rest_end_in_a_named_error(make_queue: MakeQueue) -> None:
    """Each time the groups are resolved somebody declares something else."""
    defaults, queues = iter(range(1000)), []

    def key(message: NewMessage[Any]) -> str:
        if queues:
            declare(queues[0], limits=[Limit("model", default=next(defaults), key=by_queue)])
        return message.queue

    queue = await make_queue(limits=[Limit("model", default=5, key=key)])
    queues.append(queue)
    with pytest.raises(SettingsChangedError, match="nothing was done"):
        await put(queue, "a", "m")
    assert 2 <= next(defaults) <= 20
    queues.clear()
    assert await queue.get("a", "m") is None
    await put(queue, "a", "m")
    assert await claimed(queue) == ["m"]


async def test_settings_that_were_lost_and_declared_by_another_are_learned(make_queue: MakeQueue) -> None:
    """They do not come back to a revision that a client knows, even where the clock stands still."""
    queue = await make_queue()
    await queue._engine.command("FLUSHALL")
    await make_queue(limits=ORG)
    await put(queue, "a", "m1", "m2", metadata=SHOPS)
    assert await claimed(queue) == ["m1"]
    assert await held(queue, "org", "shops") == 1


async def test_settings_stored_by_a_version_that_did_not_count_them(make_queue: MakeQueue) -> None:
    await make_queue(limits=[Limit("tenant", default=1)])
    queue = await make_queue()
    await raw(queue, "HDEL", "settings", args=["revision"])
    late = await make_queue()
    for each in (queue, late):
        await put(each, "a", "m1", metadata=SHOPS)
    await make_queue(limits=ORG)
    await put(late, "a", "m2", metadata=SHOPS)
    groups = {lease.message.id: lease.message.groups for lease in await late.claim(2)}
    assert groups == {"m1": (("tenant", "a"),), "m2": (("org", "shops"),)}


async def test_an_equal_declaration_makes_nobody_learn(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ORG)
    before = await raw(queue, "HGET", "settings", args=["revision"])
    await make_queue(limits=ORG)
    await make_queue()
    assert await raw(queue, "HGET", "settings", args=["revision"]) == before


async def test_who_connects_again_does_not_bring_its_old_declaration_back(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=7)])
    await queue.close()
    newer = await make_queue(limits=ORG)
    await queue.connect()
    assert await raw(newer, "HGET", "settings", args=["limits"]) == to_settings(ORG).encode()
    await put(queue, "a", "m", metadata=SHOPS)
    assert (await one(queue)).message.groups == (("org", "shops"),)


async def test_a_declaration_that_arrives_late_replaces_nothing(make_queue: MakeQueue) -> None:
    """Its client hung up, sent it again and was answered; then somebody declared something else."""
    engine = (await make_queue())._engine
    said = {"limits": to_settings([Limit("tenant", default=7)])}
    call = engine.calls.configure(Stream("late", 1, CallNumber(1)), "me", said, [("tenant", 7)])
    words = ["EVAL", call.script.source, 1, engine.calls.root]
    first, second = call.sending(), call.sending()
    await engine.command(*words, *second)
    newer = await make_queue(limits=ORG)
    with pytest.raises(FairQueueError, match="FQOVERTAKEN"):
        await engine.command(*words, *first)
    assert call.decode(await engine.command(*words, *call.sending())).changed == ("limits",)
    assert await raw(newer, "HGET", "settings", args=["limits"]) == to_settings(ORG).encode()
    assert await raw(newer, "HGETALL", "limits") == {b"org": b"1"}


async def test_a_lease_learned_of_twice_keeps_its_own_end(make_queue: MakeQueue) -> None:
    """A refused settle has done nothing: the repeated one is judged by the token like any other."""
    queue = await make_queue(retry=RetryPolicy.fixed(5))
    await put(queue, "a", "m")
    lease = await one(queue)
    assert await twin_of(lease).complete() == "done"
    await make_queue(retry=RetryPolicy.fixed(77))
    assert await queue.fail_many([lease]) == ["lost"]


def test_the_sync_client_learns_too(server: str, namespace: str) -> None:
    with SyncFairQueue[int](server, namespace) as queue:
        with SyncFairQueue[int](server, namespace, limits=ORG, retry=RetryPolicy.fixed(0)):
            pass
        for n in range(2):
            queue.enqueue(n, tenant="a", metadata=SHOPS)
        (lease,) = queue.claim(2)
        assert lease.message.groups == (("org", "shops"),)
        queue.limits.set("org", "shops", 2)
        assert lease.fail("no") == "retried"
        leases = queue.claim(2)
        assert queue.complete_many(leases) == ["done", "done"]


@pytest.mark.parametrize("damaged", ["9007199254740992", "1" * 40, "inf", "nan", "-5", "x", "1e300", ""])
async def test_a_damaged_revision_is_raised_all_the_same(make_queue: MakeQueue, damaged: str) -> None:
    """One that no number follows would never change again: nobody who runs would learn of a declaration."""
    running = await make_queue()
    await running._engine.command("HSET", running._engine.calls.root + "settings", "revision", damaged)
    await running.enqueue(0, tenant="t", metadata={"org": "o"})  # it knows that one
    await make_queue(limits=[Limit("org", default=1, key="org")])
    await running.enqueue_many(NewMessage(n, tenant="t", metadata={"org": "o"}) for n in range(2))
    groups = [lease.message.groups for lease in await running.claim(9)]
    assert groups == [(), (("org", "o"),)]
