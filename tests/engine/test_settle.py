"""Settling: how a delivery ends, who may end it, and that the end is final."""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import LeaseLostError, Limit, RetryPolicy
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, one, put, state, twin_of

METHODS: dict[str, tuple[Any, ...]] = {
    "complete": (),
    "fail": ("no",),
    "release": (),
    "dead_letter": ("enough",),
    "extend": (),
}
every_method = pytest.mark.parametrize("method", METHODS)


async def test_complete_is_done_and_gone(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    assert await (await one(queue)).complete() == "done"
    assert await queue.get("a", "m") is None
    assert await claimed(queue) == []


async def test_fail_is_retried_later_or_dead(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(5, max_attempts=2))
    await put(queue, "a", "m")
    assert await (await one(queue)).fail("no") == "retried"
    assert await state(queue, "a", "m") == "delayed"
    clock.advance(5)
    assert await (await one(queue)).fail("no") == "dead"
    assert await state(queue, "a", "m") == "dead"


async def test_fail_keeps_the_error_s_type_and_text(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(5))
    await put(queue, "a", "m1", "m2")
    first, second = await queue.claim(2)
    await first.fail(ValueError("no such invoice"))
    await second.fail("just text")
    errors = [info.error for id_ in ("m1", "m2") if (info := await queue.get("a", id_))]
    assert errors == ["ValueError: no such invoice", "just text"]


@pytest.mark.parametrize(
    "text", ["x" * 10_000, "lone \ud800 surrogate", "unit \x1f separator", "null \x00", ""]
)
async def test_any_error_text_can_be_failed_with(make_queue: MakeQueue, text: str) -> None:
    queue = await make_queue(retry=RetryPolicy.none())
    await put(queue, "a", "m")
    assert await (await one(queue)).fail(ValueError(text)) == "dead"
    (letter,), _ = await queue.dead_letters.list("a")
    assert letter.error is not None
    assert letter.error.startswith("ValueError: ")
    assert len(letter.error) <= 4_000


async def test_release_gives_back_uncounted(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.none())
    await put(queue, "a", "m")
    for _ in range(5):
        lease = await one(queue)
        assert (lease.message.attempt, await lease.release()) == (1, "released")
    assert await (await one(queue)).complete() == "done"


async def test_dead_letter_at_once_whatever_the_tries(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=12))
    await put(queue, "a", "m")
    assert await (await one(queue)).dead_letter("poison") == "dead"
    (letter,), _ = await queue.dead_letters.list("a")
    assert (letter.reason, letter.attempts) == ("poison", 1)


async def test_without_dead_letters_out_of_tries_is_dropped_and_counted(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(
        dead_letters=False, retry=RetryPolicy(1, max_crashes=1), limits=[Limit("tenant", 3)]
    )
    await put(queue, "a", "failed", "poison", "crashed")
    failed, poison, _ = await queue.claim(3)
    assert [await failed.fail("no"), await poison.dead_letter("enough")] == ["dropped", "dropped"]
    clock.advance(30)
    assert (await queue.reclaim()).dead == [("a", "crashed")]
    assert await held(queue, "tenant", "a") == 0
    stats = await queue.stats()
    assert (stats.ready, stats.dead, stats.totals["dropped"]) == (0, 0, 3)


async def test_many_outcomes_come_in_order_in_one_call(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=9)])
    await put(queue, "a", "m0", "m1", "m2", "m3")
    leases = await queue.claim(4)
    await leases[2].complete()
    clock.advance(30)
    await queue.reclaim()
    (m0,) = await queue.claim(1)
    assert await queue.complete_many(leases) == ["lost", "done", "done", "done"]
    assert await queue.complete_many([m0]) == ["done"]
    assert await held(queue, "tenant", "a") == 0


async def test_the_many_calls_do_what_the_single_ones_do(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(60))
    await put(queue, "a", *(f"m{n}" for n in range(8)))
    leases = await queue.claim(8)
    assert await queue.extend_many(leases) == ["extended"] * 8
    assert await queue.complete_many(leases[:2]) == ["done"] * 2
    assert await queue.fail_many(leases[2:4], "no") == ["retried"] * 2
    assert await queue.release_many(leases[4:6]) == ["released"] * 2
    assert await queue.release_many(leases[6:], delay=60) == ["released"] * 2
    assert await queue.complete_many([]) == []
    states = [await state(queue, "a", f"m{n}") for n in range(8)]
    assert states == [None] * 2 + ["delayed"] * 2 + ["ready"] * 2 + ["delayed"] * 2


