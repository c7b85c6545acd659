"""G: dead letters that are forgotten, lost on the way, or cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, MessageNotFoundError, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, ids, one, put, raw, ready_order, state
from tests.faults.cases.actors import Cast
from tests.faults.cases.kills import killed_after
from tests.support.proxy import Proxy


@pytest.mark.case("G1")
async def test_no_dead_letter_is_ever_dropped(make_queue: MakeQueue) -> None:
    """There is no cap."""
    queue = await make_queue(retry=RetryPolicy.none())
    names = [f"m{n}" for n in range(10_050)]
    await put(queue, "T", *names)
    while leases := await queue.claim(1000):
        assert set(await queue.fail_many(leases, "no")) == {"dead"}
    assert await queue.dead_letters.count("T") == 10_050
    assert await queue.dead_letters.redrive_all("T") == 10_050
    assert await queue.dead_letters.count("T") == 0
    assert await ready_order(queue, "T") == names[:10_000]
    assert (await queue.stats()).ready == 10_050


# --- G2 ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("G2")
@pytest.mark.parametrize("path", ["last failure", "redrive"])
async def test_a_kill_after_any_command_leaves_the_message_in_one_place(
    make_queue: MakeQueue, clock: ManualClock, proxy: Proxy, cast: Cast, path: str
) -> None:
    """Each is one script. A fault at every command inside them is another test's: test_every_command."""
    cuts = 0
    while True:
        queue = await make_queue(name=f"cut-{path[:4]}-{cuts}", retry=RetryPolicy.none())
        await put(queue, "T", "m", metadata={"a": 1}, queue="q")
        order: dict[str, Any] = {"do": "claim_and_fail", "n": 1}
        if path == "redrive":
            await (await one(queue)).fail("no")
            order = {"do": "redrive", "tenant": "T", "id": "m"}
        if not await killed_after(cuts + 1, proxy, cast, order, name=queue.name, clock=clock):
            break
        cuts += 1
        assert await state(queue, "T", "m") is not None
        clock.advance(31)
        await queue.reclaim()
        now = await state(queue, "T", "m")
        assert now in {"ready", "dead"}
        if now == "dead":
            await queue.dead_letters.redrive("T", "m")
        (message,) = await drain(queue)
        assert (message.id, message.metadata, message.queue) == ("m", {"a": 1}, "q")
    assert cuts >= 4
    if path == "redrive":
        assert await claimed(queue) == ["m"]
    else:
        assert await state(queue, "T", "m") == "dead"


@pytest.mark.case("G2")
async def test_of_two_redrives_at_once_one_finds_nothing(make_queue: MakeQueue) -> None:
    one_client, other = await make_queue(retry=RetryPolicy.none()), await make_queue()
    for _ in range(20):
        await put(one_client, "T", "m")
        await (await one(one_client)).fail("no")
        answers = await asyncio.gather(
            one_client.dead_letters.redrive("T", "m"),
            other.dead_letters.redrive("T", "m"),
            return_exceptions=True,
        )
        assert sorted(map(type, answers), key=str) == sorted([int, MessageNotFoundError], key=str)
        assert ids(await drained(one_client)) == ["m"]


async def drained(queue: FairQueue[Any]) -> list[Any]:
    """Leases that were there at once, completed."""
    leases = await queue.claim(10)
    await queue.complete_many(leases)
    return leases


@pytest.mark.case("G2")
async def test_a_redrive_keeps_everything_byte_for_byte(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.none(), limits=[Limit("org", key="org", default=5)])
    payload = {"text": "é\u0000 日本", "list": [], "float": 0.1}
    await queue.enqueue(
        payload,
        tenant="T",
        id="m",
        queue="q",
        metadata={"org": "o", "x": [1, {"y": None}]},
        priority=7,
        cost=2.5,
    )
    before = await queue.get("T", "m")
    body = await queue._engine.command("HGET", queue._engine.calls.root + "body", "T\x1fm")
    await (await one(queue)).fail("no")
    await queue.dead_letters.redrive("T", "m")
    assert await queue._engine.command("HGET", queue._engine.calls.root + "body", "T\x1fm") == body
    after = await queue.get("T", "m")
    assert before is not None
    assert after is not None
    assert after.message == before.message
    assert after.message.payload == payload


@pytest.mark.case("G2")
async def test_a_dead_letter_that_cannot_be_written_is_tried_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """It is not held in flight, with its slot: it waits to be tried again."""
    queue = await make_queue(retry=RetryPolicy.none(), limits=[Limit("tenant", default=1)])
    await put(queue, "T", "m")
    await raw(queue, "SET", "dead", "T", args=["not what it was"])
    assert await (await one(queue)).fail("no") == "retried"
    assert (await state(queue, "T", "m"), await held(queue, "tenant", "T")) == ("delayed", 0)
    await raw(queue, "DEL", "dead", "T")
    clock.advance(10)
    assert await (await one(queue)).fail("no") == "dead"
    assert await queue.dead_letters.count("T") == 1


# --- G3 ----------------------------------------------------------------------------------------------------------

RUBBISH = b"{bad\xff"
UNREADABLE: list[tuple[str, str, bytes]] = [
    ("rubbish for a header", "header", RUBBISH),
    ("rubbish for a body", "body", RUBBISH),
    ("a header without its fields", "header", b"r\x1f\x1fe\x1f0"),
    ("a header of an unknown version", "header", b"v9\x1fr\x1f\x1fe\x1f0\x1f0\x1f0\x1f0\x1f0\x1f\x1f0\x1f1\x1f2\x1f1\x1f1\x1fT"),
    ("a body without its payload", "body", b"0:"),
    ("a body with half its metadata", "body", b'99:{"a"'),
    ("a body of an unknown version", "body", b'v9 2:{}"p"'),
]  # fmt: skip


@pytest.mark.case("G3")
@pytest.mark.parametrize(
    ("kind", "stored"), [case[1:] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE]
)
async def test_an_unreadable_message_is_set_aside_with_its_bytes(
    make_queue: MakeQueue, kind: str, stored: bytes
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=5)])
    await queue.enqueue_many([NewMessage(f"p{n}", tenant="T", id=f"m{n}") for n in (1, 2, 3)])
    await faults.overwrite(queue, kind, "T", "m2", stored)
    leases = await queue.claim(10)
    assert ids(leases) == ["m1", "m3"]
    assert (await queue.limits.get("tenant", "T")).holders == [("T", "m1"), ("T", "m3")]
    (letter,), _ = await queue.dead_letters.list("T")
    assert letter.message.id == "m2"
    if kind == "body":
        assert (letter.decodable, letter.reason, letter.message.payload) == (False, "undecodable", None)
        assert letter.raw in (stored, stored.partition(b":")[2])
    else:
        assert (letter.reason, letter.raw) == ("unreadable", b'"p2"')
    assert await queue.complete_many(leases) == ["done"] * 2
    await put(queue, "T", "m4")
    assert await claimed(queue) == ["m4"]
