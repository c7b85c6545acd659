"""Settings have one owner, the server: who declares nothing uses what is stored, a differing declaration replaces it."""

from __future__ import annotations

import logging

import pytest

from fairqueue import ConfigurationError, FairQueue, Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.shares import serve
from tests.engine.tools import claimed, held, one, put, raw


async def test_who_declares_no_limits_uses_the_stored_ones(make_queue: MakeQueue) -> None:
    await make_queue(limits=[Limit("tenant", default=1), Limit("org", default=2, key="org")])
    queue = await make_queue()
    await put(queue, "a", "m1", "m2", metadata={"org": "x"})
    lease = await one(queue)
    assert lease.message.groups == (("tenant", "a"), ("org", "x"))
    assert await claimed(queue) == []


async def test_who_declares_no_limits_first_stores_none(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    assert (await one(queue)).message.groups == ()


async def test_an_empty_declaration_is_a_declaration(make_queue: MakeQueue) -> None:
    await make_queue(limits=[Limit("tenant", default=1)])
    queue = await make_queue(limits=[])
    await put(queue, "a", "m")
    assert (await one(queue)).message.groups == ()


async def test_a_differing_declaration_replaces_the_stored_one_and_says_so(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    await make_queue(limits=[Limit("tenant", default=1)])
    with caplog.at_level(logging.WARNING, "fairqueue"):
        queue = await make_queue(limits=[Limit("tenant", default=3)])
    assert any("limits" in record.getMessage() for record in caplog.records)
    assert (await queue.limits.get("tenant", "a")).limit == 3
    assert (await raw(queue, "HGET", "settings", args=["changed"])) == b"limits"


async def test_an_equal_declaration_changes_and_says_nothing(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"limits": [Limit("tenant", default=1)], "retry": RetryPolicy.fixed(5), "scheduler": "fair"}
    await make_queue(**options)
    with caplog.at_level(logging.WARNING, "fairqueue"):
        queue = await make_queue(**options)
    assert caplog.records == []
    assert await raw(queue, "HGET", "settings", args=["changed"]) is None


@pytest.mark.parametrize(
    "option",
    [
        {"retry": RetryPolicy.fixed(7)},
        {"scheduler": "fifo"},
        {"dead_letters": False},
        {"limits": [Limit("tenant", default=9)]},
    ],
)
async def test_each_setting_is_replaced_on_its_own(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture, option: dict[str, object]
) -> None:
    first = await make_queue(
        limits=[Limit("tenant", default=1)], retry=RetryPolicy.fixed(5), scheduler="fair", dead_letters=True
    )
    before = await first._engine.command("HGETALL", f"{first._engine.calls.root}settings")
    with caplog.at_level(logging.WARNING, "fairqueue"):
        await make_queue(**option)
    assert len(caplog.records) == 1
    after = await first._engine.command("HGETALL", f"{first._engine.calls.root}settings")
    (name,) = option
    changed = {field.decode() for field in before if before[field] != after[field]} - {
        "max_attempts",
        "max_crashes",
        "revision",
    }
    assert changed == {name}


async def test_limits_that_were_set_stay_through_a_new_declaration(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.limits.set("tenant", "a", 7)
    later = await make_queue(limits=[Limit("tenant", default=2)])
    assert (await later.limits.get("tenant", "a")).limit == 7
    await later.limits.reset("tenant", "a")
    assert (await later.limits.get("tenant", "a")).limit == 2


@pytest.mark.parametrize("default", [2, None])
async def test_a_raised_default_declared_by_another_client_wakes_who_waits(
    make_queue: MakeQueue, default: int | None
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    for tenant in ("a", "b"):
        await put(queue, tenant, "m1", "m2")
    assert len(await claimed(queue)) == 2
    assert await claimed(queue) == []
    await make_queue(limits=[Limit("tenant", default=default)])
    assert len(await claimed(queue)) == 2


async def test_a_raised_default_wakes_more_lanes_than_one_script_wakes(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=0, key="org")])
    for n in range(450):
        await put(queue, f"t{n}", "m", metadata={"org": "x"})
    assert await claimed(queue) == []
    await make_queue(limits=[Limit("org", default=None, key="org")])
    assert len(await claimed(queue)) == 450


async def test_a_lowered_default_stops_nobody_and_admits_nobody(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    await put(queue, "a", "m1", "m2", "m3")
    leases = await queue.claim(2)
    await make_queue(limits=[Limit("tenant", default=1)])
    await leases[0].complete()
    assert await claimed(queue) == []
    await leases[1].complete()
    assert await claimed(queue) == ["m3"]


async def test_a_limit_that_is_no_longer_declared_still_frees_what_it_held(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    await put(queue, "a", "m1", "m2", metadata={"org": "x"})
    lease = await one(queue)
    later = await make_queue(limits=[Limit("tenant", default=5)])
    await lease.complete()
    assert await claimed(later) == ["m2"]


async def test_a_key_function_is_known_only_to_who_declared_it(make_queue: MakeQueue) -> None:
    declared = await make_queue(limits=[Limit("model", default=1, key=lambda m: m.queue)])
    stranger = await make_queue()
    await put(declared, "a", "m1", "m2")
    lease = await one(stranger)
    assert lease.message.groups == (("model", "default"),)
    assert await held(stranger, "model", "default") == 1
    with pytest.raises(ConfigurationError, match="model"):
        await put(stranger, "a", "m3")
    assert await stranger.get("a", "m3") is None


async def test_the_stored_retry_policy_is_used_by_who_declares_none(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    await make_queue(retry=RetryPolicy.fixed(77))
    queue = await make_queue()
    await put(queue, "a", "m")
    await (await one(queue)).fail("no")
    clock.advance(76.999)
    assert await claimed(queue) == []
    clock.advance(0.001)
    assert await claimed(queue) == ["m"]


async def test_two_names_never_see_each_other(make_queue: MakeQueue, namespace: str) -> None:
    one_, other = await make_queue(), await make_queue(name=f"{namespace}.2")
    await put(one_, "a", "m")
    assert await claimed(other) == []
    assert await other.get("a", "m") is None
    await put(other, "a", "m")
    assert (await other.stats()).ready == (await one_.stats()).ready == 1


async def test_a_namespace_whose_name_begins_like_another_s_is_another(
    make_queue: MakeQueue, namespace: str
) -> None:
    one_, other = await make_queue(), await make_queue(name=f"{namespace}x")
    await put(one_, "a", "m")
    await faults.leak_slot(other, "tenant", "a", "ghost")
    await other.reconcile()
    assert (await other.stats()).ready == 0
    assert await claimed(one_) == ["m"]


async def test_settings_the_server_lost_are_declared_again(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue._engine.command("FLUSHALL")
    await put(queue, "a", "m1", "m2")
    assert await claimed(queue) == ["m1"]
    assert await claimed(queue) == []
    assert (await queue.limits.get("tenant", "a")).limit == 1


async def test_a_client_that_uses_a_queue_made_by_the_constructor_alone_connects_on_first_use(
    server: str, namespace: str
) -> None:
    queue: FairQueue[int] = FairQueue(server, namespace)
    assert (await queue.enqueue(1, tenant="a")).created
    await queue.complete_many(await queue.claim())
    await queue.close()
    async with queue:
        assert await queue.claim() == []  # and again when it is opened


@pytest.mark.parametrize("limits", [[], [Limit("tenant", default=1), Limit("org", default=2, key="org")]])
@pytest.mark.parametrize(("before", "after"), [("fifo", "fair"), ("fair", "fifo")])
async def test_another_scheduler_starts_level(
    make_queue: MakeQueue, before: str, after: str, limits: list[Limit]
) -> None:
    """Tags of the other kind would let some starve until the others have passed them; so would those kept at groups."""
    old = await make_queue(scheduler=before, limits=limits)
    org, cost = {"org": "o"}, 1 if before == "fifo" else 500
    await old.enqueue_many(
        [NewMessage(n, tenant="a", queue=f"q{n % 9}", cost=cost, metadata=org) for n in range(300)]
        + [NewMessage(n, tenant=f"t{n % 3}", cost=cost, metadata=org) for n in range(60)]
    )
    await serve(old, 20)
    running = await old.claim(2)  # with limits, others wait for what these hold
    queue = await make_queue(scheduler=after)
    await queue.enqueue_many([NewMessage(n, tenant="late", metadata=org) for n in range(5)])
    await queue.complete_many(running)
    served = [tenant for tenant, _ in await serve(queue, 400, batch=7)]
    assert len(served) == 365 - 22
    if after == "fair":
        assert served[:40].count("a") <= 14
        assert served[:40].count("late") == 5
    elif not limits:
        assert served[:250].count("a") >= 245
        assert set(served[-5:]) == {"late"}
    else:
        assert "late" not in served[:20]


@pytest.mark.parametrize("field", ["max_attempts", "max_crashes", "scheduler"])
async def test_a_damaged_setting_stops_nobody(make_queue: MakeQueue, clock: ManualClock, field: str) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(1))
    await put(queue, "a", "m1", "m2")
    await raw(queue, "HSET", "settings", args=[field, "nonsense"])
    other = await make_queue()
    assert await (await one(queue)).fail("no") == "retried"
    assert await (await one(other)).complete() == "done"
    clock.advance(5)
    assert await (await one(other)).complete() == "done"
    assert [finding.subject for finding in (await other.audit(fix=True)).findings] == [f"settings/{field}"]
