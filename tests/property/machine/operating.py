"""Operators: time and maintenance, limits, dead letters, a differing declaration."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from fairqueue import ConfigurationError, MessageNotFoundError
from fairqueue.testing import faults
from tests.property.machine.base import DECLARATIONS, GROUPS, TENANTS, Play, clients, options, which
from tests.property.model import Declared, Group

groups = st.sampled_from(GROUPS)


class Operating(Play):
    """reclaim, reconcile, audit(fix=True), limits.set and reset, redrive and purge, declarations."""

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

    @rule()
    def fix(self) -> None:
        """Leaks are all there is to find; then what has expired is taken back on the way."""
        report = self.run(lambda: self.queue.audit(fix=True))
        assert report.fixed
        if self.model.ghosts():
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

    # --- limits and leaks --------------------------------------------------------------------------------------

    @rule(group=groups, limit=st.sampled_from([0, 1, 1, 2, 3, None]), client=clients)
    def set_limit(self, group: Group, limit: int | None, client: int) -> None:
        queue = self.queues[client]
        if group[0] not in self.model.declared.defaults:
            with pytest.raises(ConfigurationError):
                self.run(lambda: queue.limits.set(*group, limit))
            return
        self.model.limits[group] = limit
        self.run(lambda: queue.limits.set(*group, limit))

    @rule(group=groups)
    def reset_limit(self, group: Group) -> None:
        if group[0] in self.model.declared.defaults:
            self.model.limits.pop(group, None)
            self.run(lambda: self.queue.limits.reset(*group))

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
