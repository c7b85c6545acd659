"""Two clients of one namespace, a clock that can step back, and the model: what every rule works on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from fairqueue import FairQueue, Limit, RetryPolicy
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import ManualClock, assert_whole, drain
from tests.property.conftest import Stage
from tests.property.model import Declared, Held, Model

TENANTS, QUEUES, POOLS, ORGS = ["A", "B", "C"], ["p", "q"], ["default", "fast"], ["x", "y"]
ALL_POOLS = ("default", "fast")
GROUPS = [("tenant", tenant) for tenant in TENANTS] + [("org", org) for org in ORGS] + [("model", "m")]
DECLARATIONS = [
    Declared({"tenant": 2, "org": 3, "model": 2}, retry_delay=5, max_attempts=3, max_crashes=2),
    Declared({"tenant": 3, "org": 1, "model": None}, retry_delay=7, max_attempts=2, max_crashes=3),
    Declared(
        {"tenant": 1, "org": 3}, retry_delay=5, max_attempts=3, max_crashes=2
    ),  # messages keep their groups
]
VISIBILITY = 30.0

which = st.integers(0, 10_000)
clients = st.sampled_from([0, 0, 1])
pools = st.sampled_from([("default",), ("fast",), ALL_POOLS, ("fast", "default")])


class SteppingClock(ManualClock):
    """The server's clock, which somebody may set back."""

    def step_back(self, seconds: float) -> None:
        self._now -= timedelta(seconds=seconds)


def options(declared: Declared) -> dict[str, Any]:
    """Of a client that declares this."""
    keys = {name: None if name == "tenant" else name for name in declared.defaults}
    return {
        "limits": [Limit(name, default, keys[name]) for name, default in declared.defaults.items()],
        "retry": RetryPolicy.fixed(
            declared.retry_delay, max_attempts=declared.max_attempts, max_crashes=declared.max_crashes
        ),
    }


class Play(RuleBasedStateMachine):
    """Every rule does the same to the queue and to the model, and compares what comes back."""

    stage: Stage

    def __init__(self) -> None:
        super().__init__()
        self.clock = SteppingClock()
        self.model = Model(DECLARATIONS[0])
        first = self.stage.queue(clock=self.clock, **self.unhurried, **options(DECLARATIONS[0]))
        self.name = first.name
        self.queues = [first, self.another()]
        self.number = 0

    unhurried: dict[str, Any] = {"reclaim_interval": 0, "reconcile_interval": 0}  # noqa: RUF012 - a worker's, by itself

    def another(self, **declared: Any) -> FairQueue[Any]:
        """A client of the same namespace; it takes the stored settings unless it declares any."""
        return self.stage.queue(name=self.name, clock=self.clock, **self.unhurried, **declared)

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        return self.stage.run(work)

    @property
    def queue(self) -> FairQueue[Any]:
        return self.queues[0]

    def fresh_id(self) -> str:
        self.number += 1
        return f"m{self.number}"

    def delivery(self, index: int) -> Held:
        """Recent ones are the small numbers."""
        return self.model.deliveries[-1 - index % len(self.model.deliveries)]

    def queue_of(self, held: Held) -> FairQueue[Any]:
        return self.queues[held.client]

    def die(self, client: int) -> None:
        """``kill -9``: its connections end, nothing is given back, its leases are known to nobody."""
        self.run(self.queues[client]._engine.close)
        self.model.abandon(client)
        self.queues[client] = self.another()
        self.run(self.queues[client].connect)

    @initialize()
    def connect_both(self) -> None:
        for queue in self.queues:
            self.run(queue.connect)

    # --- after every step --------------------------------------------------------------------------------------

    @invariant()
    def audited(self) -> None:
        ghosts = self.model.ghosts()
        expected = {("SLOTS", "/".join((*group, *mid))) for group, mid in ghosts}
        expected |= {("SLOTS", "/".join(group)) for group in self.model.overbooked()}
        findings = self.run(self.queue.audit).findings
        found = {(finding.check, finding.subject) for finding in findings}
        if ghosts and not self.model.messages:
            found = {one for one in found if one[0] != "CLEAN"}  # the leaks themselves are what is left
        assert found == expected, findings

    @invariant()
    def counted(self) -> None:
        stats = self.run(self.queue.stats)
        expected = [len(self.model.in_state(state)) for state in ("ready", "delayed", "in_flight", "dead")]
        assert [stats.ready, stats.delayed, stats.in_flight, stats.dead] == expected
        if self.model.counted:
            totals = {name: stats.totals[name] for name in self.model.totals}
            assert totals == self.model.totals

    def teardown(self) -> None:
        self.run(self._end)

    async def _end(self) -> None:
        """Whatever happened: with the leaks healed and the limits open, everything drains and nothing is left."""
        try:
            await self.queue.reconcile()
            for given in self.model.pauses:
                await self.queue.resume(*given)
            for group in GROUPS:
                if group[0] in self.model.declared.defaults:
                    await self.queue.limits.set(*group, None)
            for group in self.model.rates:
                await self.queue.limits.set_rate(*group, None)
            for _ in range(2):
                self.clock.advance(1000)
                await promote(self.queue._engine)
                self.model.now += 1000
                self.model.expire()
                await self.queue.reclaim()
                for tenant in TENANTS:
                    await self.queue.dead_letters.redrive_all(tenant)
            await self._open_undeclared()
            ran = await drain(self.queue, batch=10, pools=ALL_POOLS)
            left = {mid for mid, message in self.model.messages.items() if not message.cancelled}
            assert {(message.tenant, message.id) for message in ran} == left
            await assert_whole(self.queue)
        finally:
            for queue in self.queues:
                await queue.close()

    async def _open_undeclared(self) -> None:
        """A limit of its own that a group was given outlives the declaration; only who declares it can lift it."""
        if "model" not in self.model.declared.defaults and ("model", "m") in self.model.limits:
            async with self.another(**options(DECLARATIONS[0])) as queue:
                await queue.limits.set("model", "m", None)
                for group in GROUPS:
                    await queue.limits.set(*group, None)
