"""Guarantee 2: only the newest token can extend or settle; one late completion is allowed, on purpose."""

from __future__ import annotations

from typing import Any

from fairqueue import Lease, Limit, RetryPolicy
from fairqueue._engine.calls import SettleRow
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, held, raised, state, told

ONE = [Limit("tenant", default=1)]
TOKEN = without(
    "comparing the token",
    "settle.lua",
    "if lease and lease.token == row.token then",
    "if lease then",
)
LAST_TOKEN = without(
    "comparing the last token",
    "settle.lua",
    "if not h or h.token ~= row.token then return 'lost' end",
    "if not h then return 'lost' end",
)
BY_RECLAIM = without("asking whether it came back by reclaim", "settle.lua", "and h.via == 'c' and", "and")


async def expired(make_queue: MakeQueue, clock: ManualClock, **options: Any) -> tuple[Queue, Lease[Any]]:
    """A lease that expired and was taken back."""
    queue = await make_queue(limits=ONE, **options)
    await queue.enqueue("payload", tenant="a", id="m")
    (lease,) = await queue.claim()
    clock.advance(31)
    await queue.reclaim()
    return queue, lease


async def delivered_again(make_queue: MakeQueue, clock: ManualClock) -> tuple[Queue, Lease[Any], Lease[Any]]:
    """An old lease, and the one that has the message now."""
    queue, old = await expired(make_queue, clock)
    (new,) = await queue.claim()
    return queue, old, new


async def still_holds(queue: Queue, new: Lease[Any]) -> None:
    assert await state(queue, "a", "m") == "in_flight"
    assert await held(queue, "tenant", "a") == 1
    assert await told(new.complete()) == "done"


