"""What breaks beside scripts: processes that die, clients that leave, a clock that is set back."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairqueue import QueueClosedError
from tests.property.machine.base import clients
from tests.property.machine.cutting import Cutting


class Breaking(Cutting):
    """Dead and closed clients, a step of the clock, and the cut scripts."""

    @rule(client=clients)
    def killed(self, client: int) -> None:
        self.die(client)

    @rule(client=clients)
    def close_and_come_back(self, client: int) -> None:
        """Its leases stay its own; nothing is settled while it is closed."""
        queue = self.queues[client]
        self.run(queue.close)
        with pytest.raises(QueueClosedError):
            self.run(queue.stats)
        mine = [held for held in self.model.deliveries if held.client == client and not held.asked]
        if mine:
            with pytest.raises(QueueClosedError):
                self.run(mine[-1].lease.extend)
        self.run(queue.connect)

    @rule(client=clients)
    def left_without_settling(self, client: int) -> None:
        """It was closed properly, its leases forgotten: they expire."""
        self.run(self.queues[client].close)
        self.model.abandon(client)
        self.queues[client] = self.another()

    @rule(seconds=st.sampled_from([1, 10, 40]))
    def clock_is_set_back(self, seconds: int) -> None:
        """Leases and delays last so much longer, nothing comes early, and nothing else changes."""
        self.clock.step_back(seconds)
        self.model.now -= seconds
        for (
            group,
            bucket,
        ) in self.model.rates.items():  # what is owed for too long is forgotten by who meets it
            n, per, burst = bucket.rate
            set_rate = partial(self.queue.limits.set_rate, *group, n, per=per / 1000, burst=burst)
            self.run(set_rate)
            bucket.heal(self.model.now_ms)
