"""Any sequence of operations: the engine does what the model says, and the audit finds nothing after any step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fairqueue import LeaseLostError, Limit, NewMessage, RetryPolicy
from fairqueue.testing import ManualClock, assert_whole, drain, faults
from tests.property.conftest import Stage
from tests.property.model import MAX_ATTEMPTS, MAX_CRASHES, RETRY_DELAY, Held, Model

TENANTS, QUEUES, POOLS, ORGS = ["A", "B", "C"], ["p", "q"], ["default", "fast"], ["x", "y"]
ALL_POOLS = ("default", "fast")
SETTLES = ["complete", "fail", "release", "dead_letter"]
ARGUMENTS: dict[str, tuple[Any, ...]] = {"fail": ("no",), "dead_letter": ("enough",)}
GROUPS = [("tenant", tenant) for tenant in TENANTS] + [("org", org) for org in ORGS] + [("model", "m")]
LIMITS = [
    Limit("tenant", default=2),
    Limit("org", default=3, key="org"),
    Limit("model", default=2, key="model"),
]

pools = st.sampled_from([("default",), ("fast",), ALL_POOLS, ("fast", "default")])
which = st.integers(0, 10_000)


class Machine(RuleBasedStateMachine):
    """The operations. Every rule does the same to both sides and compares what comes back."""

    stage: Stage

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = Model(defaults={limit.name: limit.default for limit in LIMITS})
        self.queue = self.stage.queue(
            clock=self.clock,
            limits=LIMITS,
            retry=RetryPolicy.fixed(RETRY_DELAY, max_attempts=MAX_ATTEMPTS, max_crashes=MAX_CRASHES),
        )
        self.number = 0

    @initialize()
    def connect(self) -> None:
        self.stage.run(self.queue.connect)

    # --- producing and consuming -------------------------------------------------------------------------------

    @rule(
        tenant=st.sampled_from(TENANTS),
        queue=st.sampled_from(QUEUES),
        pool=st.sampled_from([*POOLS, "default"]),
        org=st.sampled_from([None, *ORGS]),
        model=st.sampled_from([None, None, "m"]),
        priority=st.sampled_from([0, 0, 0, 5]),
        delay=st.sampled_from([0, 0, 0, 3]),
        count=st.integers(1, 4),
        known=st.booleans(),
        index=which,
    )
    def enqueue(self, tenant: str, queue: str, pool: str, org: str | None, model: str | None, priority: int,
                delay: float, count: int, known: bool, index: int) -> None:  # fmt: skip
        messages, expected = [], []
        for _ in range(count):
            self.number += 1
            id_ = f"m{self.number}"
            if known and self.model.messages:  # an id that may be there already
                tenant, id_ = sorted(self.model.messages)[index % len(self.model.messages)]
            shared = {name: group for name, group in (("org", org), ("model", model)) if group}
            messages.append(
                NewMessage(id_, tenant=tenant, id=id_, queue=queue, pool=pool, priority=priority, delay=delay or None,
                           metadata=shared)
            )  # fmt: skip
            expected.append(
                self.model.enqueue(tenant, id_, queue, pool, tuple(shared.items()), priority, delay)
            )
        sent = self.stage.run(lambda: self.queue.enqueue_many(messages))
        assert [one.created for one in sent] == expected

    @rule(n=st.sampled_from([1, 1, 2, 3, 10]), pools=pools)
    def claim(self, n: int, pools: tuple[str, ...]) -> None:
        leases = self.stage.run(lambda: self.queue.claim(n, pools=pools))
        self.model.promote()
        assert len(leases) <= n
        for lease in leases:
            self.model.take(lease, pools)
        if not leases:
            left = self.model.claimable(pools)
            assert not left, f"nothing was claimed although {[message.mid for message in left]} could be"

    @precondition(lambda self: self.model.deliveries)
    @rule(index=which, action=st.sampled_from(SETTLES))
    def settle(self, index: int, action: str) -> None:
        held = self.model.deliveries[-1 - index % len(self.model.deliveries)]
        expected = self.model.settle(held, action)
        assert self.stage.run(lambda: _outcome(held, action)) == expected

    @precondition(lambda self: self.model.deliveries)
    @rule(count=st.integers(1, 6), action=st.sampled_from(["complete", "fail", "release"]))
    def settle_many(self, count: int, action: str) -> None:
        chosen = self.model.deliveries[-count:]
        expected = [self.model.settle(held, action) for held in chosen]
        call = getattr(self.queue, f"{action}_many")
        assert self.stage.run(lambda: call([held.lease for held in chosen])) == expected

    @precondition(lambda self: self.model.deliveries)
    @rule(index=which)
    def extend(self, index: int) -> None:
        held = self.model.deliveries[-1 - index % len(self.model.deliveries)]
        expected = "extended" if self.model.extend(held) and not held.lost else "lost"
        held.lost = held.lost or expected == "lost"
        assert self.stage.run(lambda: self.queue.extend_many([held.lease])) == [expected]

    # --- time and maintenance ----------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 5, 29, 30, 31]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model.now += seconds

    @rule()
    def reclaim(self) -> None:
        report = self.stage.run(self.queue.reclaim)
        assert (set(report.reclaimed), set(report.dead)) == self.model.reclaim()

    @rule()
    def reconcile(self) -> None:
        report = self.stage.run(self.queue.reconcile)
        assert {
            (healed.group, (healed.tenant, healed.id)) for healed in report.freed
        } == self.model.reconcile()
        assert (report.restored, report.rebuilt) == ([], [])

    @precondition(lambda self: self.model.in_state("dead"))
    @rule(index=which, all_of_them=st.booleans())
    def redrive(self, index: int, all_of_them: bool) -> None:
        dead = self.model.in_state("dead")
        tenant, id_ = dead[index % len(dead)].mid
        if all_of_them:
            expected = self.model.redrive([message.mid for message in dead if message.tenant == tenant])
            assert self.stage.run(lambda: self.queue.dead_letters.redrive_all(tenant)) == expected
        else:
            assert self.stage.run(lambda: self.queue.dead_letters.redrive(tenant, id_)) == self.model.redrive(
                [(tenant, id_)]
            )

    @precondition(lambda self: self.model.in_state("dead"))
    @rule(index=which, all_of_them=st.booleans())
    def purge(self, index: int, all_of_them: bool) -> None:
        dead = self.model.in_state("dead")
        tenant, id_ = dead[index % len(dead)].mid
        gone = (
            [message.mid for message in dead if message.tenant == tenant] if all_of_them else [(tenant, id_)]
        )
        for mid in gone:
            del self.model.messages[mid]
        chosen = None if all_of_them else id_
        assert self.stage.run(lambda: self.queue.dead_letters.purge(tenant, chosen)) == len(gone)

    # --- limits and leaks --------------------------------------------------------------------------------------

    @rule(group=st.sampled_from(GROUPS), limit=st.sampled_from([0, 1, 1, 2, 3, None]))
    def set_limit(self, group: tuple[str, str], limit: int | None) -> None:
        self.model.limits[group] = limit
        self.stage.run(lambda: self.queue.limits.set(*group, limit))

    @rule(group=st.sampled_from(GROUPS))
    def reset_limit(self, group: tuple[str, str]) -> None:
        self.model.limits.pop(group, None)
        self.stage.run(lambda: self.queue.limits.reset(*group))

    @rule(group=st.sampled_from(GROUPS), index=which, own=st.booleans())
    def leak(self, group: tuple[str, str], index: int, own: bool) -> None:
        """A slot of nobody, or the leftover of a message that is not in flight."""
        resting = [m for m in self.model.messages.values() if m.state != "in_flight" and group in m.groups]
        mid = resting[index % len(resting)].mid if own and resting else ("ghost", f"g{index % 3}")
        self.model.leak(group, mid)
        self.stage.run(lambda: faults.leak_slot(self.queue, *group, mid[1], tenant=mid[0]))

    # --- after every step --------------------------------------------------------------------------------------

    @invariant()
    def audited(self) -> None:
        ghosts = self.model.ghosts()
        expected = {("SLOTS", "/".join((*group, *mid))) for group, mid in ghosts}
        findings = self.stage.run(self.queue.audit).findings
        found = {(finding.check, finding.subject) for finding in findings}
        if ghosts and not self.model.messages:
            found = {one for one in found if one[0] != "CLEAN"}  # the leaks themselves are what is left
        assert found == expected, findings

    @invariant()
    def counted(self) -> None:
        stats = self.stage.run(self.queue.stats)
        expected = [len(self.model.in_state(state)) for state in ("ready", "delayed", "in_flight", "dead")]
        assert [stats.ready, stats.delayed, stats.in_flight, stats.dead] == expected

    def teardown(self) -> None:
        self.stage.run(self._end)

    async def _end(self) -> None:
        """Whatever happened: with the leaks healed and the limits open, everything drains and nothing is left."""
        try:
            await self.queue.reconcile()
            for group in GROUPS:
                await self.queue.limits.set(*group, None)
            for tenant in TENANTS:
                await self.queue.dead_letters.redrive_all(tenant)
            self.clock.advance(60)
            await self.queue.reclaim()
            for tenant in TENANTS:
                await self.queue.dead_letters.redrive_all(tenant)
            ran = await drain(self.queue, batch=10, pools=ALL_POOLS)
            assert {(message.tenant, message.id) for message in ran} == set(self.model.messages)
            await assert_whole(self.queue)
        finally:
            await self.queue.close()


async def _outcome(held: Held, action: str) -> str:
    try:
        outcome: str = await getattr(held.lease, action)(*ARGUMENTS.get(action, ()))
    except LeaseLostError:
        return "lost"
    return outcome


@pytest.mark.timeout(300)
def test_any_sequence_of_operations_agrees_with_the_model(stage: Stage) -> None:
    machine = type("StagedMachine", (Machine,), {"stage": stage})
    run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=40))
