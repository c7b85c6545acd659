"""Messages that need any number of shared groups: no limit is exceeded, no slot idle that could be used, all end."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairqueue import Lease, Limit, NewMessage
from fairqueue.testing import leftover_keys
from tests.property.conftest import Stage

TENANTS, SHARED = "ABCD", ["org", "model", "region"]
Needs = tuple[str, ...]

limits = st.fixed_dictionaries({name: st.integers(1, 4) for name in [*SHARED, "tenant"]})
kinds = st.tuples(st.sampled_from(TENANTS), st.sets(st.sampled_from(SHARED)).map(lambda s: tuple(sorted(s))))
backlogs = st.lists(
    st.tuples(kinds, st.integers(1, 2), st.sampled_from([0.5, 1, 5])), min_size=5, max_size=60
)


def filled(running: list[Lease[Any]], most: dict[str, int]) -> set[tuple[str, str]]:
    """Groups that are full; none holds more than it may."""
    held = Counter(chain.from_iterable(lease.message.groups for lease in running))
    assert all(count <= most[name] for (name, _), count in held.items()), held
    return {group for group, count in held.items() if count == most[group[0]]}


@given(backlogs, limits, st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=5, max_size=40),
       st.integers(0, 2**32))  # fmt: skip
@settings(max_examples=40)
def test_each_message_that_waits_needs_a_group_that_is_full(
    stage: Stage,
    backlog: list[tuple[tuple[str, Needs], int, float]],
    limits: dict[str, int],
    turns: list[tuple[int, int]],
    seed: int,
) -> None:
    rng = random.Random(seed)

    async def play() -> None:
        declared = [Limit(name, most, *([] if name == "tenant" else [name])) for name, most in limits.items()]
        rng.shuffle(declared)
        async with stage.opened(limits=declared) as queue:
            waiting = {
                str(n): {("tenant", tenant), *((name, "x") for name in needs)}
                for n, ((tenant, needs), _, _) in enumerate(backlog)
            }
            await queue.enqueue_many(
                NewMessage(
                    n, tenant=tenant, id=str(n), queue=f"q{q}", cost=cost, metadata=dict.fromkeys(needs, "x")
                )
                for n, ((tenant, needs), q, cost) in enumerate(backlog)
            )
            running: list[Lease[Any]] = []
            for n, ends in turns:
                while leases := await queue.claim(n):
                    running += leases
                    for lease in leases:
                        del waiting[lease.message.id]
                    filled(running, limits)
                full = filled(running, limits)
                idle = {id_: groups for id_, groups in waiting.items() if not groups & full}
                assert not idle, f"could run, but nobody was given them: {idle}"
                rng.shuffle(running)
                ended, running = running[:ends], running[ends:]
                await queue.complete_many(ended)
                assert (await queue.audit()).findings == []
            while running or waiting:
                await queue.complete_many(running)
                running = await queue.claim(5)
                for lease in running:
                    del waiting[lease.message.id]
                assert running or not waiting, f"nobody is given {waiting}"
            assert await leftover_keys(queue) == []

    stage.run(play)
