"""Reads: what the queue shows of itself is what the model holds, to each detail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from fairqueue import ConfigurationError, MessageInfo
from tests.property.machine.base import GROUPS, QUEUES, TENANTS, Play, clients, which
from tests.property.model import Group, Known, instant

STATES = ["ready", "in_flight", "delayed", "dead"]
tenants = st.sampled_from([*TENANTS, "nobody"])


async def all_pages(page: Callable[[str | None], Awaitable[tuple[list[Any], str | None]]]) -> list[Any]:
    items, cursor = await page(None)
    while cursor is not None:
        more, cursor = await page(cursor)
        items = items + more
    return items


class Looking(Play):
    """get, messages, queues, workers, stats of a tenant, tenants, limits.get and list, dead letters."""

    def agrees(self, info: MessageInfo[Any], message: Known) -> None:
        shown = info.message
        assert (shown.tenant, shown.id, shown.payload) == (message.tenant, message.id, {"id": message.id})
        assert (shown.queue, shown.pool, shown.groups) == (message.queue, message.pool, message.groups)
        assert (shown.priority, shown.cost, shown.max_attempts) == (
            message.priority, message.cost, message.own_attempts,
        )  # fmt: skip
        assert (info.state, shown.attempt, shown.crashes) == (message.state, message.attempt, message.crashes)
        if message.state == "in_flight":
            lease = info.lease
            assert lease is not None
            assert (lease.token, lease.deadline) == (message.token, instant(message.deadline))
            assert lease.claimed_at == instant(message.claimed_at)
            assert message.consumer in (None, lease.consumer)
        else:
            assert info.lease is None
        assert info.cancelling == message.cancelled
        assert info.due_at == (instant(message.due) if message.state == "delayed" else None)
        assert info.expires_at == (None if message.ends_at is None else instant(message.ends_at))
        assert info.reason == (message.reason if message.state == "dead" else None)
        place = self.model.lanes()[message.lane].index(message) if message.state == "ready" else None
        assert info.position == place

    @precondition(lambda self: self.model.messages)
    @rule(index=which, client=clients)
    def get(self, index: int, client: int) -> None:
        message = self.model.messages[sorted(self.model.messages)[index % len(self.model.messages)]]
        queue = self.queues[client]
        self.agrees(self.run(lambda: queue.get(*message.mid)), message)
        assert self.run(lambda: queue.get(message.tenant, "nothing")) is None

    @precondition(lambda self: self.model.messages)
    @rule(index=which, client=clients)
    def explain(self, index: int, client: int) -> None:
        """A full group is named, and none that has room but where all of it is promised to others."""
        message = self.model.messages[sorted(self.model.messages)[index % len(self.model.messages)]]
        found = self.run(lambda: self.queues[client].explain(*message.mid))
        assert (found.state, found.attempt, found.crashes) == (
            message.state,
            message.attempt,
            message.crashes,
        )
        if message.state not in ("ready", "delayed"):
            assert found.stops == ()
            return
        stops = {(stop.limit, stop.group_id): stop for stop in found.stops}
        full = {group for group in message.groups if self.model.full_for(message, group)}
        assert full <= set(stops)
        for group in set(stops) - full - {(None, None)}:
            assert stops[group].kind == "repair" or stops[group].promised > 0

    @rule(tenant=tenants, of=st.sampled_from([None, *QUEUES]), state=st.sampled_from([None, *STATES]),
          limit=st.sampled_from([1, 2, 100]))  # fmt: skip
    def messages(self, tenant: str, of: str | None, state: str | None, limit: int) -> None:
        queue = self.queue
        items = self.run(lambda: all_pages(lambda cursor: queue.messages(tenant, of, state, limit, cursor)))
        expected = {m.mid for m in self.model.of(tenant, state) if of in (None, m.queue)}
        assert sorted((item.message.tenant, item.message.id) for item in items) == sorted(expected)
        for item in items:
            self.agrees(item, self.model.messages[tenant, item.message.id])
        assert sorted(items, key=lambda item: STATES.index(item.state)) == items
        dead = [message.id for message in self.model.letters(tenant) if of in (None, message.queue)]
        assert state not in (None, "dead") or [i.message.id for i in items if i.state == "dead"] == dead

    @rule(tenant=tenants)
    def queues_of_a_tenant(self, tenant: str) -> None:
        queue = self.queue

        async def look() -> list[Any]:
            return [state async for state in queue.queues(tenant)]

        shown = self.run(look)
        ready = Counter((message.queue, message.pool) for message in self.model.of(tenant, "ready"))
        assert {(state.queue, state.pool): state.ready for state in shown} == ready
        lanes = self.model.lanes()
        for state in shown:
            kept_out = sum(
                len(lane)
                for (of, *where, _), lane in lanes.items()
                if (of, where) == (tenant, [state.queue, state.pool])
                and (self.model.paused(lane[0]) or not self.model.admits(lane[0]))
            )
            assert 0 <= state.blocked <= state.ready
            waiting = (
                self.model.ghosts() or self.model.rates
            )  # a token that came is noticed by the next claim
            assert state.blocked <= kept_out or waiting, "blocked although there is room"

    @rule(tenant=tenants, client=clients)
    def one_tenant(self, tenant: str, client: int) -> None:
        queue = self.queues[client]
        expected = [len(self.model.of(tenant, state)) for state in STATES]
        for state in (self.run(lambda: queue.stats(tenant)), self.run(lambda: queue.tenants.get(tenant))):
            assert state.tenant == tenant
            assert [state.ready, state.in_flight, state.delayed, state.dead] == expected

    @rule()
    def lists(self) -> None:
        """Tenants with messages, tenants with dead ones, and no worker: those that ran have signed off."""
        queue = self.queue

        async def look() -> tuple[list[str], list[str], list[Any]]:
            return (
                [state.tenant async for state in queue.tenants.list()],
                [tenant async for tenant in queue.dead_letters.tenants()],
                [state async for state in queue.workers()],
            )

        present, with_letters, workers = self.run(look)
        assert sorted(present) == sorted({message.tenant for message in self.model.messages.values()})
        assert sorted(with_letters) == sorted({message.tenant for message in self.model.in_state("dead")})
        assert workers == []

    @rule(client=clients)
    def fairness(self, client: int) -> None:
        """What is served is shared out, whatever happened; who waits is in it."""
        queue = self.queues[client]
        report = self.run(lambda: queue.fairness(3600))
        due = sum(one.entitled for one in report.tenants)
        assert due <= report.served + 1e-6
        assert 0 < report.jain <= 1 + 1e-9
        waiting = Counter(message.tenant for message in self.model.in_state("ready"))
        assert {one.tenant: one.waiting for one in report.tenants if one.waiting} == dict(waiting)

    @rule(group=st.sampled_from(GROUPS), client=clients)
    def one_limit(self, group: Group, client: int) -> None:
        queue = self.queues[client]
        if group[0] not in self.model.declared.defaults:
            with pytest.raises(ConfigurationError):
                self.run(lambda: queue.limits.get(*group))
            return
        self.shows(group, self.run(lambda: queue.limits.get(*group)))

    def shows(self, group: Group, state: Any) -> None:
        holders = sorted(self.model.slots.get(group, {}))
        assert (state.group, state.id) == group
        assert (state.limit, state.held, state.holders) == (self.model.limit(group), len(holders), holders)
        guaranteed = self.model.guarantees.slots.get(group[1]) if group[0] == "tenant" else None
        assert state.guaranteed == guaranteed
        bucket = self.model.rates.get(group)
        assert (state.rate and state.rate.tokens) == (bucket and bucket.shown(self.model.now_ms))
        ready = [message for message in self.model.in_state("ready") if group in message.groups]
        assert 0 <= state.waiting <= len(ready)

    @rule(name=st.sampled_from(["tenant", "org"]))
    def all_limits(self, name: str) -> None:
        queue = self.queue

        async def look() -> list[Any]:
            return [state async for state in queue.limits.list(name)]

        states = {(state.group, state.id): state for state in self.run(look)}
        expected = {
            *self.model.limits,
            *self.model.rates,
            *(group for group, slots in self.model.slots.items() if slots),
        }
        assert {group for group in expected if group[0] == name} <= set(states)
        for group, state in states.items():
            self.shows(group, state)

    @rule(tenant=tenants, limit=st.sampled_from([1, 2, 100]))
    def letters(self, tenant: str, limit: int) -> None:
        queue, expected = self.queue, self.model.letters(tenant)
        assert self.run(lambda: queue.dead_letters.count(tenant)) == len(expected)
        shown = self.run(lambda: all_pages(lambda cursor: queue.dead_letters.list(tenant, limit, cursor)))
        assert [letter.message.id for letter in shown] == [message.id for message in expected]
        for letter, message in zip(shown, expected, strict=True):
            assert (letter.attempts, letter.crashes) == (message.attempt, message.crashes)
            assert (letter.reason, letter.redrives) == (message.reason, message.redrives)
            assert letter.message.payload == {"id": message.id}
