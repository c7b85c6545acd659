"""Stored bytes damaged in any way: that message alone suffers, others go on, the doctor mends, and all drains in the end."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairqueue import FairQueue, Limit, RetryPolicy
from fairqueue._engine.keys import join, key
from fairqueue.testing import ManualClock, drain, faults
from tests.property.conftest import Stage

FIELDS = ["head", "body", "leases"]
HEADER_FIELDS = 15
BYTES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [
            b"\x1f",
            b"\x1f\x1f",
            b"\n",
            b"0",
            b"-1",
            b"1e999",
            b"nan",
            b"f",
            b"x",
            b"\xff",
            b"99999999999999999999",
        ]
    ),
)


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, int, bytes, bool]:
    """Which record of which kind; at which field; by what; put in or put in its place."""
    return (
        draw(st.sampled_from(FIELDS)),
        draw(st.integers(0, HEADER_FIELDS)),
        draw(BYTES),
        draw(st.booleans()),
    )


def damaged(raw: bytes, at: int, by: bytes, instead: bool) -> bytes:
    fields = raw.split(b"\x1f")
    at %= len(fields)
    fields[at] = (
        by if instead else fields[at][: len(fields[at]) // 2] + by + fields[at][len(fields[at]) // 2 :]
    )
    return b"\x1f".join(fields)


async def played(
    queue: FairQueue[Any], clock: ManualClock, in_flight: bool, damage: tuple[str, int, bytes, bool]
) -> None:
    for tenant in ("a", "b"):
        for id_ in ("victim", "neighbour"):
            await queue.enqueue(id_, tenant=tenant, id=id_)
    running = await queue.claim(1) if in_flight else []
    kind, *rest = damage
    where = key(queue._engine.calls.root, kind)
    raw = await queue._engine.command("HGET", where, join("a", "victim"))
    if raw is not None:
        await queue._engine.command("HSET", where, join("a", "victim"), damaged(raw, *rest))

    claimed = {(lease.message.tenant, lease.message.id): lease for lease in await queue.claim(10)}
    assert {("a", "neighbour"), ("b", "victim"), ("b", "neighbour")} <= claimed.keys()
    assert set(claimed) <= {(tenant, id_) for tenant in "ab" for id_ in ("victim", "neighbour")}
    await queue.stats()
    await queue.get("a", "victim")
    await queue.messages("a")
    await queue.dead_letters.list("a")
    assert not (await queue.enqueue("again", tenant="a", id="victim")).created

    await queue.audit(fix=True)
    findings = (await queue.audit()).findings
    assert not findings, findings
    others = [lease for mid, lease in claimed.items() if mid != ("a", "victim")]
    assert await queue.complete_many(others) == ["done"] * len(others)
    await queue.complete_many([lease for lease in claimed.values() if lease not in others] + running)
    clock.advance(120)
    await queue.reclaim()
    await drain(queue, batch=10)
    async for tenant in queue.dead_letters.tenants():
        await queue.dead_letters.purge(tenant)
    await queue.audit(fix=True)
    assert (await queue.audit()).findings == []


@given(st.booleans(), damages())
@settings(max_examples=40)
@example(False, ("head", 10, b"x", True))  # a cost that is no number
@example(False, ("head", 14, b"\xff", False))  # a lane that is not text
@example(False, ("head", 11, b"99999999999999999999", True))
@example(True, ("leases", 6, b"", True))
def test_any_damage_to_a_stored_record(
    stage: Stage, in_flight: bool, damage: tuple[str, int, bytes, bool]
) -> None:
    async def play() -> None:
        clock = ManualClock()
        limits = [Limit("tenant", default=5), Limit("all", key=lambda _: "all")]
        async with stage.opened(clock=clock, limits=limits, retry=RetryPolicy.fixed(1)) as queue:
            await played(queue, clock, in_flight, damage)

    stage.run(play)


@given(st.binary(max_size=60), st.sampled_from(["head", "body", "leases"]), st.booleans())
@settings(max_examples=20)
def test_any_bytes_in_place_of_a_stored_record(stage: Stage, raw: bytes, kind: str, in_flight: bool) -> None:
    async def play() -> None:
        clock = ManualClock()
        async with stage.opened(clock=clock, limits=[Limit("tenant", default=5)]) as queue:
            await queue.enqueue("victim", tenant="a", id="victim")
            await queue.enqueue("other", tenant="b", id="other")
            leases = await queue.claim(1) if in_flight else []
            where = {"head": "header", "body": "body", "leases": "lease"}[kind]
            if kind != "leases" or leases:
                await faults.overwrite(queue, where, "a", "victim", raw)
            assert "b" in {lease.message.tenant for lease in await queue.claim(10)}
            await queue.audit(fix=True)
            findings = (await queue.audit()).findings
            assert not findings, findings

    stage.run(play)
