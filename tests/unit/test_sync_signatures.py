"""The sync client offers what the async one does, under the same names, with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, SyncFairQueue, SyncLease
from fairqueue.dead_letters import DeadLetters
from fairqueue.limits_control import LimitsControl
from fairqueue.sync_controls import SyncDeadLetters, SyncLimitsControl, SyncTenants
from fairqueue.tenants import Tenants

TWINS = [
    (FairQueue, SyncFairQueue),
    (Lease, SyncLease),
    (LimitsControl, SyncLimitsControl),
    (Tenants, SyncTenants),
    (DeadLetters, SyncDeadLetters),
]


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments(kind: type[Any], name: str) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(getattr(kind, name))
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


@pytest.mark.parametrize(("asynchronous", "synchronous"), TWINS)
def test_the_same_names(asynchronous: type[Any], synchronous: type[Any]) -> None:
    assert public(asynchronous) - public(synchronous) == set()


@pytest.mark.parametrize(("asynchronous", "synchronous"), TWINS)
def test_the_same_arguments(asynchronous: type[Any], synchronous: type[Any]) -> None:
    methods = [name for name in public(asynchronous) if callable(getattr(asynchronous, name))]
    assert methods
    for name in methods:
        assert arguments(asynchronous, name) == arguments(synchronous, name), name


def test_the_same_way_to_make_them() -> None:
    assert arguments(FairQueue, "__init__") == arguments(SyncFairQueue, "__init__")
