"""Time to live: what was not started by its instant is never started, and is found without anybody coming to its turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairqueue import FairQueue, InvalidMessageError, Limit, NewMessage, RetryPolicy
from fairqueue._engine.keys import join
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, commands_of_a_claim, one, put, raw, state


async def letters(queue: FairQueue[Any], tenant: str = "a") -> dict[str, str]:
    """Reasons by id."""
    items, _ = await queue.dead_letters.list(tenant, limit=1000)
    return {item.message.id: item.reason for item in items}


@pytest.mark.parametrize("expires", [10, 10.0, timedelta(seconds=10)])
async def test_what_is_not_started_in_time_is_a_dead_letter(
    make_queue: MakeQueue, clock: ManualClock, expires: timedelta | float
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m1", "m2", expires=expires)
    clock.advance(9.999)
    assert await claimed(queue, 1) == ["m1"]
    clock.advance(0.001)
    assert await claimed(queue) == []
    assert await letters(queue) == {"m2": "expired"}
    totals = (await queue.stats()).totals
    assert (totals.expired, totals.dead_lettered, totals.dropped) == (1, 1, 0)


async def test_an_instant_is_never_exceeded(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Instants are finer than the server's milliseconds: it ends with the one before."""
    queue = await make_queue()
    await put(queue, "a", "m", expires=clock.now + timedelta(seconds=1, microseconds=999))
    info = await queue.get("a", "m")
    assert info is not None
    assert info.expires_at == clock.now + timedelta(seconds=1)
    clock.advance(1)
    assert await claimed(queue) == []
    assert await letters(queue) == {"m": "expired"}


