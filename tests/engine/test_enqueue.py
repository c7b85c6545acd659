"""Enqueue: what returned is stored, in order, once for each (tenant, id)."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from fairqueue import InvalidMessageError, Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, lane, one, put, raw, state


async def test_what_returned_is_stored_as_it_was_sent(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("org", key="org")])
    sent = await queue.enqueue(
        {"n": 1},
        tenant="a",
        queue="q",
        id="m",
        metadata={"org": "x"},
        max_attempts=3,
        pool="p",
        priority=7,
        cost=2.5,
    )
    assert (sent.id, sent.tenant, sent.created, sent.state) == ("m", "a", True, "ready")
    info = await queue.get("a", "m")
    assert info is not None
    message = info.message
    assert (message.tenant, message.queue, message.id, message.pool) == ("a", "q", "m", "p")
    assert (message.payload, message.metadata) == ({"n": 1}, {"org": "x"})
    assert (message.max_attempts, message.priority, message.cost) == (3, 7, 2.5)
    assert (message.attempt, message.crashes, message.groups) == (0, 0, (("org", "x"),))
    assert message.enqueued_at == clock.now


async def test_an_id_that_is_not_given_is_a_uuid_of_version_7(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    first = await queue.enqueue(1, tenant="a")
    second = await queue.enqueue(2, tenant="a")
    assert uuid.UUID(first.id).version == 7
    assert first.id < second.id
    assert await claimed(queue) == [first.id, second.id]


async def test_the_same_id_while_ready_adds_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue("first", tenant="a", id="m")
    again = await queue.enqueue("second", tenant="a", id="m")
    assert (again.created, again.state) == (False, "ready")
    assert [message.payload for message in await drain(queue)] == ["first"]


async def test_the_same_id_while_delayed_adds_nothing(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue("first", tenant="a", id="m", delay=60)
    again = await queue.enqueue("second", tenant="a", id="m")
    assert (again.created, again.state) == (False, "delayed")
    assert await queue.claim() == []
    clock.advance(60)
    assert [message.payload for message in await drain(queue)] == ["first"]


async def test_the_same_id_while_in_flight_leaves_the_running_lease_alone(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue("first", tenant="a", id="m")
    lease = await one(queue)
    again = await queue.enqueue("second", tenant="a", id="m")
    assert (again.created, again.state) == (False, "in_flight")
    assert lease.message.payload == "first"
    assert await lease.complete() == "done"
    assert await queue.get("a", "m") is None


async def test_the_same_id_while_dead_adds_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue("first", tenant="a", id="m")
    await (await one(queue)).dead_letter("enough")
    again = await queue.enqueue("second", tenant="a", id="m")
    assert (again.created, again.state) == (False, "dead")
    await queue.dead_letters.redrive("a", "m")
    assert [message.payload for message in await drain(queue)] == ["first"]


async def test_the_same_id_under_two_tenants_is_two_messages(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for tenant in ("a", "b"):
        assert (await queue.enqueue(tenant, tenant=tenant, id="m")).created
    assert sorted(message.payload for message in await drain(queue)) == ["a", "b"]


async def test_the_same_id_in_another_queue_of_the_tenant_adds_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", queue="q1", id="m")
    assert not (await queue.enqueue(2, tenant="a", queue="q2", id="m")).created
    assert [message.queue for message in await drain(queue)] == ["q1"]


async def test_the_same_id_twice_in_one_batch_is_one_message(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    sent = await queue.enqueue_many(
        [NewMessage(n, tenant="a", id="m", delay=delay) for n, delay in ((1, None), (2, 60), (3, None))]
    )
    assert [(one.created, str(one.state)) for one in sent] == [
        (True, "ready"),
        (False, "ready"),
        (False, "ready"),
    ]
    assert [message.payload for message in await drain(queue)] == [1]


async def test_the_same_objects_again_after_an_error_store_nothing_twice(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    messages = [NewMessage(n, tenant="a") for n in range(5)]
    await queue.enqueue_many(messages[:3])
    sent = await queue.enqueue_many(messages)
    assert [one.created for one in sent] == [False, False, False, True, True]
    assert [message.payload for message in await drain(queue)] == [0, 1, 2, 3, 4]


async def test_an_id_is_free_again_once_its_message_is_gone(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await finish(queue, await queue.claim())
    assert (await queue.enqueue("new", tenant="a", id="m")).created
    assert [(message.payload, message.attempt) for message in await drain(queue)] == [("new", 1)]


async def test_an_id_is_free_again_once_its_dead_letter_is_purged(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.none())
    await put(queue, "a", "m")
    await (await one(queue)).fail("no")
    await queue.dead_letters.purge("a", "m")
    assert (await queue.enqueue("new", tenant="a", id="m")).created
    assert [message.payload for message in await drain(queue)] == ["new"]


async def test_a_batch_of_many_tenants_answers_in_its_own_order(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    messages = [NewMessage(n, tenant=f"t{n % 3}", queue=f"q{n % 2}", id=f"m{n}") for n in range(12)]
    sent = await queue.enqueue_many(messages)
    assert [(one.tenant, one.id, one.created) for one in sent] == [(m.tenant, m.id, True) for m in messages]
    assert len(await drain(queue)) == 12


async def test_an_empty_batch_is_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    assert await queue.enqueue_many([]) == []
    assert (await queue.stats()).ready == 0


async def test_nothing_of_a_batch_is_stored_when_one_payload_cannot_be_encoded(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    with pytest.raises(InvalidMessageError):
        await queue.enqueue_many([NewMessage(n, tenant="a") for n in (1, object(), 3)])
    assert await queue.claim() == []


async def test_a_time_that_has_passed_means_now(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    sent = await queue.enqueue(1, tenant="a", id="m", at=clock.now - timedelta(seconds=1))
    assert sent.state == "ready"
    assert (await queue.enqueue(1, tenant="a", id="n", delay=0)).state == "ready"
    assert await claimed(queue) == ["m", "n"]


async def test_a_limit_function_that_raises_refuses_that_enqueue_only(make_queue: MakeQueue) -> None:
    def group(message: NewMessage[int]) -> str:
        return str(1 // message.payload)

    queue = await make_queue(limits=[Limit("odd", default=5, key=group)])
    with pytest.raises(InvalidMessageError, match="odd"):
        await queue.enqueue(0, tenant="a", id="bad")
    await queue.enqueue(1, tenant="a", id="good")
    assert await claimed(queue) == ["good"]
    assert await queue.get("a", "bad") is None


async def test_a_queue_whose_key_is_broken_still_accepts_and_delivers_once_it_is_repaired(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await faults.wrong_type(queue, "lane", "a", "default")
    await put(queue, "b", "other")
    sent = await queue.enqueue(1, tenant="a", id="m")
    assert sent.created
    assert await state(queue, "a", "m") == "delayed"
    assert await claimed(queue) == ["other"]
    clock.advance(10)
    assert await queue.claim() == []
    await raw(queue, "DEL", "lane", lane("a"))
    clock.advance(10)
    assert await claimed(queue) == ["m"]