async def test_more_leases_than_one_call_holds_are_settled(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", *(f"m{n}" for n in range(1300)))
    leases = await queue.claim(1000) + await queue.claim(1000)
    assert await queue.complete_many(leases) == ["done"] * 1300


# ---------------------------------------------------------------- fenced


@every_method
async def test_only_the_newest_lease_may_extend_or_settle(
    make_queue: MakeQueue, clock: ManualClock, method: str
) -> None:
    """Reported fault D4 and B1: the frozen worker comes back while another runs the message."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m", "next")
    stale = await one(queue)
    clock.advance(30)
    await queue.reclaim()
    fresh = await one(queue)
    deadline = (await queue.get("a", "m")).lease.deadline  # type: ignore[union-attr]
    clock.advance(5)
    with pytest.raises(LeaseLostError):
        await getattr(stale, method)(*METHODS[method])
    assert stale.lost.is_set()
    info = await queue.get("a", "m")
    assert info is not None
    assert info.lease is not None
    assert (info.state, info.lease.token, info.lease.deadline) == ("in_flight", fresh.token, deadline)
    assert (info.message.attempt, info.message.crashes) == (2, 1)
    assert (await queue.limits.get("tenant", "a")).holders == [("a", "m")]
    assert await claimed(queue) == []
    assert await fresh.complete() == "done"


@every_method
async def test_a_lease_of_a_message_that_is_gone_changes_nothing(make_queue: MakeQueue, method: str) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    first = await one(queue)
    twin = twin_of(first)
    await first.complete()
    await put(queue, "a", "m")  # the id is free again: another message
    with pytest.raises(LeaseLostError):
        await getattr(twin, method)(*METHODS[method])
    info = await queue.get("a", "m")
    assert info is not None
    assert (str(info.state), info.message.attempt) == ("ready", 0)


async def test_tokens_are_new_and_greater_at_every_delivery(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, other = await make_queue(retry=RetryPolicy.fixed(0)), await make_queue()
    await put(queue, "a", "m")
    tokens = []
    for turn in range(24):
        lease = await one((queue, other)[turn % 2])
        tokens.append(lease.token)
        if turn % 3 == 0:
            await lease.release()
        elif turn % 3 == 1 and turn < 6:
            await lease.fail("no")
        else:
            clock.advance(30)
            if (await queue.reclaim()).dead:
                await queue.dead_letters.redrive("a", "m")
    assert tokens == sorted(set(tokens))


async def test_the_token_of_one_message_means_nothing_for_another(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    await put(queue, "b", "m")
    first, second = await queue.claim(2)
    assert first.token != second.token
    forged = twin_of(first, second.message)
    with pytest.raises(LeaseLostError):
        await forged.complete()
    assert await queue.complete_many([first, second]) == ["done", "done"]


# ---------------------------------------------------------------- an in-flight record that was destroyed


@pytest.mark.parametrize(
    ("method", "outcome", "left_in"),
    [("complete", "done", None), ("fail", "retried", "delayed"), ("release", "released", "ready")],
)
async def test_a_settle_goes_through_and_frees_the_slots_though_the_record_is_gone(
    make_queue: MakeQueue, method: str, outcome: str, left_in: str | None
) -> None:
    from fairqueue.testing import faults

    queue = await make_queue(limits=[Limit("tenant", 1), Limit("org", 1, "org")], retry=RetryPolicy.fixed(60))
    await put(queue, "a", "m", "next", metadata={"org": "x"})
    lease = await one(queue)
    await faults.delete(queue, "lease", "a", "m")
    assert await getattr(lease, method)(*METHODS[method]) == outcome
    assert await state(queue, "a", "m") == left_in
    assert (await held(queue, "tenant", "a"), await held(queue, "org", "x")) == (0, 0)
    assert await claimed(queue) == ["m" if left_in == "ready" else "next"]


async def test_a_settle_without_its_record_spares_a_slot_with_another_token(make_queue: MakeQueue) -> None:
    """Freed by compare-and-remove: what stands there under another token is not this delivery's."""
    from fairqueue.testing import faults

    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m")
    lease = await one(queue)
    await faults.delete(queue, "lease", "a", "m")
    await faults.leak_slot(queue, "tenant", "a", "m")
    assert await lease.complete() == "done"
    assert await held(queue, "tenant", "a") == 1
    await queue.reconcile()
    assert await held(queue, "tenant", "a") == 0


async def test_a_settle_goes_through_though_the_header_is_gone(make_queue: MakeQueue) -> None:
    from fairqueue.testing import faults

    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    lease = await one(queue)
    await faults.delete(queue, "header", "a", "m1")
    assert await lease.complete() == "done"
    assert await claimed(queue) == ["m2"]
