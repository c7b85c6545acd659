"""Runs whose figures can be worked out by hand, on the real engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairqueue.simulate import Share, Simulated, simulate, workload_of

ONE_AT_A_TIME = {"processes": 1, "concurrency": 1}


async def run(
    tenants: object, duration: float = 10, workers: object = ONE_AT_A_TIME, **more: Any
) -> Simulated:
    return await simulate(workload_of({"duration": duration, "workers": workers, "tenants": tenants, **more}))


def tenant(name: str, arrivals: object, run: object = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "messages": {"arrivals": arrivals, "run": run, **more}}


def named(found: Simulated) -> dict[str, Share]:
    return {share.name: share for share in found.entries}


async def test_more_than_can_be_done_waits_longer_and_longer() -> None:
    found = await run(tenant("acme", {"regular": 2}))
    (acme,) = found.entries
    # Message n comes at n/2 and starts at n: the first ten start, n of them after n/2 seconds; the others wait on.
    assert (acme.sent, acme.done, acme.running, acme.waiting) == (20, 9, 1, 10)
    assert (acme.wait_p50_s, acme.wait_max_s) == (2.5, 5.0)
    assert (acme.utilisation, acme.share, acme.done_per_s) == (1.0, 1.0, 0.9)


async def test_with_room_nobody_waits() -> None:
    (acme,) = (await run(tenant("acme", {"regular": 2}, 0.25))).entries
    assert (acme.done, acme.wait_max_s, acme.utilisation) == (20, 0.0, 0.5)


async def test_tenants_of_one_backlog_share_alike_whatever_they_sent() -> None:
    found = await run([tenant("large", {"burst": 30}), tenant("small", {"burst": 5})])
    shares = named(found)
    assert {name: share.done + share.running for name, share in shares.items()} == {"large": 5, "small": 5}
    fifo = named(await run([tenant("large", {"burst": 30}), tenant("small", {"burst": 5})], scheduler="fifo"))
    assert fifo["small"].done == 0


@pytest.mark.parametrize(("quantum", "served"), [({}, [5, 5]), ({"quantum": 7}, [3, 7])])
async def test_drr_serves_a_quantum_in_a_row(quantum: dict[str, float], served: list[int]) -> None:
    tenants = [tenant("acme", {"burst": 30}), tenant("beta", {"burst": 30})]
    found = await run(tenants, scheduler="drr", **quantum)
    assert sorted(share.done + share.running for share in found.entries) == served


async def test_what_runs_long_may_cost_what_it_runs() -> None:
    tenants = [tenant("slow", {"burst": 30}, 3, cost="run"), tenant("fast", {"burst": 30}, 1, cost="run")]
    shares = named(await run(tenants, duration=24))
    assert (shares["slow"].share, shares["fast"].share) == (0.5, 0.5)


async def test_a_limit_keeps_out_and_tells_how_long_it_was_full() -> None:
    found = await run(
        [tenant("acme", {"burst": 3, "from": 2}), tenant("beta", {"burst": 1}, 4)],
        workers={"concurrency": 4},
        limits={"tenant": {"own": {"acme": 2}}},
    )
    assert named(found)["acme"].wait_max_s == 1.0
    acme, beta = found.limits
    assert (acme.id, acme.limit, acme.held_max, acme.held_mean, acme.full) == ("acme", 2, 2, 0.3, 0.1)
    assert (beta.limit, beta.held_mean, beta.full) == (None, 0.4, 0.0)


async def test_a_shared_group_and_a_limit_of_the_tenants_own() -> None:
    tenants = [{**tenant("acme", {"burst": 4}, metadata={"model": "large"}), "count": 2, "limit": 0}]
    tenants += [tenant("beta", {"burst": 4}, metadata={"model": "large"})]
    limits = {"tenant": None, "model": {"key": "model", "default": 3}}
    found = await run(tenants, workers={"concurrency": 10}, limits=limits)
    assert [share.waiting for share in found.tenants] == [4, 4, 0]
    assert [share.name for share in found.tenants] == ["acme-1", "acme-2", "beta"]
    assert [(use.id, use.held_max) for use in found.limits] == [("large", 3), ("beta", 3)]
    assert named(found)["acme"].wait_p50_s == 10.0  # of what never started: as long as it had waited


async def test_a_worker_takes_its_pools_alone_and_priority_goes_first() -> None:
    messages = [
        {"arrivals": {"burst": 1}, "run": 1, "pool": "gpu"},
        {"arrivals": {"burst": 2}, "run": 1},
        {"arrivals": {"burst": 1}, "run": 1, "priority": 5},
    ]
    (acme,) = (await run({"name": "acme", "messages": messages}, duration=0.5)).entries
    assert (acme.running, acme.waiting) == (1, 3)
    both = await run({"name": "acme", "messages": messages}, workers=[ONE_AT_A_TIME, {"pools": "gpu"}])
    assert (both.done, both.capacity, both.entries[0].wait_max_s) == (4, 101, 2.0)


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_same_input_gives_the_same_output_and_another_seed_another(seed: int) -> None:
    tenants = [
        {**tenant("many", {"poisson": 2}, {"lognormal": {"p50": 0.2, "p95": 2}}), "count": 3},
        tenant("one", {"poisson": 3}, {"exponential": 0.5}, queue="other"),
    ]
    made = [
        json.dumps(
            (await run(tenants, workers={"concurrency": 2}, limits={"tenant": 1}, seed=number)).as_json()
        )
        for number in (seed, seed, 3)
    ]
    assert made[0] == made[1]
    assert made[0] != made[2]


async def test_a_change_of_one_tenant_leaves_what_the_others_send() -> None:
    one = tenant("one", {"poisson": 3}, {"exponential": 0.1})
    alone = named(await run(one, workers={"concurrency": 50}))["one"]
    beside = await run(
        [tenant("new", {"poisson": 9}, {"exponential": 0.1}), one], workers={"concurrency": 50}
    )
    assert (alone.sent, alone.utilisation) == (named(beside)["one"].sent, named(beside)["one"].utilisation)


async def test_weights_share_the_workers_out() -> None:
    tenants = [
        {**tenant(name, {"burst": 90}), "weight": weight} for name, weight in (("a", 1), ("b", 2), ("c", 4))
    ]
    found = await run(tenants, duration=70)
    assert [share.share for share in found.entries] == pytest.approx([1 / 7, 2 / 7, 4 / 7], abs=0.01)


async def test_charged_by_time_they_share_the_time_whatever_their_messages_take() -> None:
    tenants = [tenant("slow", {"burst": 40}, 2), tenant("fast", {"burst": 400}, 0.1)]
    by_cost = named(await run(tenants, duration=40))
    by_time = named(await run(tenants, duration=40, charge="time"))
    assert by_cost["fast"].share < 0.06
    assert by_time["fast"].share == pytest.approx(0.5, abs=0.1)


async def test_nothing_starts_while_it_is_paused() -> None:
    tenants = [tenant("acme", {"burst": 2}), tenant("beta", {"burst": 2}, queue="mail")]
    pauses = [{"tenant": "acme", "until": 3}, {"queue": "mail", "from": 0.5, "until": 6}]
    found = named(await run(tenants, pauses=pauses))
    assert (found["acme"].wait_p50_s, found["acme"].wait_max_s) == (3.0, 4.0)
    assert (found["beta"].wait_p50_s, found["beta"].wait_max_s) == (0.0, 6.0)
    for_ever = await run(tenants[0], pauses={"pool": "default", "from": 0.5})
    assert (for_ever.done, for_ever.waiting) == (1, 1)


@pytest.mark.parametrize(
    "spans", [[(0, 4), (2, 6)], [(0, 6), (1, 2)], [(0, 3), (3, 6)], [(0, 6), (6, 6)], [(0, 6), (0, 6)]]
)
async def test_of_pauses_that_overlap_or_meet_the_last_to_end_ends_them(spans: list[tuple[int, int]]) -> None:
    for ordered in (spans, spans[::-1]):
        pauses = [{"tenant": "acme", "from": start, "until": end} for start, end in ordered]
        found = await run(tenant("acme", {"burst": 1}), pauses=pauses)
        assert found.entries[0].wait_max_s == 6.0, ordered


async def test_what_does_not_start_in_time_expires() -> None:
    found = await run(tenant("acme", {"burst": 5}, expires=2.5))
    (acme,) = found.entries
    assert (acme.done, acme.expired, acme.waiting, found.expired) == (3, 2, 0, 2)
    assert (acme.wait_p50_s, acme.wait_max_s) == (2.0, 2.5)
    (late,) = (await run(tenant("late", {"regular": 3}, 0.5, expires=0.001))).entries
    assert late.expired == late.sent - late.done - late.running > 0


async def test_a_bounded_backlog_refuses_what_would_wait_beyond_it() -> None:
    bounded = {**tenant("acme", {"burst": 7}), "backlog": 3}
    found = named(await run([bounded, tenant("beta", {"burst": 1})], workers={"concurrency": 2}))
    assert (found["acme"].sent, found["acme"].refused, found["acme"].done, found["beta"].done) == (7, 4, 3, 1)


async def test_a_rate_spaces_its_tenant_out_and_leaves_the_others_be() -> None:
    rated = {**tenant("rated", {"burst": 9}, 0.1), "rate": {"n": 2, "per": 4, "burst": 3}}
    found = named(
        await run(
            [rated, tenant("free", {"burst": 40}, 0.1)], workers={"concurrency": 2}, limits={"tenant": None}
        )
    )
    # three at once, then one each two seconds: at 2, 4, 6 and 8
    assert (found["rated"].done, found["rated"].waiting, found["free"].done) == (7, 2, 40)
    shared = {"model": {"key": "model", "rates": {"large": {"n": 1, "per": 1}}}}
    both = [tenant(name, {"burst": 20}, 0.1, metadata={"model": "large"}) for name in ("a", "b")]
    shares = named(await run(both, workers={"concurrency": 2}, limits=shared))
    assert shares["a"].done + shares["b"].done == 10
    assert abs(shares["a"].done - shares["b"].done) <= 2  # the bound of two tenants whose messages cost 1


async def test_a_guarantee_goes_first_and_the_rest_is_shared() -> None:
    guaranteed = {**tenant("gold", {"burst": 9, "from": 1.5}), "guaranteed": 2}
    others = [tenant(name, {"burst": 30}) for name in "abc"]
    found = await run([guaranteed, *others], workers={"concurrency": 3}, limits={"tenant": None})
    assert named(found)["gold"].wait_max_s <= 4.5  # two at a time from second 2 on, the ninth by second 6
    assert sum(share.done + share.running for share in found.entries) == 30
