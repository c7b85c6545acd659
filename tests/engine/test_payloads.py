"""Payloads: the same bytes in every state and through every transition; scripts never look inside (reported faults N3, N4)."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from fairqueue import FairQueue, InvalidMessageError, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import finish, one, raw
from tests.support.waiting import eventually

AWKWARD = json.loads('{"n":130775545883395173,"f":0.1,"e":[],"o":{},"z":null,"s":"é\\u0000","d":[[],{}]}')
PAYLOADS: list[Any] = [
    AWKWARD,
    None,
    True,
    0,
    -0.0,
    "",
    [],
    {},
    [[[[]]]],
    {"": ""},
    10**400,
    -(2**63),
    1e308,
    5e-324,
    "\x00\x1f\n\r\t\\\"'",
    "\u2028 🦀 \U0010ffff",
    "\x1f" * 50,
    {"k\x1f": ["\x00"]},
    "x" * 100_000,
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: ascii(payload)[:30])
async def test_the_same_bytes_through_every_transition(
    make_queue: MakeQueue, clock: ManualClock, payload: Any
) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(5))
    metadata = {"nested": AWKWARD, "\x1f": "\x1f"}
    await queue.enqueue(payload, tenant="a", id="m", metadata=metadata)
    body = await raw(queue, "HGET", "body", args=["a\x1fm"])

    async def unchanged(message: Any) -> None:
        assert (message.payload, message.metadata) == (payload, metadata)
        assert type(message.payload) is type(payload)
        assert await raw(queue, "HGET", "body", args=["a\x1fm"]) == body

    lease = await one(queue)
    await unchanged(lease.message)
    await lease.fail("no")
    clock.advance(5)
    await unchanged((await one(queue)).message)
    clock.advance(30)
    await queue.reclaim()
    lease = await one(queue)
    await unchanged(lease.message)
    await lease.release()
    lease = await one(queue)
    await lease.dead_letter("enough")
    (letter,), _ = await queue.dead_letters.list("a")
    await unchanged(letter.message)
    assert body.endswith(letter.raw)
    await queue.dead_letters.redrive("a", "m")
    await unchanged((await one(queue)).message)


class Bytes:
    """A codec for bytes, as a user of protobuf or msgpack has."""

    def encode(self, obj: bytes) -> bytes:
        return obj

    def decode(self, data: bytes) -> bytes:
        return data


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", bytes(range(256)), b"0:{}", b"\xff" * 1000, b"5:abc", b"\r\n$-1\r\n"]
)
async def test_any_bytes_of_a_codec_come_back(make_queue: MakeQueue, payload: bytes) -> None:
    queue: FairQueue[bytes] = await make_queue(codec=Bytes())
    await queue.enqueue(payload, tenant="a", metadata={"k": "v"})
    await queue.enqueue(payload, tenant="b")
    for lease in await queue.claim(2):
        assert lease.message.payload == payload


async def test_a_codec_may_carry_whatever_it_likes(make_queue: MakeQueue) -> None:
    class Pickle:
        def encode(self, obj: object) -> bytes:
            return pickle.dumps(obj)

        def decode(self, data: bytes) -> object:
            return pickle.loads(data)

    queue = await make_queue(codec=Pickle())
    await queue.enqueue({(1, 2): {3}}, tenant="a")
    assert (await one(queue)).message.payload == {(1, 2): {3}}


class PanicError(BaseException):
    """No ``Exception``, like a panic of a codec that is written in Rust."""

    def __str__(self) -> str:
        raise SystemExit


class Panics(Bytes):
    """Panics at what is no text of its own."""

    def encode(self, obj: bytes) -> bytes:
        return self.decode(obj)

    def decode(self, data: bytes) -> bytes:
        if data == b"bad":
            raise PanicError
        return data


async def test_a_codec_that_panics_buries_that_message_alone(make_queue: MakeQueue) -> None:
    writer: FairQueue[bytes] = await make_queue(codec=Bytes())
    reader: FairQueue[bytes] = await make_queue(codec=Panics())
    await writer.enqueue_many([NewMessage(b, tenant="a", id=b.decode()) for b in (b"m1", b"bad", b"m2")])
    assert [lease.message.id for lease in await reader.claim(5)] == ["m1", "m2"]
    (letter,), _ = await reader.dead_letters.list("a")
    assert (letter.message.id, letter.raw, letter.decodable) == ("bad", b"bad", False)
    assert letter.reason == "undecodable"
    assert letter.error is not None
    assert "its text raised SystemExit" in letter.error
    info = await reader.get("a", "bad")
    assert info is not None
    assert not info.decodable


async def test_a_payload_at_which_the_codec_panics_is_refused(make_queue: MakeQueue) -> None:
    queue: FairQueue[bytes] = await make_queue(codec=Panics())
    with pytest.raises(
        InvalidMessageError, match="cannot be encoded by Panics: <its text raised SystemExit>"
    ):
        await queue.enqueue(b"bad", tenant="a")
    assert (await queue.stats()).ready == 0


async def test_a_codec_that_cannot_read_another_s_bytes_sends_that_message_to_the_dead_letters(
    make_queue: MakeQueue,
) -> None:
    writer: FairQueue[Any] = await make_queue(codec=Bytes())
    reader = await make_queue()
    await writer.enqueue(b"\xffnot json", tenant="a", id="m1")
    await writer.enqueue(b'"json"', tenant="a", id="m2")
    (lease,) = await reader.claim(5)
    assert lease.message.payload == "json"
    (letter,), _ = await reader.dead_letters.list("a")
    assert (letter.message.id, letter.raw) == ("m1", b"\xffnot json")
    await writer.dead_letters.redrive("a", "m1")
    assert (await one(writer)).message.payload == b"\xffnot json"


async def test_a_batch_of_large_payloads_is_sent_in_several_calls(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    sent = await queue.enqueue_many([NewMessage("x" * 900_000, tenant="a", id=f"m{n}") for n in range(12)])
    assert [one.created for one in sent] == [True] * 12
    leases = await queue.claim(12)
    assert [lease.message.id for lease in leases] == [f"m{n}" for n in range(12)]
    assert {len(lease.message.payload) for lease in leases} == {900_000}


async def test_memory_is_given_back_once_large_messages_are_done(make_queue: MakeQueue) -> None:
    queue = await make_queue()

    async def used() -> int:
        await queue._engine.command("MEMORY", "PURGE")
        return int((await queue._engine.command("INFO", "memory"))["used_memory_dataset"])

    before = await used()
    for n in range(40):
        await queue.enqueue("x" * 500_000, tenant="a", id=f"m{n}")
    full = await used()
    assert full - before > 15_000_000
    await finish(queue, await queue.claim(40))

    async def given_back() -> bool:
        return await used() - before < 2_000_000

    await eventually(given_back, "the memory of what was completed to be given back")


async def test_looking_at_many_does_not_read_what_it_does_not_show(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for n in range(10):
        await queue.enqueue("x" * 300_000, tenant="a", id=f"m{n}")

    async def output() -> int:
        return int((await queue._engine.command("INFO", "stats"))["total_net_output_bytes"])

    before = await output()
    await queue.stats()
    await queue.stats("a")
    await queue.reclaim()
    await queue.reconcile()
    await queue.audit()
    assert await output() - before < 50_000
