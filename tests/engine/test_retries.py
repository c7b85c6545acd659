"""Counting: attempt = deliveries less releases, crashes = deliveries that ended by expiry; when a message is dead."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fairqueue import FairQueue, Limit, RetryPolicy
from fairqueue.testing import ManualClock, drain
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, held, one, put


async def counts(queue: FairQueue[str], id_: str = "m") -> tuple[int, int]:
    info = await queue.get("a", id_)
    assert info is not None
    return info.message.attempt, info.message.crashes


async def test_the_first_delivery_is_attempt_1_without_crashes(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    assert await counts(queue) == (0, 0)
    lease = await one(queue)
    assert (lease.message.attempt, lease.message.crashes) == (1, 0)


async def test_a_failure_counts(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(0))
    await put(queue, "a", "m")
    for attempt in (1, 2, 3):
        lease = await one(queue)
        assert (lease.message.attempt, lease.message.crashes) == (attempt, 0)
        await lease.fail("no")


async def test_a_release_does_not_count(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(0))
    await put(queue, "a", "m")
    await (await one(queue)).fail("no")
    for _ in range(3):
        lease = await one(queue)
        assert lease.message.attempt == 2
        await lease.release()
    await (await one(queue)).release(delay=5)
    clock.advance(5)
    assert (await one(queue)).message.attempt == 2


async def test_an_expiry_counts_as_a_crash_and_as_an_attempt(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    for number in (1, 2):
        lease = await one(queue)
        assert (lease.message.attempt, lease.message.crashes) == (number, number - 1)
        clock.advance(30)
        await queue.reclaim()
        assert await counts(queue) == (number, number)


async def test_dead_at_the_failure_that_reaches_max_attempts(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(0, max_attempts=3))
    await put(queue, "a", "m")
    outcomes = [await (await one(queue)).fail("no") for _ in range(3)]
    assert outcomes == ["retried", "retried", "dead"]
    assert await counts(queue) == (3, 0)


async def test_a_message_s_own_max_attempts_goes_before_the_policy_s(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(0, max_attempts=3))
    await put(queue, "a", "less", max_attempts=1)
    await put(queue, "a", "more", max_attempts=5)
    less, more = await queue.claim(2)
    assert await less.fail("no") == "dead"
    outcomes = [await more.fail("no")]
    while outcomes[-1] == "retried":
        outcomes.append(await (await one(queue)).fail("no"))
    assert outcomes == ["retried"] * 4 + ["dead"]


async def test_dead_at_the_expiry_that_reaches_max_crashes(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=100, max_crashes=3))
    await put(queue, "a", "m")
    for _ in range(3):
        await one(queue)
        clock.advance(30)
        report = await queue.reclaim()
    assert (report.reclaimed, report.dead) == ([], [("a", "m")])
    (letter,), _ = await queue.dead_letters.list("a")
    assert (letter.reason, letter.attempts, letter.crashes) == ("worker lost", 3, 3)


async def test_crashes_alone_never_use_up_the_attempts(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Dead is `attempt >= max_attempts` at a failure, or `crashes >= max_crashes`: an expiry is no failure."""
    queue = await make_queue(retry=RetryPolicy.fixed(0, max_attempts=2, max_crashes=5))
    await put(queue, "a", "m")
    for number in range(1, 5):
        await one(queue)
        clock.advance(30)
        assert (await queue.reclaim()).reclaimed == [("a", "m")], number
    assert await counts(queue) == (4, 4)
    assert await (await one(queue)).fail("no") == "dead"


async def test_failures_and_crashes_each_count_towards_their_own_end(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(0, max_attempts=10, max_crashes=2))
    await put(queue, "a", "m")
    await (await one(queue)).fail("no")
    await one(queue)
    clock.advance(30)
    await queue.reclaim()
    await (await one(queue)).fail("no")
    assert await counts(queue) == (3, 1)
    await one(queue)
    clock.advance(30)
    assert (await queue.reclaim()).dead == [("a", "m")]
    assert await counts(queue) == (4, 2)


async def test_an_extended_lease_is_no_crash(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy(max_crashes=1))
    await put(queue, "a", "m")
    lease = await one(queue)
    for _ in range(3):
        clock.advance(31)
        await lease.extend()
        await queue.reclaim()
    assert await counts(queue) == (1, 0)
    assert await lease.complete() == "done"