async def test_it_counts_from_the_moment_the_server_accepts_it(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    message = NewMessage(1, tenant="a", id="m", expires=10)
    clock.advance(100)
    await queue.enqueue_many([message])
    clock.advance(9.999)
    assert await claimed(queue) == ["m"]


async def test_one_that_has_passed_is_accepted_and_never_started(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", expires=datetime(1969, 1, 1, tzinfo=UTC))
    assert await claimed(queue) == []
    assert await letters(queue) == {"m": "expired"}


async def test_dropped_by_option_and_counted(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", expires=5, on_expiry="drop")
    await put(queue, "a", "late", delay=7)
    clock.advance(5)
    assert await promote(queue._engine) == 1
    assert await state(queue, "a", "m") is None
    totals = (await queue.stats("a")).totals
    assert (totals.expired, totals.dead_lettered, totals.dropped) == (1, 0, 1)
    clock.advance(2)
    await (await one(queue)).complete()


async def test_dropped_where_no_dead_letters_are_kept(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(dead_letters=False)
    await put(queue, "a", "m", expires=5)
    clock.advance(5)
    assert await claimed(queue) == []
    assert await state(queue, "a", "m") is None
    assert (await queue.stats()).totals.dropped == 1


async def test_what_is_delayed_expires_too(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    at = clock.now + timedelta(seconds=60)
    await put(queue, "a", "m", at=at, expires=10)  # of which scale is later is the server's to say
    clock.advance(10)
    assert await promote(queue._engine) == 1
    assert await letters(queue) == {"m": "expired"}
    assert (await queue.stats()).delayed == 0


async def test_what_waits_at_a_full_group_expires_too(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Its lane is parked, so no claim comes to it; and nobody is left behind on a list of those who wait."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "runs")
    lease = await one(queue)
    await put(queue, "a", "m", expires=5)
    await put(queue, "b", "other")
    assert await claimed(queue) == ["other"]
    clock.advance(5)
    assert await claimed(queue) == []
    assert await letters(queue) == {"m": "expired"}
    assert (await queue.limits.get("tenant", "a")).waiting == 0
    assert await lease.complete() == "done"


async def test_what_was_started_expires_no_more(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(3), visibility_timeout=5)
    await put(queue, "a", "failed", "crashed", expires=10)
    failed, _ = await queue.claim(2)
    await failed.fail("no")
    clock.advance(20)
    await queue.reclaim()
    assert await claimed(queue) == ["failed", "crashed"]
    assert (await queue.stats()).totals.expired == 0


async def test_a_delivery_that_was_given_back_uncounted_is_no_start(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "now", "later", expires=10)
    first, second = await queue.claim(2)
    assert await raw(queue, "EXISTS", "expiring") == 0
    await first.release()
    await second.release(delay=60)
    clock.advance(10)
    assert await claimed(queue) == []
    assert await letters(queue) == {"now": "expired", "later": "expired"}


async def test_redriven_it_expires_no_more(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", expires=5)
    clock.advance(5)
    assert await claimed(queue) == []
    await queue.dead_letters.redrive("a", "m")
    clock.advance(1000)
    assert await claimed(queue) == ["m"]


async def test_what_is_cancelled_or_purged_is_listed_no_more(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "ready1", "ready2", expires=60)
    await put(queue, "a", "delayed1", "delayed2", delay=5, expires=60)
    for id_ in ("ready1", "delayed1"):
        assert await queue.cancel("a", id_) == "cancelled"
    assert await raw(queue, "ZCARD", "expiring") == 2
    assert await queue.purge("a") == 2
    assert await raw(queue, "EXISTS", "expiring") == 0


async def test_more_at_once_than_one_script_looks_at(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", *(f"old{n}" for n in range(450)), expires=5)
    await put(queue, "a", "young")
    clock.advance(5)
    assert await claimed(queue) == ["young"]
    assert len(await letters(queue)) == 450


async def test_a_claim_costs_no_more_for_those_that_have_not_expired(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "other", delay=5)
    await queue.claim()
    before, _ = await commands_of_a_claim(queue)
    await put(queue, "a", *(f"m{n}" for n in range(300)), delay=5, expires=3600)
    await queue.claim()
    cost, leases = await commands_of_a_claim(queue)
    assert leases == []
    assert cost == before


async def test_a_damaged_index_lets_nothing_start_late_and_ends_nothing_early(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "listed too early", "not listed", expires=10)
    await raw(queue, "ZADD", "expiring", args=(1, join("a", "listed too early")))
    await raw(queue, "ZREM", "expiring", args=(join("a", "not listed"),))
    assert await promote(queue._engine) == 1
    assert (await queue.stats()).ready == 2
    found = {(one.subject, one.evidence) for one in (await queue.audit()).findings}
    assert found == {("a/not listed", "the message is not listed to expire")}
    clock.advance(10)
    assert await claimed(queue) == []
    assert sorted(await letters(queue)) == ["listed too early", "not listed"]


async def test_the_index_is_written_again_by_the_doctor(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", expires=10)
    await raw(queue, "DEL", "expiring")
    await raw(queue, "ZADD", "expiring", args=(1e15, join("a", "nobody")))
    await queue.audit(fix=True)
    assert (await queue.audit()).ok
    await faults.wrong_type(queue, "expiring")
    assert await claimed(queue) == ["m"]


async def test_what_cannot_be_buried_is_tried_again_and_not_started(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", expires=5)
    await faults.wrong_type(queue, "dead", "a")
    clock.advance(5)
    assert await claimed(queue) == []
    assert await state(queue, "a", "m") == "delayed"
    clock.advance(10)
    assert await claimed(queue) == []
    await raw(queue, "DEL", "dead", "a")
    clock.advance(10)
    assert await claimed(queue) == []
    assert await letters(queue) == {"m": "expired"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"expires": 0}, {"expires": -1}, {"expires": "soon"}, {"expires": datetime(2030, 1, 1)}, {"expires": True},  # noqa: DTZ001
        {"expires": 5, "delay": 5}, {"expires": datetime(2030, 1, 1, tzinfo=UTC), "at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"on_expiry": "explode"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError):
        NewMessage(1, tenant="a", **wrong)
