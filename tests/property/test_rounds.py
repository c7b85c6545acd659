"""The scheduler "drr": no two that both have work differ by more than a round and the largest message of each make."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairqueue import NewMessage
from tests.property.conftest import Stage
from tests.property.meter import Meter, largest_costs, scaled
from tests.property.test_bound import TENANTS, backlogs


@given(
    backlogs(),
    backlogs(),
    st.dictionaries(st.sampled_from(TENANTS), st.sampled_from([0.1, 0.5, 3, 20])),
    st.lists(st.integers(1, 8), min_size=10, max_size=40),
)
@settings(max_examples=25)
def test_between_two_with_work_whatever_comes_and_whatever_they_weigh(
    stage: Stage,
    first: list[NewMessage[float]],
    second: list[NewMessage[float]],
    weights: dict[str, float],
    claims: list[int],
) -> None:
    async def play() -> None:
        async with stage.opened(scheduler="drr") as queue:
            for tenant, weight in weights.items():
                await queue.tenants.set_weight(tenant, weight)
            left = dict.fromkeys(TENANTS, 0)
            largest = scaled(dict.fromkeys(TENANTS, 0.0) | largest_costs([*first, *second]), weights)
            meter = Meter({tenant: cost + 1 for tenant, cost in largest.items()})  # a quantum each

            async def arrive(batch: list[NewMessage[Any]]) -> None:
                await queue.enqueue_many(batch)
                for message in batch:
                    left[message.tenant] += 1

            await arrive(first)
            for number, n in enumerate(claims):
                if number == len(claims) // 2:
                    await arrive(second)
                leases = await queue.claim(n)
                for lease in leases:
                    tenant = lease.message.tenant
                    competing = {one for one in TENANTS if left[one]}
                    meter.served(scaled({tenant: lease.message.cost}, weights), competing)
                    left[tenant] -= 1
                await queue.complete_many(leases)

    stage.run(play)
