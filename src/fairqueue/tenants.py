"""``queue.tenants``: the tenants there are, and their weights, in force from the next claim on."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairqueue import inspect
from fairqueue._engine.engine import Engine
from fairqueue.errors import ConfigurationError
from fairqueue.states import TenantState
from fairqueue.validation import identifier, number

LIGHTEST, HEAVIEST = 0.01, 100


class Tenants:
    """``queue.tenants``: who has messages, and how much of the service each is to have.

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

    async def set_weight(self, tenant: str, weight: float) -> None:
        """Sets the tenant's weight, 0.01 to 100: while both have work, one of weight 2 is served twice what one of 1 is.

        1 is everybody's, and stored for nobody. It holds from the next claim on, also for the backlog that is there and at
        full limit groups, and stays until it is set again, whether the tenant has messages or not. What the tenant was
        served before is taken over at the new weight: it brings neither credit nor debt. Weight 0 does not exist: a limit of
        0 stops a tenant.

        Raises:
            ConfigurationError: that is no weight, or the scheduler is "fifo", which ignores tenants.
            QueueFullError: the server is out of memory; nothing was changed.

        Example:
            >>> await queue.tenants.set_weight("acme", 2.0)
            >>> (await queue.tenants.get("acme")).weight
            2.0
        """
        name, weight = identifier("tenant", tenant), number("weight", weight, LIGHTEST, HEAVIEST)
        charged_at = await _charged_at(self._engine, name)
        if not await self._engine.run_replayable(self._engine.calls.set_weight, name, weight, charged_at):
            raise ConfigurationError(
                'expected scheduler to be one that knows weights, got "fifo", which ignores tenants: '
                'declare FairQueue(scheduler="fair") first'
            )

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


async def _charged_at(engine: Engine, tenant: str) -> list[str]:
    """Looked for in steps: a namespace may have very many places where somebody takes turns."""
    found: set[str] = set()
    cursor = "0"
    while True:
        cursor, scopes = await engine.run(engine.calls.charged_at(tenant, cursor))
        found.update(scopes)
        if cursor == "0":
            return sorted(found)
