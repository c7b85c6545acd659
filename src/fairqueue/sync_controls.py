"""``queue.limits``, ``queue.tenants`` and ``queue.dead_letters`` without ``await``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from fairqueue.dead_letters import DeadLetters
from fairqueue.limits_control import LimitsControl
from fairqueue.message import DeadLetter
from fairqueue.portal import Portal
from fairqueue.states import LimitState, TenantState
from fairqueue.tenants import Tenants

__all__ = ["SyncDeadLetters", "SyncLimitsControl", "SyncTenants"]


class SyncLimitsControl:
    """``LimitsControl`` without ``await``."""

    def __init__(self, control: LimitsControl, portal: Portal) -> None:
        self._control, self._portal = control, portal

    def set(self, group: str, id: str, limit: int | None, guaranteed: int | None = None) -> None:
        """See ``LimitsControl.set``."""
        self._portal.call(lambda: self._control.set(group, id, limit, guaranteed))

    def reset(self, group: str, id: str) -> None:
        """See ``LimitsControl.reset``."""
        self._portal.call(lambda: self._control.reset(group, id))

    def set_backlog(self, tenant: str, limit: int | None) -> None:
        """See ``LimitsControl.set_backlog``."""
        self._portal.call(lambda: self._control.set_backlog(tenant, limit))

    def set_rate(
        self, group: str, id: str, n: int | None, per: timedelta | float = 60, burst: int = 1
    ) -> None:
        """See ``LimitsControl.set_rate``."""
        self._portal.call(lambda: self._control.set_rate(group, id, n, per, burst))

    def get(self, group: str, id: str) -> LimitState:
        """See ``LimitsControl.get``."""
        return self._portal.call(lambda: self._control.get(group, id))

    def list(self, group: str) -> Iterator[LimitState]:
        """See ``LimitsControl.list``."""
        return self._portal.iterate(self._control.list(group))


class SyncTenants:
    """``Tenants`` without ``await``."""

    def __init__(self, tenants: Tenants, portal: Portal) -> None:
        self._tenants, self._portal = tenants, portal

    def get(self, tenant: str) -> TenantState:
        """See ``Tenants.get``."""
        return self._portal.call(lambda: self._tenants.get(tenant))

    def set_weight(self, tenant: str, weight: float) -> None:
        """See ``Tenants.set_weight``."""
        self._portal.call(lambda: self._tenants.set_weight(tenant, weight))

    def list(self) -> Iterator[TenantState]:
        """See ``Tenants.list``."""
        return self._portal.iterate(self._tenants.list())


class SyncDeadLetters:
    """``DeadLetters`` without ``await``."""

    def __init__(self, letters: DeadLetters, portal: Portal) -> None:
        self._letters, self._portal = letters, portal

    def count(self, tenant: str) -> int:
        """See ``DeadLetters.count``."""
        return self._portal.call(lambda: self._letters.count(tenant))

    def list(
        self, tenant: str, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[DeadLetter[Any]], str | None]:
        """See ``DeadLetters.list``."""
        return self._portal.call(lambda: self._letters.list(tenant, limit, cursor))

    def redrive(self, tenant: str, *ids: str) -> int:
        """See ``DeadLetters.redrive``."""
        return self._portal.call(lambda: self._letters.redrive(tenant, *ids))

    def redrive_all(self, tenant: str) -> int:
        """See ``DeadLetters.redrive_all``."""
        return self._portal.call(lambda: self._letters.redrive_all(tenant))

    def purge(self, tenant: str, id: str | None = None) -> int:
        """See ``DeadLetters.purge``."""
        return self._portal.call(lambda: self._letters.purge(tenant, id))

    def tenants(self) -> Iterator[str]:
        """See ``DeadLetters.tenants``."""
        return self._portal.iterate(self._letters.tenants())
