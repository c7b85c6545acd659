"""Dead letters: kept until somebody redrives or purges them, all of them, with everything they had."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairqueue import FairQueue, InvalidMessageError, Limit, MessageNotFoundError, RetryPolicy
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, one, put, raw, state


async def bury(queue: FairQueue[Any], tenant: str, /, *ids: str, **options: Any) -> None:
    await put(queue, tenant, *ids, **options)
    leases = await queue.claim(1000)
    assert await queue.fail_many(leases, "no") == ["dead"] * len(ids)


async def mortal(make_queue: MakeQueue, **options: Any) -> FairQueue[Any]:
    """A queue whose messages die of their first failure."""
    return await make_queue(retry=RetryPolicy.none(), **options)


async def test_a_letter_tells_what_why_and_when(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await mortal(make_queue)
    await queue.enqueue(
        {"n": 1}, tenant="a", queue="q", id="m", metadata={"k": "v"}, priority=3, cost=2, pool="p"
    )
    clock.advance(5)
    await (await one(queue, pools=("p",))).fail(ValueError("no such thing"))
    (letter,), cursor = await queue.dead_letters.list("a")
    assert cursor is None
    assert (letter.reason, letter.error, letter.decodable) == ("failed", "ValueError: no such thing", True)
    assert (letter.attempts, letter.crashes, letter.redrives, letter.dead_at) == (1, 0, 0, clock.now)
    message = letter.message
    assert (message.id, message.tenant, message.queue, message.pool) == ("m", "a", "q", "p")
    assert (message.payload, message.metadata, message.priority, message.cost) == ({"n": 1}, {"k": "v"}, 3, 2)
    assert letter.raw == b'{"n":1}'


async def test_letters_are_listed_in_the_order_of_death_page_by_page(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", *(f"m{n}" for n in range(25)))
    for lease in reversed(await queue.claim(25)):
        await lease.dead_letter("enough")
    listed: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        items, cursor = await queue.dead_letters.list("a", limit=10, cursor=cursor)
        listed += [item.message.id for item in items]
        pages += 1
    assert listed == [f"m{n}" for n in reversed(range(25))]
    assert pages == 3


async def test_none_is_ever_forgotten(make_queue: MakeQueue) -> None:
    """Reported fault G1, where a cap of 10,000 dropped the oldest: there is no cap, and no page is the last by number."""
    queue = await mortal(make_queue)
    for batch in range(5):
        await bury(queue, "a", *(f"m{batch}.{n}" for n in range(1000)))
    assert await queue.dead_letters.count("a") == 5000
    assert await queue.dead_letters.redrive_all("a") == 5000
    assert await queue.dead_letters.count("a") == 0
    for _ in range(5):
        assert await queue.complete_many(await queue.claim(1000)) == ["done"] * 1000


async def test_counts_and_tenants(make_queue: MakeQueue) -> None:
    queue = await mortal(make_queue)
    await bury(queue, "a", "m1", "m2")
    await bury(queue, "b", "m1")
    await put(queue, "c", "alive")
    assert [await queue.dead_letters.count(tenant) for tenant in "abc"] == [2, 1, 0]
    assert sorted([tenant async for tenant in queue.dead_letters.tenants()]) == ["a", "b"]
    await queue.dead_letters.purge("b")
    assert [tenant async for tenant in queue.dead_letters.tenants()] == ["a"]


async def test_a_redrive_keeps_everything_and_starts_the_counts_again(make_queue: MakeQueue) -> None:
    queue = await mortal(make_queue, limits=[Limit("org", default=1, key="org")])
    await bury(queue, "a", "m", queue="q", metadata={"org": "x", "list": []}, priority=5, cost=0.5)
    assert await queue.dead_letters.redrive("a", "m") == 1
    message = (await one(queue)).message
    assert (message.payload, message.queue, message.metadata) == ("m", "q", {"org": "x", "list": []})
    assert (message.priority, message.cost, message.groups) == (5, 0.5, (("org", "x"),))
    assert (message.attempt, message.crashes) == (1, 0)
    assert await held(queue, "org", "x") == 1


async def test_a_letter_counts_how_often_it_was_sent_back(make_queue: MakeQueue) -> None:
    queue = await mortal(make_queue)
    await bury(queue, "a", "m")
    for times in range(3):
        (letter,), _ = await queue.dead_letters.list("a")
        assert letter.redrives == times
        await queue.dead_letters.redrive("a", "m")
        await (await one(queue)).fail("no")


async def test_a_redrive_of_what_is_not_there_says_so(make_queue: MakeQueue) -> None:
    queue = await mortal(make_queue)
    await bury(queue, "a", "m")
    await put(queue, "a", "alive")
    for tenant, id_ in (("a", "none"), ("b", "m"), ("a", "alive")):
        with pytest.raises(MessageNotFoundError):
            await queue.dead_letters.redrive(tenant, id_)
    assert await queue.dead_letters.redrive("a", "none", "m") == 1
    with pytest.raises(InvalidMessageError):
        await queue.dead_letters.redrive("a")


async def test_two_redrives_at_once_send_it_back_once(make_queue: MakeQueue) -> None:
    queue, other = await mortal(make_queue), await make_queue()
    await bury(queue, "a", "m")
    answers = await asyncio.gather(
        queue.dead_letters.redrive("a", "m"), other.dead_letters.redrive("a", "m"), return_exceptions=True
    )
    assert sorted(map(type, answers), key=str) == [MessageNotFoundError, int]
    assert await claimed(queue) == ["m"]


async def test_one_id_named_twice_is_sent_back_once(make_queue: MakeQueue) -> None:
    queue = await mortal(make_queue)
    await bury(queue, "a", "m")
    assert await queue.dead_letters.redrive("a", "m", "m") == 1
    assert await claimed(queue) == ["m"]


async def test_redrive_all_of_nothing_is_0(make_queue: MakeQueue) -> None:
    queue = await mortal(make_queue)
    assert await queue.dead_letters.redrive_all("a") == 0
    assert await queue.dead_letters.purge("a") == 0


async def test_a_purge_of_one_leaves_the_others(make_queue: MakeQueue) -> None:
    queue = await mortal(make_queue)
    await bury(queue, "a", "m1", "m2")
    assert await queue.dead_letters.purge("a", "m1") == 1
    assert await queue.get("a", "m1") is None
    assert await state(queue, "a", "m2") == "dead"
    with pytest.raises(MessageNotFoundError):
        await queue.dead_letters.purge("a", "m1")


async def test_a_purge_of_all_takes_one_tenant_s_letters_only(make_queue: MakeQueue) -> None:
    """Reported fault N2: the tenant called * is one tenant."""
    queue = await mortal(make_queue)
    for tenant in ("*", "a", "b"):
        await bury(queue, tenant, "m1", "m2")
    await put(queue, "*", "alive")
    assert await queue.dead_letters.purge("*") == 2
    assert [await queue.dead_letters.count(tenant) for tenant in ("*", "a", "b")] == [0, 2, 2]
    assert await claimed(queue) == ["alive"]


async def test_a_purge_of_more_than_one_page(make_queue: MakeQueue) -> None:
    queue = await mortal(make_queue)
    await bury(queue, "a", *(f"m{n}" for n in range(1000)))
    await bury(queue, "a", *(f"n{n}" for n in range(200)))
    assert await queue.dead_letters.purge("a") == 1200
    assert (await queue.stats()).dead == 0


async def test_a_redrive_goes_through_a_full_group_when_there_is_room(make_queue: MakeQueue) -> None:
    queue = await mortal(make_queue, limits=[Limit("tenant", default=1)])
    await bury(queue, "a", "m")
    await put(queue, "a", "n")
    lease = await one(queue)
    await queue.dead_letters.redrive("a", "m")
    assert await claimed(queue) == []
    await lease.complete()
    assert await claimed(queue) == ["m"]


async def test_a_redrive_into_a_broken_lane_is_kept_and_tried_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await mortal(make_queue)
    await bury(queue, "a", "m")
    await faults.wrong_type(queue, "lane", "a", "default")
    assert await queue.dead_letters.redrive("a", "m") == 1
    assert await state(queue, "a", "m") == "delayed"
    await raw(queue, "DEL", "lane", "a\x1fdefault\x1fdefault")
    clock.advance(10)
    assert await claimed(queue) == ["m"]


# ---------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize("body", [b"{bad\xff", b"0:{bad\xff", b"99:{}", b"", b"5:[1,2]x", b"\x00\xff"])
async def test_an_undecodable_payload_goes_to_the_dead_letters_with_its_bytes_and_the_others_run(
    make_queue: MakeQueue, body: bytes
) -> None:
    """Reported fault G3."""
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await put(queue, "a", "m1", "m2", "m3")
    await faults.overwrite(queue, "body", "a", "m2", body)
    leases = await queue.claim(3)
    assert [lease.message.id for lease in leases] == ["m1", "m3"]
    assert await held(queue, "tenant", "a") == 2
    (letter,), _ = await queue.dead_letters.list("a")
    assert (letter.message.id, letter.reason, letter.decodable) == ("m2", "undecodable", False)
    assert letter.raw == body.removeprefix(b"0:")
    assert letter.message.payload is None
    info = await queue.get("a", "m2")
    assert info is not None
    assert not info.decodable


async def test_a_payload_that_is_gone_goes_to_the_dead_letters(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2")
    await faults.delete(queue, "body", "a", "m1")
    assert await claimed(queue) == ["m2"]
    (letter,), _ = await queue.dead_letters.list("a")
    assert (letter.message.id, letter.decodable, letter.raw) == ("m1", False, b"")
    await queue.dead_letters.purge("a", "m1")


async def test_a_letter_that_can_be_read_again_is_redriven_like_any_other(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await faults.overwrite(queue, "body", "a", "m", b"0:{bad")
    assert await claimed(queue) == []
    await faults.overwrite(queue, "body", "a", "m", b'0:"good"')
    await queue.dead_letters.redrive("a", "m")
    assert (await one(queue)).message.payload == "good"


@pytest.mark.parametrize("header", [b"", b"garbage", b"r\x1f", b"\xff\xfe"])
async def test_an_unreadable_header_goes_to_the_dead_letters_and_the_others_run(
    make_queue: MakeQueue, header: bytes
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await put(queue, "a", "m1", "m2", "m3")
    await faults.overwrite(queue, "header", "a", "m2", header)
    assert await claimed(queue) == ["m1", "m3"]
    (letter,), _ = await queue.dead_letters.list("a")
    assert (letter.message.id, letter.reason, letter.raw) == ("m2", "unreadable", b'"m2"')
    assert (await queue.enqueue("again", tenant="a", id="m2")).state == "dead"


async def test_a_delayed_message_that_can_be_neither_read_nor_buried_is_tried_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Its tenant's dead letters hold another type. It keeps a due time, and runs with what is left of it."""
    queue = await make_queue()
    await put(queue, "a", "m", delay=5)
    await put(queue, "a", "later", delay=3600)
    await faults.overwrite(queue, "header", "a", "m", b"garbage")
    await faults.wrong_type(queue, "dead", "a")
    clock.advance(6)
    await promote(queue._engine)
    assert {finding.subject for finding in (await queue.audit()).findings} == {"dead/a"}
    await raw(queue, "DEL", "dead", "a")
    clock.advance(11)
    assert await claimed(queue) == ["m"]


async def test_enqueueing_the_id_of_an_unreadable_header_adds_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await faults.overwrite(queue, "header", "a", "m", b"garbage")
    assert not (await queue.enqueue("again", tenant="a", id="m")).created
    assert await claimed(queue) == []
    assert await queue.dead_letters.count("a") == 1
