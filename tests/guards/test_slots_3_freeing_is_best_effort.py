"""Rule 3 of slots: freeing a slot is best-effort cleanup and never blocks the transition; a dirty group parks nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairqueue import Lease, Limit, RetryPolicy
from fairqueue._engine.keys import join, key
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.guards.mutate import Mutation, without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, claimed, drop_key, held, put_slot, state, told

SURVIVED = without(
    "surviving a freeing that fails", "includes/slots.lua", "reply = try('HDEL'", "reply = call('HDEL'"
)
# Where a message's new place is written first, as it is, the error of a freeing comes too late to do harm. These free
# first, which is harmless too as long as no error of it counts (the last test here); the two together show the rule.
FREED_FIRST = without(
    "the new place before the freeing",
    "settle.lua",
    "  local outcome = actions[row.action](row, h, budget)\n",
    "  free_slots(row.mid, lane, not lease and row.token or nil)\n"
    "  flush_slots()\n"
    "  local outcome = actions[row.action](row, h, budget)\n",
).also(
    "reclaim.lua",
    "  if in_flight then take_back(mid, lease, h) end\n",
    "  if lease then free_slots(mid, lease.lane) end\n"
    "  flush_slots()\n"
    "  if in_flight then take_back(mid, lease, h) end\n",
)
NOT_SURVIVED = Mutation(f"{SURVIVED.name}, and {FREED_FIRST.name}", (*SURVIVED.edits, *FREED_FIRST.edits))
ONE = [Limit("tenant", default=1)]


async def one_in_flight(make_queue: MakeQueue, **options: Any) -> tuple[Queue, Lease[Any]]:
    """A lease whose slot can no longer be freed: the key of its group holds another type."""
    queue = await make_queue(limits=ONE, **options)
    await queue.enqueue("payload", tenant="a", id="m")
    (lease,) = await queue.claim()
    await faults.wrong_type(queue, "slots", "tenant", "a")
    return queue, lease


async def after_its_lease(queue: Queue, clock: ManualClock) -> None:
    """Time passes and maintenance has its turns; the errors that it may meet are not what is looked at."""
    clock.advance(31)
    for duty in (queue.reclaim, queue.reconcile, queue.reclaim):
        await told(duty())


async def leave_a_readable_leak(queue: Queue) -> None:
    """The key is readable again, but the slot that could not be freed is still in it."""
    await drop_key(queue, "slots", "tenant", "a")
    await put_slot(queue, "tenant", "a", ("a", "m"), "the token it had")


@guard("slots 3", "a completed message whose slot cannot be freed never runs again", SURVIVED)
async def test_completing_while_freeing_fails_never_runs_it_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, lease = await one_in_flight(make_queue)
    outcome = await told(lease.complete())
    await after_its_lease(queue, clock)
    assert [message.id for message in await drain(queue)] == []
    assert outcome == "done"


@guard(
    "slots 3",
    "a retry keeps the advanced attempt although its slot cannot be freed, and the last one is the last",
    NOT_SURVIVED,
)
async def test_a_retry_while_freeing_fails_keeps_the_attempt(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """A failure that did not go through would come back as a crash, and run more often than it may."""
    queue, lease = await one_in_flight(make_queue, retry=RetryPolicy.fixed(5, max_attempts=2))
    deliveries, outcomes = [(1, 0)], []
    for _ in range(3):
        outcomes.append(await told(lease.fail("oops")))
        await after_its_lease(queue, clock)
        if not (again := await queue.claim()):
            break
        (lease,) = again
        deliveries.append((lease.message.attempt, lease.message.crashes))
        await faults.wrong_type(queue, "slots", "tenant", "a")
    assert deliveries == [(1, 0), (2, 0)]
    assert outcomes == ["retried", "dead"]


@guard("slots 3", "a reclaim still requeues although the slot cannot be freed", NOT_SURVIVED)
async def test_a_reclaim_while_freeing_fails_still_requeues(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, _ = await one_in_flight(make_queue)
    for _ in range(3):  # it would stand in the way of each of them: the message is in flight for ever
        clock.advance(31)
        await told(queue.reclaim())
    assert await state(queue, "a", "m") == "ready"
    assert [message.payload for message in await drain(queue)] == ["payload"]


@guard("slots 3", "a release goes through although the slot cannot be freed", NOT_SURVIVED)
async def test_a_release_while_freeing_fails_goes_through(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue, lease = await one_in_flight(make_queue)
    outcome = await told(lease.release())
    clock.advance(1)
    await queue.reconcile()
    assert await claimed(queue) == ["m"]
    assert outcome == "released"


@guard("slots 3", "a message dies although its slot cannot be freed", NOT_SURVIVED)
async def test_a_dead_letter_while_freeing_fails_goes_through(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, lease = await one_in_flight(make_queue)
    outcome = await told(lease.dead_letter("enough"))
    await after_its_lease(queue, clock)
    assert [message.id for message in await drain(queue)] == []
    assert await state(queue, "a", "m") == "dead"
    assert await queue.dead_letters.count("a") == 1
    assert outcome == "dead"


@guard(
    "slots 3",
    "a late completion frees the slot that the reclaim could not",
    without("the freeing", "settle.lua", "    free_slots(row.mid, h.lane, row.token)\n", ""),
)
async def test_a_late_completion_frees_what_the_reclaim_could_not(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue, late = await one_in_flight(make_queue)
    clock.advance(31)
    await queue.reclaim()
    await drop_key(queue, "slots", "tenant", "a")
    await put_slot(queue, "tenant", "a", ("a", "m"), late.token)  # readable again, and not freed
    assert await told(late.complete()) == "done"
    assert await held(queue, "tenant", "a") == 0
    await queue.reconcile()


@guard(
    "slots 3",
    "a slot that cannot be freed is counted",
    without("the count", "includes/slots.lua", "failures = failures + #mids", "failures = 0"),
)
async def test_a_failed_freeing_is_counted(make_queue: MakeQueue) -> None:
    queue, lease = await one_in_flight(make_queue)
    await lease.complete()
    assert (await queue.stats()).totals.freed_late == 1
    await queue.reconcile()


@guard(
    "slots 3",
    "a slot that cannot be freed is named in the server's log",
    without("the line", "includes/slots.lua", "redis.log(redis.LOG_WARNING,", "tostring("),
)
async def test_a_failed_freeing_is_logged(make_queue: MakeQueue) -> None:
    queue, lease = await one_in_flight(make_queue)
    _, folder = await queue._engine.command("CONFIG", "GET", "dir")
    log = Path(folder.decode()) / "server.log"
    if not log.exists():
        pytest.skip("not our own server: its log is elsewhere")
    await lease.complete()
    where = key(queue._engine.calls.root, "slots", join("tenant", "a"))
    assert f"fairqueue: 1 not freed, {where}: WRONGTYPE" in log.read_text(encoding="utf-8", errors="replace")
    await queue.reconcile()


@guard(
    "slots 3",
    "nobody is parked at a group with a slot that could not be freed: the next claim heals it",
    without(
        "marking the group dirty",
        "includes/slots.lua",
        "      mark_dirty(group, 'dirty')\n",
        "",
    ),
    without(
        "telling that the full group is dirty",
        "includes/claim_admit.lua",
        "return full, full and gate_of(full).dirty",
        "return full, false",
    ),
    without(
        "reconciling before anybody is parked",
        "includes/claim_park.lua",
        "if must_reconcile then",
        "if false then",
    ),
    without(
        "the client's repair of the groups a claim names",
        "fairqueue.claiming:Claimer.claim",
        "await repair_groups(self._engine, dirty)",
        "pass",
    ),
)
async def test_nobody_is_parked_at_a_dirty_group(make_queue: MakeQueue) -> None:
    queue, lease = await one_in_flight(make_queue)
    await lease.complete()
    await leave_a_readable_leak(queue)
    await queue.enqueue("next", tenant="a", id="next")
    assert await claimed(queue) == ["next"]
    assert await held(queue, "tenant", "a") == 1


@guard(
    "slots 3",
    "a broken group that a claim has met is mended by reconcile, should that client die before it does it",
    without(
        "marking the group dirty",
        "includes/claim_admit.lua",
        "if not held then mark_dirty(group, 'dirty') end",
        "",
    ),
)
async def test_a_broken_group_that_a_claim_has_met_is_remembered(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await queue.enqueue("payload", tenant="a", id="m")
    await faults.wrong_type(queue, "slots", "tenant", "a")
    engine = queue._engine
    call = engine.calls.claim(engine.claim_streams.take(), 1, 30_000, "dies", ("default",))
    assert (await engine.run(call)).messages == ()
    assert (await queue.reconcile()).rebuilt == [("tenant", "a")]
    assert await claimed(queue) == ["m"]


@guard(
    "slots 3",
    "whoever waits at a group that becomes dirty is sent to find out",
    without(
        "sending a waiting lane back",
        "includes/waking.lua",
        "if place.dirty then return wake_prober(place.group, place.pools) end",
        "if place.dirty then return end",
    ),
)
async def test_waiters_at_a_group_that_becomes_dirty_are_served(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ONE)
    await queue.enqueue("payload", tenant="a", id="m")
    await queue.enqueue("next", tenant="a", id="next")
    (lease,) = await queue.claim()
    assert await claimed(queue) == []  # the next one is parked at the full group
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await lease.complete()
    assert await claimed(queue) == ["next"]


@pytest.mark.parametrize(
    "proof",
    [
        test_a_retry_while_freeing_fails_keeps_the_attempt,
        test_a_reclaim_while_freeing_fails_still_requeues,
        test_a_release_while_freeing_fails_goes_through,
        test_a_dead_letter_while_freeing_fails_goes_through,
    ],
)
async def test_freeing_first_alone_does_no_harm(
    make_queue: MakeQueue, clock: ManualClock, proof: Callable[[MakeQueue, ManualClock], Awaitable[None]]
) -> None:
    with FREED_FIRST.installed():
        await proof(make_queue, clock)
