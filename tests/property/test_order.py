"""The claim order is the reference scheduler's, exactly, for any costs, lanes, arrivals and batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairqueue import FairQueue, Limit, NewMessage
from fairqueue.fairness import FairScheduler
from tests.property.conftest import Stage


@dataclass(frozen=True)
class Arrive:
    tenant: str
    queue: str
    costs: tuple[float, ...]


@dataclass(frozen=True)
class Claim:
    n: int


COSTS = st.sampled_from([0.001, 0.1, 0.3, 0.5, 1, 1, 1, 2, 3.7, 10, 1000]) | st.floats(0.001, 1000)
ARRIVALS = st.builds(
    Arrive,
    st.sampled_from("ABCDE"),
    st.sampled_from(["p", "q", "r"]),
    st.lists(COSTS, min_size=1, max_size=6).map(tuple),
)
CLAIMS = st.builds(Claim, st.integers(1, 12))
STEPS = st.lists(ARRIVALS | CLAIMS, min_size=1, max_size=60)


async def played(queue: FairQueue[Any], steps: list[Arrive | Claim], settle_each: bool) -> None:
    """Both get the same steps; each claim must give what the scheduler hands out, in its order."""
    scheduler: FairScheduler[int] = FairScheduler()
    number = 0
    for step in [*steps, Claim(1000)]:
        if isinstance(step, Arrive):
            batch = []
            for cost in step.costs:
                number += 1
                batch.append(NewMessage(number, tenant=step.tenant, queue=step.queue, cost=cost))
                scheduler.enqueue(step.tenant, step.queue, cost, number)
            await queue.enqueue_many(batch)
        else:
            leases = await queue.claim(step.n)
            expected = [message for _ in range(step.n) if (message := scheduler.next()) is not None]
            assert [lease.message.payload for lease in leases] == expected
            if settle_each:
                await queue.complete_many(leases)


@given(STEPS, st.booleans())
@settings(max_examples=60)
@example(
    [Arrive("A", "p", (1, 1, 1)), Claim(1), Arrive("B", "p", (5,)), Claim(2), Arrive("B", "p", (5,))], True
)
def test_without_limits_the_order_is_exactly_the_scheduler_s(
    stage: Stage, steps: list[Arrive | Claim], settle_each: bool
) -> None:
    async def play() -> None:
        async with stage.opened() as queue:
            await played(queue, steps, settle_each)

    stage.run(play)


@given(STEPS)
@settings(max_examples=15)
def test_limits_with_room_leave_the_order_as_it_is(stage: Stage, steps: list[Arrive | Claim]) -> None:
    async def play() -> None:
        limits = [
            Limit("tenant", default=10_000),
            Limit("all", key=lambda _: "all"),
            Limit("queue", 10_000, lambda m: m.queue),
        ]
        async with stage.opened(limits=limits) as queue:
            await played(queue, steps, settle_each=False)

    stage.run(play)
