"""``FairnessReport``: who was served what, and what each was entitled to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["FairnessReport", "TenantFairness"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFairness:
    """One tenant over the window of a report.

    ``received`` is what it was charged: cost units, or seconds where workers have ``charge="time"``; ``entitled`` is what
    was due to it, ``entitlement`` and ``share`` are the same as parts of all service (0 to 1). ``lag`` is what it is
    behind; negative: ahead. Waits are from when a message became ready to its start:
    half of them were not longer than ``wait_p50``, 95 % not than ``wait_p95`` (each within 42 %); ``longest_wait`` is
    exact, and counts messages that wait still, of which there are ``waiting``. ``starved``: so long it had work in a pool from
    one minute to the next, competed, and was served nothing there while others were.
    """

    tenant: str
    weight: float
    entitled: float
    received: float
    entitlement: float
    share: float
    lag: float
    deliveries: int
    waiting: int
    wait_p50: timedelta
    wait_p95: timedelta
    longest_wait: timedelta
    starved: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessReport:
    """What was served from ``since`` to ``until``, the tenants that are farthest behind first.

    ``jain`` is Jain's index of what each received as a part of what it was entitled to: 1 where all got the same part of
    it, 1/n where one of n got everything; 1 where nothing was due to anybody. ``served`` is what all were charged.
    """

    since: datetime
    until: datetime
    served: float
    jain: float
    tenants: list[TenantFairness]

    def of(self, tenant: str) -> TenantFairness | None:
        """One tenant's part, or None: it was neither served nor waits."""
        return next((one for one in self.tenants if one.tenant == tenant), None)
