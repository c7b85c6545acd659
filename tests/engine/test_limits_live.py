"""Limits are live: set, raised, lowered and reset from any client, in force from the next claim on."""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import ConfigurationError, Limit, LimitState
from fairqueue.testing import faults
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, finish, held, one, put


def many(count: int) -> list[str]:
    return [f"m{n:02}" for n in range(count)]


async def test_raised_by_another_client_as_many_more_are_claimable_at_once(make_queue: MakeQueue) -> None:
    """Reported fault M3: limit 1 with one running and ten waiting; another sets 5: four more, with no completion needed."""
    queue, other = await make_queue(limits=[Limit("tenant", default=1)]), await make_queue()
    await put(queue, "a", *many(11))
    await one(queue)
    assert await claimed(queue) == []
    await other.limits.set("tenant", "a", 5)
    assert await claimed(queue) == ["m01", "m02", "m03", "m04"]
    assert await claimed(queue) == []


async def test_raised_at_a_shared_group_wakes_as_many_tenants(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    for n in range(9):
        await put(queue, f"t{n}", "m", metadata={"org": "x"})
    assert len(await claimed(queue)) == 1
    await queue.limits.set("org", "x", 5)
    assert len(await claimed(queue)) == 4
    assert await held(queue, "org", "x") == 5


async def test_lowered_below_what_runs_starts_nothing_until_fewer_run(make_queue: MakeQueue) -> None:
    """Reported fault M3: 5 running, set 2: nobody is killed, free reads 0, and it goes on by itself."""
    queue = await make_queue(limits=[Limit("tenant", default=5)])
    await put(queue, "a", *many(10))
    leases = await queue.claim(5)
    await queue.limits.set("tenant", "a", 2)
    state = await queue.limits.get("tenant", "a")
    assert (state.limit, state.held, state.free) == (2, 5, 0)
    assert await queue.extend_many(leases) == ["extended"] * 5
    for done in (1, 2, 3):
        await leases[done - 1].complete()
        assert await claimed(queue) == []
    await leases[3].complete()
    assert await claimed(queue) == ["m05"]
    assert await held(queue, "tenant", "a") == 2


async def test_zero_stops_it_and_others_go_on(make_queue: MakeQueue) -> None:
    """Reported fault M1: 0 is neither "not set" nor "no limit"."""
    queue = await make_queue(limits=[Limit("tenant", default=5)])
    await queue.limits.set("tenant", "T", 0)
    await put(queue, "T", *many(5))
    await put(queue, "U", *many(5))
    assert {lease.message.tenant for lease in await queue.claim(10)} == {"U"}
    assert await claimed(queue) == []
    await queue.limits.set("tenant", "T", 2)
    assert await claimed(queue) == ["m00", "m01"]


async def test_none_is_unlimited(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", *many(50))
    assert len(await claimed(queue)) == 1
    await queue.limits.set("tenant", "a", None)
    assert (await queue.limits.get("tenant", "a")).limit is None
    assert len(await claimed(queue)) == 49


async def test_unlimited_made_limited_again_counts_what_runs(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=None)])
    await put(queue, "a", *many(10))
    leases = await queue.claim(8)
    await queue.limits.set("tenant", "a", 3)
    assert await claimed(queue) == []
    await finish(queue, leases[:6])
    assert await claimed(queue) == ["m08"]


async def test_reset_goes_back_to_the_declared_default(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await queue.limits.set("tenant", "a", 0)
    await put(queue, "a", *many(5))
    assert await claimed(queue) == []
    await queue.limits.reset("tenant", "a")
    assert (await queue.limits.get("tenant", "a")).limit == 3
    assert await claimed(queue) == ["m00", "m01", "m02"]


async def test_a_limit_stays_while_its_group_has_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=9)])
    await queue.limits.set("tenant", "a", 1)
    await put(queue, "a", "m1")
    await finish(queue, await queue.claim())
    await put(queue, "a", "m2", "m3")
    assert await claimed(queue) == ["m2"]


