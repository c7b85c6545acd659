"""Everybody who fits is woken, however many that is, and by whichever client comes."""

from __future__ import annotations

import pytest

from fairqueue import FairQueue, Limit, NewMessage
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue


def by_org(default: int) -> list[Limit]:
    return [Limit("org", default=default, key="org")]


async def claim_all(queue: FairQueue[int]) -> int:
    claimed = 0
    while leases := await queue.claim(1000):
        claimed += len(leases)
    return claimed


async def test_a_raised_default_wakes_more_than_one_script_may(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=by_org(1))
    await queue.enqueue_many([NewMessage(0, tenant=f"t{n}", metadata={"org": "x"}) for n in range(451)])
    assert await claim_all(queue) == 1
    raised = await make_queue(limits=by_org(1000))
    assert not (await raised.audit()).findings
    assert await claim_all(raised) == 450


async def test_a_client_that_died_before_it_woke_anybody_is_stood_in_for(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue(limits=by_org(1))
    await queue.enqueue_many([NewMessage(0, tenant=f"t{n}", metadata={"org": "x"}) for n in range(10)])
    assert await claim_all(queue) == 1
    dying: FairQueue[int] = FairQueue(
        queue.url, queue.name, limits=by_org(10), clock=queue._options.clock, reconcile_interval=0
    )

    async def die(*_: object) -> None:
        raise ConnectionError("the connection breaks here")

    with monkeypatch.context() as patch:
        patch.setattr("fairqueue._engine.agreement.follow_up", die)
        with pytest.raises(ConnectionError):
            await dying.connect()
    await dying.close()
    assert await claim_all(await make_queue()) == 9


async def test_a_settle_wakes_at_every_group_it_frees(make_queue: MakeQueue) -> None:
    count, names = 400, ("a", "b", "c")
    queue = await make_queue(limits=[Limit(name, default=1, key=name) for name in names])
    await queue.enqueue_many(
        [
            NewMessage(0, tenant="holder", queue=f"q{n}", metadata={name: str(n) for name in names})
            for n in range(count)
        ]
    )
    held = await queue.claim(count)
    assert len(held) == count
    await queue.enqueue_many(
        [NewMessage(0, tenant=f"w{name}{n}", metadata={name: str(n)}) for n in range(count) for name in names]
    )
    assert await queue.claim(1000) == []
    await queue.complete_many(held)
    assert not (await queue.audit()).findings
    assert await claim_all(queue) == count * len(names)


async def test_a_claim_among_lanes_at_a_broken_group_stays_short(make_queue: MakeQueue) -> None:
    """Lanes that must be reconciled first stay in front; one script looks at 200 of them, not at all."""
    queue = await make_queue(limits=by_org(5))
    await queue.enqueue_many([NewMessage(0, tenant=f"t{n}", metadata={"org": "x"}) for n in range(1000)])
    await queue.enqueue(0, tenant="zfree")
    await faults.wrong_type(queue, "slots", "org", "x")
    await queue._engine.command("CONFIG", "RESETSTAT")
    assert len(await queue.claim(1)) == 1
    stats = await queue._engine.command("INFO", "commandstats")
    assert stats["cmdstat_zrange"]["calls"] < 200 * 8  # five thousand and more when all are looked at


async def test_a_claim_of_many_drained_tenants_looks_at_each_a_few_times(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue_many([NewMessage(0, tenant=f"t{n}") for n in range(900)])
    await queue._engine.command("CONFIG", "RESETSTAT")
    assert len(await queue.claim(1000)) == 900
    stats = await queue._engine.command("INFO", "commandstats")
    assert stats["cmdstat_zrange"]["calls"] < 900 * 8  # a square of it when each is met again and again


async def test_a_repair_gives_a_running_message_its_whole_time(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue(1, tenant="t", id="m")
    (first,) = await queue.claim()
    await faults.delete(queue, "deadline", "t", "m")
    assert (await queue.audit(fix=True)).findings
    clock.advance(29)
    assert (await queue.reclaim()).reclaimed == []
    assert await queue.claim() == []
    assert await first.complete() == "done"
