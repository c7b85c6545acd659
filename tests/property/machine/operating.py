"""Operators: time and maintenance, limits, rates, pauses, dead letters, what is cancelled, a differing declaration."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from fairqueue import ConfigurationError, MessageNotFoundError
from fairqueue.testing import faults
from tests.property.machine.base import (
    DECLARATIONS,
    GROUPS,
    POOLS,
    QUEUES,
    TENANTS,
    Play,
    clients,
    options,
    which,
)
from tests.property.model import Declared, Group, Selectors
from tests.property.rate_oracle import Bucket, Rate

groups = st.sampled_from(GROUPS)
rated = st.sampled_from([("tenant", "A"), ("org", "x")])  # limits that all declarations have
selectors = st.sampled_from([
    *((tenant, None, None) for tenant in TENANTS), *((None, queue, None) for queue in QUEUES),
    *((None, None, pool) for pool in POOLS), ("A", "p", None), ("B", None, "fast"), (None, "q", "default"), ("A", "q", "fast"),
])  # fmt: skip


def allowed(yes: bool) -> AbstractContextManager[Any]:
    return (
        nullcontext() if yes else pytest.raises(ConfigurationError, match="the guarantees of those who use")
    )


class Operating(Play):
    """reclaim, reconcile, audit(fix=True), limits.set, reset and set_rate, guarantees, weights, redrive and purge, declarations."""

    @rule(seconds=st.sampled_from([1, 5, 29, 30, 31]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model.now += seconds

    @rule()
    def reclaim(self) -> None:
        report = self.run(self.queue.reclaim)
        assert (set(report.reclaimed), set(report.dead)) == self.model.reclaim()

    @rule()
    def reconcile(self) -> None:
        report = self.run(self.queue.reconcile)
        freed = {(healed.group, (healed.tenant, healed.id)) for healed in report.freed}
        assert freed == self.model.reconcile()
        assert (report.restored, report.rebuilt) == ([], [])
        assert report.overbooked.keys() == self.model.overbooked()

    @rule()
    def fix(self) -> None:
        """Leaks are all there is to find, and too many guarantees; then what has expired is taken back on the way."""
        report = self.run(lambda: self.queue.audit(fix=True))
        assert report.fixed
        if self.model.ghosts() or self.model.overbooked():
            self.model.reclaim()
            self.model.reconcile()

    # --- dead letters ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.in_state("dead"))
    @rule(index=which, several=st.integers(1, 3), client=clients)
    def redrive(self, index: int, several: int, client: int) -> None:
        dead, queue = self.model.in_state("dead"), self.queues[client]
        tenant = dead[index % len(dead)].tenant
        ids = [message.id for message in self.model.letters(tenant)][:several]
        redriven = self.run(lambda: queue.dead_letters.redrive(tenant, *reversed(ids)))
        assert redriven == self.model.redrive([(tenant, id_) for id_ in ids])

    @rule(tenant=st.sampled_from(TENANTS))
    def redrive_all(self, tenant: str) -> None:
        letters = [message.mid for message in self.model.letters(tenant)]
        assert self.run(lambda: self.queue.dead_letters.redrive_all(tenant)) == self.model.redrive(letters)

    @rule(tenant=st.sampled_from(TENANTS), one=st.booleans())
    def purge(self, tenant: str, one: bool) -> None:
        letters = [message.mid for message in self.model.letters(tenant)]
        if one and not letters:
            with pytest.raises(MessageNotFoundError):
                self.run(lambda: self.queue.dead_letters.purge(tenant, "nothing"))
            return
        chosen = letters[:1] if one else letters
        id_ = chosen[0][1] if one else None
        assert self.run(lambda: self.queue.dead_letters.purge(tenant, id_)) == self.model.purge(chosen)

    # --- pauses, and what an operator ends ---------------------------------------------------------------------

    @rule(given=selectors, client=clients)
    def pause(self, given: Selectors, client: int) -> None:
        queue = self.queues[client]
        assert self.run(lambda: queue.pause(*given, by="ops")) == (given not in self.model.pauses)
        self.model.pauses.add(given)

    @rule(given=selectors, index=which, known=st.booleans())
    def resume(self, given: Selectors, index: int, known: bool) -> None:
        standing = sorted(self.model.pauses, key=str)
        chosen = standing[index % len(standing)] if standing and known else given
        assert self.run(lambda: self.queue.resume(*chosen)) == (chosen in self.model.pauses)
        self.model.pauses.discard(chosen)

    @rule(client=clients)
    def list_pauses(self, client: int) -> None:
        queue = self.queues[client]

        async def look() -> set[Selectors]:
            return {(pause.tenant, pause.queue, pause.pool) async for pause in queue.pauses()}

        assert self.run(look) == self.model.pauses

    @precondition(lambda self: self.model.messages)
    @rule(index=which, client=clients)
    def cancel(self, index: int, client: int) -> None:
        mids, queue = sorted(self.model.messages), self.queues[client]
        mid = mids[index % len(mids)]
        assert self.run(lambda: queue.cancel(*mid)) == self.model.cancel(mid)
        assert self.run(lambda: queue.cancel(mid[0], "nothing")) == "not_found"

    @rule(tenant=st.sampled_from(TENANTS), of=st.sampled_from([None, *QUEUES]), client=clients)
    def purge_what_waits(self, tenant: str, of: str | None, client: int) -> None:
        queue, waiting = self.queues[client], self.model.waiting(tenant, of)
        assert self.run(lambda: queue.purge(tenant, of)) == self.model.purge(waiting)

    # --- limits and leaks --------------------------------------------------------------------------------------

    @rule(group=groups, limit=st.sampled_from([0, 1, 1, 2, 3, None]), client=clients)
    def set_limit(self, group: Group, limit: int | None, client: int) -> None:
        queue = self.queues[client]
        if group[0] not in self.model.declared.defaults:
            with pytest.raises(ConfigurationError):
                self.run(lambda: queue.limits.set(*group, limit))
            return
        with allowed(self.model.set_limit(group, limit)):
            self.run(lambda: queue.limits.set(*group, limit))

    @rule(group=groups)
    def reset_limit(self, group: Group) -> None:
        if group[0] in self.model.declared.defaults:
            with allowed(self.model.reset_limit(group)):
                self.run(lambda: self.queue.limits.reset(*group))

    @rule(
        tenant=st.sampled_from(TENANTS),
        limit=st.sampled_from([2, 3, None]),
        slots=st.integers(1, 2),
        client=clients,
    )
    def guarantee(self, tenant: str, limit: int | None, slots: int, client: int) -> None:
        """More than a shared group has is refused, exactly then, and changes nothing."""
        queue = self.queues[client]
        with allowed(self.model.guarantee(tenant, limit, slots)):
            self.run(lambda: queue.limits.set("tenant", tenant, limit, guaranteed=slots))

    @rule(tenant=st.sampled_from(TENANTS), weight=st.sampled_from([0.01, 0.5, 1, 1, 3, 100]))
    def set_weight(self, tenant: str, weight: float) -> None:
        self.run(lambda: self.queue.tenants.set_weight(tenant, weight))
        assert self.run(lambda: self.queue.tenants.get(tenant)).weight == weight

    @rule(
        group=rated, rate=st.sampled_from([None, (1, 5000, 2), (3, 9000, 1), (7, 10_000, 3)]), client=clients
    )
    def set_rate(self, group: Group, rate: Rate | None, client: int) -> None:
        queue, known = self.queues[client], self.model.rates.get(group)
        if rate is None:
            self.model.rates.pop(group, None)
            self.run(lambda: queue.limits.set_rate(*group, None))
            return
        if known:
            known.change(rate, self.model.now_ms)
        else:
            self.model.rates[group] = Bucket(rate)
        n, per, burst = rate
        self.run(lambda: queue.limits.set_rate(*group, n, per=per / 1000, burst=burst))

    @rule(declared=st.sampled_from(DECLARATIONS))
    def declare(self, declared: Declared) -> None:
        """Another client comes with other defaults and another retry policy: from now on they hold for all."""

        async def connected() -> None:
            async with self.another(**options(declared)):
                pass

        self.run(connected)
        if declared.defaults != self.model.declared.defaults:
            self.model.reconcile()  # each group is looked at for who fits now, and leaks are met on the way
        self.model.declared = declared

    @rule(group=groups, index=which, own=st.booleans())
    def leak(self, group: Group, index: int, own: bool) -> None:
        """A slot of nobody, or the leftover of a message that is not in flight."""
        resting = [m for m in self.model.messages.values() if m.state != "in_flight" and group in m.groups]
        mid = resting[index % len(resting)].mid if own and resting else ("ghost", f"g{index % 3}")
        self.model.leak(group, mid)
        self.run(lambda: faults.leak_slot(self.queue, *group, mid[1], tenant=mid[0]))
