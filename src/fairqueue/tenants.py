"""Live settings of limit groups, and the tenants there are. Stored on the server, in force from the next claim on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from fairqueue import inspect
from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import US, join, key
from fairqueue._engine.replies import GroupCounts, identity, text
from fairqueue._engine.scan import escaped, scan
from fairqueue.errors import ConfigurationError
from fairqueue.limits import slots
from fairqueue.states import LimitState, TenantState
from fairqueue.validation import identifier


class LimitsControl:
    """``queue.limits``: the limit of each group, live. A group is a declared limit's name and a group id.

    Example:
        >>> await queue.limits.set("tenant", "acme", 5)
        >>> (await queue.limits.get("tenant", "acme")).limit
        5
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def set(self, group: str, id: str, limit: int | None) -> None:
        """Sets the most slots the group may hold: 0 admits nothing, None is unlimited.

        A raised limit wakes who waits, with no completion needed; a lowered one starts nothing new until fewer
        are held, and stops nobody.

        Raises:
            ConfigurationError: no such limit is declared, or the value is no limit.
            QueueFullError: the server is out of memory; nothing was changed.
            SettingsChangedError: others declare different settings all the time; nothing was changed.

        Example:
            >>> await queue.limits.set("tenant", "acme", 0)
        """
        await self._store(group, id, "none" if limit is None else slots("limit", limit))

    async def reset(self, group: str, id: str) -> None:
        """Goes back to the declared default; who waits and fits now is woken.

        Raises:
            ConfigurationError: no such limit is declared.

        Example:
            >>> await queue.limits.reset("tenant", "acme")
        """
        await self._store(group, id, "")

    async def _store(self, group: str, id_: str, value: int | str) -> None:
        async def once() -> bool:
            revision, name = await self._declared(group), _named(group, id_)
            return await self._engine.run_replayable(self._engine.calls.set_limit, name, value, revision)

        while await self._engine.agreement.as_declared(once):
            pass  # more waiters fit than one script may wake

    async def get(self, group: str, id: str) -> LimitState:
        """The group as it is now, also when nothing was ever counted in it.

        Raises:
            ConfigurationError: no such limit is declared.

        Example:
            >>> state = await queue.limits.get("tenant", "nobody")
            >>> state.held, state.limit
            (0, 10)
        """
        return await self._engine.agreement.as_declared(lambda: self._look(group, id))

    async def list(self, group: str) -> AsyncIterator[LimitState]:
        """Every group of that limit with a limit of its own, a held slot or a waiter.

        Raises:
            ConfigurationError: no such limit is declared.

        Example:
            >>> [(state.id, state.held) async for state in queue.limits.list("tenant")]
            [('umbrella', 2)]
        """
        await self._engine.connect()
        await (
            self._engine.agreement.learn()
        )  # with no group to look at, no call would tell that the limit is gone
        await self._declared(group)
        seen: set[str] = set()
        async for name in self._known(group):
            if name not in seen:
                seen.add(name)
                yield await self._engine.agreement.as_declared(
                    partial(self._look, group, name.partition(US)[2])
                )

    async def _known(self, group: str) -> AsyncIterator[str]:
        match = escaped(group) + US + "*"
        for command, kind in (("HSCAN", "limits"), ("SSCAN", "groups")):
            async for raw in scan(self._engine, command, key(self._engine.calls.root, kind), match):
                yield text(raw)

    async def _look(self, group: str, id_: str) -> LimitState:
        revision, name = await self._declared(group), _named(group, id_)
        return _state(group, id_, await self._engine.run(self._engine.calls.group_state(name, revision)))

    async def _declared(self, group: str) -> str:
        """The revision of the settings that declare it: a call that carries it is refused when they have changed."""
        await self._engine.connect()
        if group not in self._names():
            await self._engine.agreement.learn()  # it may have been declared since
        if group not in self._names():
            known = ", ".join(self._names()) or "none"
            raise ConfigurationError(f"expected group to be a declared limit ({known}), got {group!r:.80}")
        return self._engine.settings.revision

    def _names(self) -> tuple[str, ...]:
        return tuple(limit.name for limit in self._engine.limits)


def _named(group: str, id_: str) -> str:
    return join(group, identifier("id", id_))


def _state(group: str, id_: str, counts: GroupCounts) -> LimitState:
    return LimitState(
        group=group, id=id_, limit=counts.limit, held=counts.held, waiting=counts.waiting,
        holders=sorted(map(identity, counts.holders)),
    )  # fmt: skip


class Tenants:
    """``queue.tenants``: who has messages.

    Example:
        >>> (await queue.tenants.get("acme")).ready
        2
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, tenant: str) -> TenantState:
        """One tenant; all zero when it has nothing here.

        Example:
            >>> state = await queue.tenants.get("umbrella")
            >>> state.in_flight, state.ready
            (2, 0)
        """
        return await inspect.tenant_state(self._engine, identifier("tenant", tenant))

    async def list(self) -> AsyncIterator[TenantState]:
        """Every tenant with messages, dead ones included, in no order.

        Example:
            >>> sorted([state.tenant async for state in queue.tenants.list()])
            ['acme', 'umbrella']
        """
        seen: set[str] = set()
        async for tenant in inspect.tenants(self._engine):
            if tenant not in seen:
                seen.add(tenant)
                yield await inspect.tenant_state(self._engine, tenant)