async def test_limits_and_waiting_count_for_nothing(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)], retry=RetryPolicy(max_attempts=3))
    await put(queue, "a", "m1", "m2")
    lease = await one(queue)
    for _ in range(50):
        assert await claimed(queue) == []
    await lease.complete()
    assert (await one(queue)).message.attempt == 1


async def test_shutdowns_use_up_no_attempt(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.none())
    await put(queue, "a", "m")
    for _ in range(5):
        await queue.release_many(await queue.claim())
    lease = await one(queue)
    assert lease.message.attempt == 1
    assert await lease.complete() == "done"


async def test_the_policy_says_how_long_a_retry_waits(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy(initial=2, factor=3, maximum=15, jitter=False))
    await put(queue, "a", "m")
    for wait in (2, 6, 15, 15):
        await (await one(queue)).fail("no")
        info = await queue.get("a", "m")
        assert info is not None
        assert info.due_at == clock.now + timedelta(seconds=wait)
        clock.advance(wait)


async def test_the_policy_sees_the_attempt_and_the_error(make_queue: MakeQueue, clock: ManualClock) -> None:
    seen = []

    def wait(attempt: int, error: BaseException | None) -> float:
        seen.append((attempt, error))
        return 0

    queue = await make_queue(retry=RetryPolicy.custom(wait))
    await put(queue, "a", "m")
    error = ValueError("no")
    await (await one(queue)).fail(error)
    await (await one(queue)).fail("text")
    assert seen == [(1, error), (2, None)]


@pytest.mark.parametrize("answer", ["raise", -1, float("nan"), "soon", None])
async def test_a_policy_that_goes_wrong_loses_no_message(
    make_queue: MakeQueue, clock: ManualClock, answer: object
) -> None:
    def wait(attempt: int, error: BaseException | None) -> float:
        if answer == "raise":
            raise RuntimeError("a mistake")
        return answer  # type: ignore[return-value]

    queue = await make_queue(retry=RetryPolicy.custom(wait))
    await put(queue, "a", "m")
    assert await (await one(queue)).fail("no") == "retried"
    clock.advance(3600)
    assert (await one(queue)).message.attempt == 2


async def test_the_budget_in_force_at_the_claim_is_the_one_that_counts(make_queue: MakeQueue) -> None:
    """The lease remembers it: a declaration made while the message runs is for the next delivery."""
    queue = await make_queue(retry=RetryPolicy.fixed(0, max_attempts=2))
    await put(queue, "a", "m")
    await (await one(queue)).fail("no")
    lease = await one(queue)
    await make_queue(retry=RetryPolicy.fixed(0, max_attempts=9))
    assert await lease.fail("no") == "dead"


async def test_a_process_without_a_policy_uses_the_stored_budget(make_queue: MakeQueue) -> None:
    await make_queue(retry=RetryPolicy.fixed(0, max_attempts=2, max_crashes=1))
    stranger = await make_queue()
    await put(stranger, "a", "m")
    outcomes = [await (await one(stranger)).fail("no") for _ in range(2)]
    assert outcomes == ["retried", "dead"]


async def test_retries_free_the_slot_so_that_others_run(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Reported fault A3: 20 messages at limit 2, each fails twice, then succeeds."""
    queue = await make_queue(limits=[Limit("tenant", default=2)], retry=RetryPolicy.fixed(2))
    await put(queue, "a", *(f"m{n}" for n in range(20)))
    starts = 0

    def handle(message: object) -> None:
        nonlocal starts
        starts += 1
        if message.attempt < 3:  # type: ignore[attr-defined]
            raise RuntimeError("not yet")

    for _ in range(3):
        await drain(queue, handle, batch=2)
        assert await held(queue, "tenant", "a") == 0
        clock.advance(2)
    assert starts == 60
    assert (await queue.stats()).totals["completed"] == 20


async def test_a_redriven_message_starts_counting_again(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy(2, max_crashes=2, initial=0, maximum=0))
    await put(queue, "a", "m")
    await one(queue)
    clock.advance(30)
    await queue.reclaim()
    assert await (await one(queue)).fail("no") == "dead"
    assert await counts(queue) == (2, 1)
    await queue.dead_letters.redrive("a", "m")
    assert await counts(queue) == (0, 0)
    lease = await one(queue)
    assert (lease.message.attempt, lease.message.crashes) == (1, 0)
    assert await lease.fail("no") == "retried"