async def test_get_tells_who_holds_and_how_many_wait(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=2, key="org")])
    await put(queue, "a", "a1", "a2", "a3", metadata={"org": "x"})
    await put(queue, "b", "b1", "b2", metadata={"org": "x"})
    await queue.claim(2)
    await claimed(queue)
    assert await queue.limits.get("org", "x") == LimitState(
        group="org", id="x", limit=2, held=2, waiting=3, holders=[("a", "a1"), ("b", "b1")]
    )


async def test_get_of_a_group_nothing_was_ever_counted_in(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=2, key="org")])
    assert await queue.limits.get("org", "new") == LimitState(
        group="org", id="new", limit=2, held=0, waiting=0, holders=[]
    )


async def test_list_names_every_group_with_a_limit_a_slot_or_a_waiter(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1), Limit("tenant2", default=1, key="t2")])
    await queue.limits.set("tenant", "limited", 4)
    await queue.limits.set("tenant", "stopped", 0)
    await queue.limits.set("tenant2", "other", 4)
    for tenant in ("holds", "stopped"):
        await put(queue, tenant, "m")
    await claimed(queue)
    listed = {
        state.id: (state.limit, state.held, state.waiting) async for state in queue.limits.list("tenant")
    }
    assert listed == {"limited": (4, 0, 0), "stopped": (0, 0, 1), "holds": (1, 1, 0)}


async def test_list_of_more_than_one_page(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    for n in range(500):
        await queue.limits.set("tenant", f"t{n}", n)
    listed = [(state.id, state.limit) async for state in queue.limits.list("tenant")]
    assert sorted(listed) == sorted((f"t{n}", n) for n in range(500))


@pytest.mark.parametrize("value", [-1, float("nan"), 1.5, "5", True, 2**31])
async def test_what_is_no_limit_is_refused(make_queue: MakeQueue, value: Any) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    with pytest.raises(ConfigurationError, match="expected limit"):
        await queue.limits.set("tenant", "a", value)
    assert (await queue.limits.get("tenant", "a")).limit == 3


async def test_a_limit_nobody_declared_is_refused(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    for call in (
        queue.limits.set("org", "x", 1),
        queue.limits.get("org", "x"),
        queue.limits.reset("org", "x"),
    ):
        with pytest.raises(ConfigurationError, match="'org'"):
            await call
    with pytest.raises(ConfigurationError, match="'org'"):
        _ = [state async for state in queue.limits.list("org")]


async def test_a_raise_for_more_waiters_than_one_script_wakes_wakes_them_all(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("org", default=0, key="org")])
    for n in range(450):
        await put(queue, f"t{n}", "m", metadata={"org": "x"})
    assert await claimed(queue) == []
    await queue.limits.set("org", "x", 400)
    assert len(await claimed(queue)) == 400
    assert (await queue.limits.get("org", "x")).waiting == 50


async def test_setting_the_limit_of_a_broken_group_is_stored_and_counts_once_it_is_mended(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2", "m3")
    await one(queue)
    await faults.wrong_type(queue, "slots", "tenant", "a")
    await queue.limits.set("tenant", "a", 2)
    assert await claimed(queue) == ["m2"]
    assert await held(queue, "tenant", "a") == 2


async def test_another_group_s_limit_of_the_same_id_is_untouched(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2), Limit("org", default=2, key="org")])
    await queue.limits.set("org", "same", 0)
    assert (await queue.limits.get("tenant", "same")).limit == 2


async def test_what_stops_a_group_can_be_lifted_after_its_limit_is_declared_no_more(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(limits=[Limit("org", default=5, key="org")])
    for id_ in ("o", "p"):
        await put(queue, "a", id_, metadata={"org": id_})
    await queue.limits.set("org", "o", 0)
    await queue.limits.set_rate("org", "o", 1, per=3600)
    await queue.limits.set("org", "p", 0)
    later = await make_queue(limits=[])
    assert await later.claim(2) == []
    for refused in (
        later.limits.set("org", "o", 3),
        later.limits.set_rate("org", "o", 5),
        later.limits.reset("org", "q"),
    ):
        with pytest.raises(ConfigurationError, match="expected group to be a declared limit"):
            await refused
    await later.limits.reset("org", "o")
    await later.limits.set_rate("org", "o", None)
    await later.limits.set("org", "p", None)
    leases = await later.claim(2)
    assert sorted(lease.message.id for lease in leases) == ["o", "p"]
    await later.complete_many(leases)