@guard("guarantee 2", "an old token cannot complete", TOKEN)
async def test_an_old_token_cannot_complete(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, old, new = await delivered_again(make_queue, clock)
    assert await raised(old.complete()) == "LeaseLostError"
    assert old.lost.is_set()
    await still_holds(queue, new)


@guard("guarantee 2", "an old token cannot fail", TOKEN)
async def test_an_old_token_cannot_fail(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, old, new = await delivered_again(make_queue, clock)
    assert await raised(old.fail("oops")) == "LeaseLostError"
    await still_holds(queue, new)


@guard("guarantee 2", "an old token cannot release", TOKEN)
async def test_an_old_token_cannot_release(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, old, new = await delivered_again(make_queue, clock)
    assert await raised(old.release()) == "LeaseLostError"
    await still_holds(queue, new)


@guard("guarantee 2", "an old token cannot send to the dead letters", TOKEN)
async def test_an_old_token_cannot_dead_letter(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, old, new = await delivered_again(make_queue, clock)
    assert await raised(old.dead_letter("enough")) == "LeaseLostError"
    await still_holds(queue, new)


@guard(
    "guarantee 2",
    "an old token cannot extend",
    without("comparing the token", "extend.lua", "lease and lease.token == token and", "lease and"),
)
async def test_an_old_token_cannot_extend(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, old, new = await delivered_again(make_queue, clock)
    assert await raised(old.extend()) == "LeaseLostError"
    assert old.lost.is_set()
    await still_holds(queue, new)


@guard(
    "guarantee 2",
    "a lease that was taken back cannot be extended",
    without(
        "asking whether the message is in flight",
        "extend.lua",
        "h and h.state == 'f' and h.token == token then",
        "h and h.token == token then",
    ),
)
async def test_a_lease_that_was_taken_back_cannot_be_extended(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    _, lease = await expired(make_queue, clock)
    assert await raised(lease.extend()) == "LeaseLostError"


@guard(
    "guarantee 2",
    "every delivery has a new token, greater than the one before",
    without(
        "the number of the delivery",
        "includes/claim_take.lua",
        "h.deliveries, number, string.sub(session, 1, 8)",
        "1, 1, string.sub(session, 1, 8)",
    ),
)
async def test_every_delivery_has_a_new_token(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    tokens = []
    for _ in range(12):
        (lease,) = await queue.claim()
        tokens.append(lease.token)
        await lease.release()
    assert tokens == sorted(set(tokens))


# --- the one exception ----------------------------------------------------------------------------------------

LATE = without(
    "the exception", "settle.lua", "if row.action == 'complete' and h.via == 'c' and", "if false and"
)


@guard(
    "guarantee 2", "a late completion ends a message that came back by reclaim and nobody took since", LATE
)
async def test_a_late_completion_ends_a_reclaimed_message(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, late = await expired(make_queue, clock)
    outcome = await told(late.complete())
    assert await claimed(queue) == []
    assert await state(queue, "a", "m") == "gone"
    assert outcome == "done"


@guard("guarantee 2", "a late completion ends a message that died as lost by its worker", LATE)
async def test_a_late_completion_ends_a_dead_letter_of_reclaim(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, late = await expired(make_queue, clock, retry=RetryPolicy(max_crashes=1))
    assert await state(queue, "a", "m") == "dead"
    outcome = await told(late.complete())
    assert await queue.dead_letters.count("a") == 0
    assert outcome == "done"


@guard(
    "guarantee 2",
    "only a completion is let through late",
    without("asking for a completion", "settle.lua", "if row.action == 'complete' and h.via", "if h.via"),
)
async def test_no_other_late_settle_goes_through(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, late = await expired(make_queue, clock)
    assert await raised(late.fail("oops")) == "LeaseLostError"
    assert await state(queue, "a", "m") == "ready"


@guard(
    "guarantee 2",
    "another delivery ends the right to a late completion, also after it expired too",
    LAST_TOKEN,
)
async def test_another_delivery_ends_the_late_right(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, late, _ = await delivered_again(make_queue, clock)
    clock.advance(31)
    await queue.reclaim()
    assert await raised(late.complete()) == "LeaseLostError"
    assert await state(queue, "a", "m") == "ready"


@guard(
    "guarantee 2",
    "a redrive ends the right to a late completion",
    without(
        "noting the redrive", "redrive.lua", "h.redrives + 1, 'v', seq + i", "h.redrives + 1, h.via, seq + i"
    ),
)
async def test_a_redrive_ends_the_late_right(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, late = await expired(make_queue, clock, retry=RetryPolicy(max_crashes=1))
    await queue.dead_letters.redrive("a", "m")
    assert await raised(late.complete()) == "LeaseLostError"
    assert await state(queue, "a", "m") == "ready"


@guard(
    "guarantee 2",
    "a purge and a new enqueue of the id end the right to a late completion",
    LAST_TOKEN.also("settle.lua", "and h.via == 'c' and", "and"),
)
async def test_a_new_enqueue_ends_the_late_right(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, late = await expired(make_queue, clock, retry=RetryPolicy(max_crashes=1))
    await queue.dead_letters.purge("a", "m")
    await queue.enqueue("another", tenant="a", id="m")
    assert await raised(late.complete()) == "LeaseLostError"
    assert await state(queue, "a", "m") == "ready"


async def settled_elsewhere(queue: Queue, lease: Lease[Any], action: str) -> str:
    """The same token in another call than the lease's own, as a copy of it in another process would send."""
    engine = queue._engine
    row = SettleRow("a", "m", lease.token, action)
    (outcome,) = await engine.run(engine.calls.settle(engine.settle_streams.take(), [row], 60_000))
    return outcome


@guard("guarantee 2", "a release by the lease ends its right to complete", BY_RECLAIM)
async def test_a_release_ends_the_right_to_complete(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    await lease.release()
    assert await settled_elsewhere(queue, lease, "complete") == "lost"
    assert await state(queue, "a", "m") == "ready"


@guard("guarantee 2", "a failure by the lease ends its right to complete", BY_RECLAIM)
async def test_a_failure_ends_the_right_to_complete(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    await lease.fail("oops")
    assert await settled_elsewhere(queue, lease, "complete") == "lost"
    assert await state(queue, "a", "m") == "delayed"


@guard(
    "guarantee 2",
    "a delivery ends once, also inside one call",
    without(
        "asking whether the call has ended it already",
        "settle.lua",
        "seen[mid] and 'lost' or settle",
        "settle",
    ),
)
async def test_a_delivery_ends_once_inside_a_call(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    engine = queue._engine
    rows = [SettleRow("a", "m", lease.token, action) for action in ("complete", "fail")]
    outcomes = await engine.run(engine.calls.settle(engine.settle_streams.take(), rows, 60_000))
    assert outcomes == ["done", "lost"]
    assert await state(queue, "a", "m") == "gone"


@guard(
    "guarantee 2",
    "a lease remembers how it ended: asked for the same it answers it, asked for something else it is lost",
    without(
        "remembering what was asked",
        "fairqueue.settling:answer",
        "or made.action != asked.action",
        "",
    ),
)
async def test_a_lease_remembers_how_it_ended(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    assert await lease.complete() == await lease.complete() == "done"
    assert await raised(lease.release()) == "LeaseLostError"


@guard(
    "guarantee 2",
    "a client never gets the leases of another, the same consumer name or not",
    without(
        "the session of each client",
        "fairqueue._engine.engine:Engine._renew",
        "secrets.token_hex(8)",
        "'0' * 16",
    ),
)
async def test_a_client_never_gets_the_leases_of_another(make_queue: MakeQueue) -> None:
    one, another = await make_queue(), await make_queue()
    await one.enqueue(1, tenant="a", id="m")
    assert len(await one.claim(consumer="same")) == 1
    assert await another.claim(consumer="same") == []
