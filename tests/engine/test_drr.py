"""The "drr" scheduler: textbook deficit round robin between tenants, against the same in plain Python; and shares by each."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairqueue import ConfigurationError, FairQueue, Lease, Limit, NewMessage, SyncFairQueue
from tests.conftest import MakeQueue
from tests.engine.shares import Served, serve
from tests.engine.test_weights import backlog, weigh
from tests.engine.tools import found, raw


@dataclass
class RoundRobin:
    """Shreedhar and Varghese: a list of who has work; each turn a quantum more; the rest is kept, and lost when all is done."""

    quantum: float = 1.0
    weights: dict[str, float] = field(default_factory=dict)
    queues: dict[str, deque[float]] = field(default_factory=dict)
    active: deque[str] = field(default_factory=deque)
    deficits: dict[str, float] = field(default_factory=dict)

    def enqueue(self, tenant: str, cost: float) -> None:
        if not self.queues.setdefault(tenant, deque()):
            self.active.append(tenant)
            self.deficits[tenant] = 0
        self.queues[tenant].append(cost)

    def serve(self, count: int) -> Served:
        served: Served = []
        turn = ""
        while self.active and len(served) < count:
            tenant = self.active[0]
            if turn != tenant:
                self.deficits[tenant] += self.quantum * self.weights.get(tenant, 1)
            turn = tenant
            queue = self.queues[tenant]
            while queue and queue[0] <= self.deficits[tenant] + 1e-9 and len(served) < count:
                self.deficits[tenant] -= queue[0]
                served.append((tenant, queue.popleft()))
            if len(served) == count:
                break
            self.active.popleft()
            turn = ""
            if queue:
                self.active.append(tenant)
        return served


async def test_a_quantum_of_five_serves_five_in_a_row(make_queue: MakeQueue) -> None:
    queue = await make_queue(scheduler="drr", quantum=5)
    await weigh(queue, b=2)
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 40))
    served = "".join(tenant for tenant, _ in await serve(queue, 45))
    assert served == ("a" * 5 + "b" * 10) * 3


def test_the_sync_client_declares_a_quantum_too(namespace: str, server: str) -> None:
    with SyncFairQueue(server, namespace, scheduler="drr", quantum=5) as queue:
        for tenant in "ab":
            queue.enqueue_many([NewMessage(n, tenant=tenant) for n in range(10)])
        leases = queue.claim(20)
        assert [lease.message.tenant for lease in leases] == list("aaaaabbbbbaaaaabbbbb")
        queue.complete_many(leases)


async def test_the_order_is_the_textbook_s_by_any_quantum(make_queue: MakeQueue) -> None:
    rng = random.Random(4)
    queue, book = await make_queue(scheduler="drr", quantum=2.5), RoundRobin(quantum=2.5, weights={"b": 3})
    await weigh(queue, b=3)
    for tenant in "cab":
        costs = [rng.choice([0.5, 1, 2]) for _ in range(60)]
        await queue.enqueue_many(NewMessage(cost, tenant=tenant, cost=cost) for cost in costs)
        for cost in costs:
            book.enqueue(tenant, cost)
    assert await serve(queue, 120, 7) == book.serve(120)


async def test_a_quantum_that_another_client_declared_holds_for_all(make_queue: MakeQueue) -> None:
    queue = await make_queue(scheduler="drr")
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 20))
    assert "".join(tenant for tenant, _ in await serve(queue, 4)) == "abab"
    await make_queue(quantum=3)
    later = await make_queue()  # declares nothing
    served = "".join(tenant for tenant, _ in await serve(later, 20))
    assert "aaabbbaaabbb" in served


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"quantum": value}, "quantum to be a number") for value in (0, -1, 1001, float("nan"), True, "5")),
        ({"scheduler": "fair", "quantum": 5}, "expected no quantum"),
    ],
)
def test_what_is_no_quantum_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        FairQueue(**options)


@pytest.mark.parametrize("batch", [1, 7, 100])
async def test_the_order_is_the_textbook_s(make_queue: MakeQueue, batch: int) -> None:
    """All have a backlog from the start, no message costs more than a quantum: message by message the same."""
    rng = random.Random(batch)
    queue, book = await make_queue(scheduler="drr"), RoundRobin(weights={"b": 3, "d": 2})
    await weigh(queue, b=3, d=2)
    for tenant in "cabd":  # in the order in which they come
        costs = [rng.choice([0.1, 0.25, 0.5, 1]) for _ in range(60)]
        await queue.enqueue_many(NewMessage(cost, tenant=tenant, cost=cost) for cost in costs)
        for cost in costs:
            book.enqueue(tenant, cost)
    assert await serve(queue, 150, batch) == book.serve(150)


async def test_shares_are_as_the_weights_where_costs_differ(make_queue: MakeQueue) -> None:
    """Costs of many quanta too: each is served for its weight, up to what a round and its largest messages make."""
    rng = random.Random(1)
    queue = await make_queue(scheduler="drr")
    weights = {"a": 1.0, "b": 2.0, "c": 4.0}
    await weigh(queue, **weights)
    for tenant in weights:
        await queue.enqueue_many(
            NewMessage(n, tenant=tenant, cost=rng.choice([0.01, 0.5, 3, 12])) for n in range(400)
        )
    got: Counter[str] = Counter()
    for tenant, cost in await serve(queue, 500, 10):
        got[tenant] += cost  # type: ignore[assignment]
    per_weight = [got[tenant] / weight for tenant, weight in weights.items()]
    assert max(per_weight) - min(per_weight) <= 2 * 12 + 2


@pytest.mark.parametrize(
    ("scheduler", "shares"),
    [
        ("fair", {"few": 0.5, "many": 0.5}),
        ("drr", {"few": 0.5, "many": 0.5}),
        ("fifo", {"few": 0.1, "many": 0.9}),
    ],
)
async def test_shares_by_each_scheduler(
    make_queue: MakeQueue, scheduler: str, shares: dict[str, float]
) -> None:
    """Of 900 messages of one tenant and 100 of another one, which came evenly mixed."""
    queue = await make_queue(scheduler=scheduler)
    await queue.enqueue_many(
        NewMessage(n, tenant="few" if n % 10 == 9 else "many", queue=f"q{n % 7}") for n in range(1000)
    )
    got = Counter(tenant for tenant, _ in await serve(queue, 160, 20))
    for tenant, share in shares.items():
        assert got[tenant] / 160 == pytest.approx(share, abs=0.02)


async def test_what_is_left_is_lost_with_the_backlog(make_queue: MakeQueue) -> None:
    queue = await make_queue(scheduler="drr")
    await queue.enqueue_many(backlog("b", 30, cost=0.5))
    await queue.enqueue("uses half its turn", tenant="a", cost=0.5)
    while (await serve(queue, 1))[0][0] != "a":
        pass
    assert await raw(queue, "ZSCORE", "deficits", "default", args=("a",)) is None
    await queue.enqueue_many(backlog("a", 3, cost=1))
    served = [tenant for tenant, _ in await serve(queue, 9)]
    assert served.count("a") == 3
    assert "aa" not in "".join(served)


async def test_a_message_of_many_quanta_waits_for_its_round_and_costs_no_more_commands(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(scheduler="drr")
    await queue.enqueue_many(backlog("large", 2, cost=1000))
    await queue.enqueue_many(backlog("small", 1200, cost=1))
    served = [tenant for tenant, _ in await serve(queue, 1150, 50)]
    assert 990 <= served.index("large") <= 1010
    assert served.count("large") == 1


async def test_a_weight_acts_on_who_waits_for_a_late_round(make_queue: MakeQueue) -> None:
    queue = await make_queue(scheduler="drr")
    await queue.enqueue_many(backlog("large", 3, cost=100))
    await queue.enqueue_many(backlog("small", 300))
    assert {tenant for tenant, _ in await serve(queue, 10)} == {"small"}
    await weigh(queue, large=100)
    served = [tenant for tenant, _ in await serve(queue, 8)]
    assert served.count("large") == 3


async def test_who_waits_at_a_full_group_shares_by_weight_too(make_queue: MakeQueue) -> None:
    queue = await make_queue(scheduler="drr", limits=[Limit("org", default=1, key="org")])
    await weigh(queue, a=3)
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 100, org="o"))
    await serve(queue, 4)
    got = Counter(tenant for tenant, _ in await serve(queue, 80))
    assert abs(got["a"] - 60) <= 2


@pytest.mark.parametrize(
    ("before", "after"), [("fair", "drr"), ("drr", "fair"), ("drr", "fifo"), ("fifo", "drr")]
)
async def test_the_scheduler_changes_on_a_backlog(make_queue: MakeQueue, before: str, after: str) -> None:
    queue = await make_queue(scheduler=before)
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 60, cost=2))
    await serve(queue, 30)
    other = await make_queue(scheduler=after)
    assert await raw(other, "EXISTS", "deficits", "default") == 0
    served = [tenant for tenant, _ in await serve(other, 60)]
    if after != "fifo":
        assert abs(served.count("a") - served.count("b")) <= 2
    assert len(await serve(other, 100)) == 30


@pytest.mark.parametrize(
    ("before", "after"), [("drr", "fair"), ("fifo", "fair"), ("fifo", "drr"), ("fair", "drr")]
)
async def test_who_comes_to_a_full_group_is_level_after_a_change(
    make_queue: MakeQueue, before: str, after: str
) -> None:
    """Though a slot, and more of them, is promised to somebody by the old scheduler, who was served there for long."""
    limits = [Limit("org", default=4, key="org")]
    queue = await make_queue(scheduler=before, limits=limits)
    held: list[Lease[Any]] = []

    async def send(tenant: str, count: int, cost: float = 1) -> None:
        await queue.enqueue_many(
            [NewMessage(n, tenant=tenant, cost=cost, metadata={"org": "o"}) for n in range(count)]
        )

    async def one_by_one(client: FairQueue[Any], count: int) -> list[str]:
        served: list[str] = []
        for _ in range(count):
            came = await client.claim(1)
            served += [lease.message.tenant for lease in came]
            held.extend(came)
            if len(held) >= 4:
                await held.pop(0).complete()
        return served

    await send("a", 200, cost=4)
    assert await one_by_one(queue, 100) == ["a"] * 100
    await queue.complete_many([held.pop(), held.pop()])  # two more are promised
    await send("b", 60)
    await send("c", 60)
    other = await make_queue(scheduler=after)
    served = await one_by_one(other, 60)
    assert min(served[:20].count(tenant) for tenant in "bc") >= 5, served
    assert (await other.audit()).ok


@pytest.mark.parametrize("value", ["inf", "-inf", "1e300"])
async def test_a_damaged_deficit_stops_nobody(make_queue: MakeQueue, value: str) -> None:
    queue = await make_queue(scheduler="drr")
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 20))
    await raw(queue, "ZADD", "deficits", "default", args=(value, "a"))
    served = [tenant for tenant, _ in await serve(queue, 20)]
    assert abs(served.count("a") - served.count("b")) <= 2


async def test_deficits_of_another_type_stop_nobody(make_queue: MakeQueue) -> None:
    queue = await make_queue(scheduler="drr")
    for tenant in "ab":
        await queue.enqueue_many(backlog(tenant, 20))
    await raw(queue, "SET", "deficits", "default", args=("rubbish",))
    assert len(await serve(queue, 40)) == 40


@pytest.mark.parametrize("scheduler", ["fair", "fifo", "drr"])
async def test_deficits_of_another_type_are_named(make_queue: MakeQueue, scheduler: str) -> None:
    """While there is work, under each scheduler."""
    queue = await make_queue(scheduler=scheduler)
    await queue.enqueue_many(backlog("a", 2))
    await raw(queue, "SET", "deficits", "default", args=("rubbish",))
    assert found(await queue.audit()) == [("MOVES", "default")]
    await queue.audit(fix=True)
    assert found(await queue.audit()) == []
    assert len(await serve(queue, 2)) == 2


def test_an_unknown_scheduler_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="expected scheduler to be 'fair' or 'drr' or 'fifo', got 'ddr'"
    ):
        FairQueue(scheduler="ddr")  # type: ignore[arg-type]
