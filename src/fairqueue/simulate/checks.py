"""What must hold between the parts of a workload."""

from __future__ import annotations

from collections import Counter
from typing import Final

from fairqueue.errors import ConfigurationError
from fairqueue.simulate.workload import TENANT_LIMIT, Tenant, Workload
from fairqueue.validation import expected

MOST_MESSAGES: Final = 10_000_000


def check(workload: Workload) -> None:
    """Raises ``ConfigurationError`` for a workload that contradicts itself, or is too much for a run."""
    if not workload.workers or not workload.tenants:
        raise expected("tenants" if workload.workers else "workers", "a list of at least one", [])
    names = Counter(name for tenant in workload.tenants for name in tenant.names())
    if twice := [name for name, times in names.items() if times > 1]:
        raise ConfigurationError(f"expected every tenant once, got {twice[0]!r} more than once")
    declared = {limit.name for limit in workload.limits}
    if workload.guarantees and TENANT_LIMIT not in declared:
        raise ConfigurationError(
            "a tenant has a guarantee, but limits.tenant is not declared (null: unlimited)"
        )
    if unknown := [limit for limit, _ in (*workload.own_limits, *workload.rates) if limit not in declared]:
        raise ConfigurationError(
            f"a tenant has a limit or a rate, but limits.{unknown[0]} is not declared (null: unlimited)"
        )
    _guarantees(workload)
    if workload.scheduler == "fifo" and any(tenant.weight != 1 for tenant in workload.tenants):
        raise ConfigurationError("a tenant has a weight, but the scheduler is fifo, which ignores tenants")
    if (messages := workload.expected_messages) > MOST_MESSAGES:
        raise ConfigurationError(
            f"expected a workload of at most {MOST_MESSAGES:,} messages, got about {messages:,.0f}: "
            "a shorter duration or fewer arrivals are needed"
        )


def _guarantees(workload: Workload) -> None:
    """More than a shared group has could not all be kept. Who uses it is who sends messages with its metadata."""
    default = {limit.name: limit.default for limit in workload.limits}.get(TENANT_LIMIT)
    for name, guaranteed in workload.guarantees.items():
        most = workload.own_limits.get((TENANT_LIMIT, name), default)
        if most is not None and guaranteed > most:
            raise ConfigurationError(
                f"expected what {name} is guaranteed to be at most its limit of {most}, got {guaranteed}"
            )
    sums = Counter[tuple[str, str]]()
    for tenant in workload.tenants:
        for group in _shared_groups(workload, tenant) if tenant.guaranteed else ():
            sums[group] += tenant.count * (tenant.guaranteed or 0)
    defaults = {limit.name: limit.default for limit in workload.limits}
    for (limit, id_), total in sums.items():
        most = workload.own_limits.get((limit, id_), defaults[limit])
        if most is not None and total > most:
            raise ConfigurationError(
                f"expected the guarantees of those who use {limit} {id_} to be at most its limit of {most}, got {total}"
            )


def _shared_groups(workload: Workload, tenant: Tenant) -> set[tuple[str, str]]:
    return {
        (limit.name, stream.metadata[limit.key])
        for stream in tenant.streams
        for limit in workload.limits
        if isinstance(limit.key, str) and limit.key in stream.metadata
    }
