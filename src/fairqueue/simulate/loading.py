"""Workloads from files: each part of the file is read into the part of the workload that it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from fairqueue.config import SCHEDULERS, Options
from fairqueue.errors import ConfigurationError
from fairqueue.limits import Limit
from fairqueue.limits import rate as checked_rate
from fairqueue.new_message import HIGHEST_COST, HIGHEST_PRIORITY, LOWEST_COST, LOWEST_PRIORITY
from fairqueue.simulate.checks import check
from fairqueue.simulate.reading import Section
from fairqueue.simulate.traffic import LONGEST, arrivals_of, run_time_of
from fairqueue.simulate.workload import (
    TENANT_LIMIT,
    Paused,
    Rate,
    Stream,
    Tenant,
    Workers,
    Workload,
    checked_seed,
)
from fairqueue.tenants import HEAVIEST, LIGHTEST
from fairqueue.validation import LARGEST_INTEGER, choice, expected, identifier, integer

__all__ = ["load_workload", "workload_of"]

T = TypeVar("T")
MOST_TENANTS: Final = 100_000
MOST_WORKERS: Final = 10_000
SELECTORS: Final = ("tenant", "queue", "pool")


def load_workload(path: Path) -> Workload:
    """The workload of a file: YAML, or JSON where the name ends in ``.json``.

    Raises:
        ConfigurationError: the file cannot be read, or something in it is wrong; the text names the place.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no text in UTF-8"
        raise ConfigurationError(f"cannot read the workload {path}: {why}") from error
    try:
        return workload_of(_json(text) if path.suffix == ".json" else _yaml(text))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"expected JSON, got: {error}") from error


def _yaml(text: str) -> object:
    try:
        import yaml  # noqa: PLC0415 - an extra: only who simulates from YAML needs it
    except ImportError as error:
        raise ConfigurationError(
            "a workload in YAML needs PyYAML: pip install pyyaml, or write it as JSON (.json)"
        ) from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"expected YAML, got: {error}") from error


# --- the parts of a file -----------------------------------------------------------------------------------------


def workload_of(value: object) -> Workload:
    """The workload that a mapping says, as a file has it.

    Raises:
        ConfigurationError: something in it is wrong, or it is too much for a run; the text names the place.

    Example:
        >>> workload_of({"duration": 60, "workers": {"concurrency": 2}, "tenants": [
        ...     {"name": "acme", "messages": {"arrivals": {"poisson": 1}, "run": 0.5}}]}).expected_messages
        60.0
    """
    found = Section(value, "", _WORKLOAD)
    limits, of_groups, rates = _limits(found.value("limits", {}), "limits")
    tenants = found.each("tenants", _tenant)
    names = [(one, name) for one in tenants for name in one.names()]
    own = {(limit, name): most for one, name in names for limit, most in one.limits.items()}
    rated = {(limit, name): rate for one, name in names for limit, rate in one.rates.items()}
    workload = Workload(
        duration_s=found.number("duration", 0.001, LONGEST),
        seed=checked_seed("seed", found.value("seed", 1)),
        scheduler=choice("scheduler", found.value("scheduler", "fair"), SCHEDULERS),
        quantum=_quantum(found),
        charge=choice("charge", found.value("charge", "cost"), ("cost", "time")),
        limits=limits,
        own_limits=of_groups | own,
        rates=rates | rated,
        guarantees={name: one.guaranteed for one, name in names if one.guaranteed is not None},
        workers=tuple(found.each("workers", _workers)),
        tenants=tuple(tenants),
        pauses=tuple(found.each("pauses", _paused, [])),
    )
    check(workload)
    return workload


_WORKLOAD: Final = (
    "duration",
    "seed",
    "scheduler",
    "quantum",
    "charge",
    "limits",
    "workers",
    "tenants",
    "pauses",
)


def _quantum(found: Section) -> float | None:
    return Options.make(
        scheduler=found.value("scheduler", "fair"), quantum=found.value("quantum", None)
    ).quantum


def _limits(
    value: object, path: str
) -> tuple[tuple[Limit, ...], dict[tuple[str, str], int | None], dict[tuple[str, str], Rate]]:
    """The declarations, and the limits and rates of single groups."""
    section = Section(value, path, None)
    declared: list[Limit] = []
    own: dict[tuple[str, str], int | None] = {}
    rates: dict[tuple[str, str], Rate] = {}
    for key in section.keys():  # noqa: SIM118 - the keys of the section, not of a dict
        name, stands = identifier(path, key), section.value(key)
        in_full = isinstance(stands, dict)
        found = Section(stands if in_full else {"default": stands}, section.at(key), _LIMIT)
        default = _most(found.value("default", None), found.at("default") if in_full else section.at(key))
        declared.append(Limit(name, default=default, key=found.name("key") if found.has("key") else None))
        own |= {(name, group): most for group, most in _by_group(found, "own", _most).items()}
        rates |= {(name, group): rate for group, rate in _by_group(found, "rates", _rate).items()}
    return tuple(declared), own, rates


_LIMIT: Final = ("default", "key", "own", "rates")


def _by_group(found: Section, key: str, read: Callable[[Any, str], T]) -> dict[str, T]:
    groups = Section(found.value(key, {}), found.at(key), None)
    return {identifier(groups.path, id_): read(groups.value(id_), groups.at(id_)) for id_ in groups.keys()}  # noqa: SIM118


def _rate(value: object, path: str) -> Rate:
    found = Section(value, path, ("n", "per", "burst"))
    rate = Rate(
        found.integer("n", 1), found.number("per", 0.001, LONGEST, 60), found.integer("burst", 1, None, 1)
    )
    try:
        checked_rate(rate.n, rate.per_s, rate.burst)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return rate


def _most(value: object, path: str) -> int | None:
    return None if value is None else integer(path, value, 0, LARGEST_INTEGER)


def _workers(value: object, path: str) -> Workers:
    found = Section(value, path, ("processes", "concurrency", "pools"))
    pools = found.each("pools", lambda name, where: identifier(where, name), ["default"])
    if not pools:
        raise expected(found.at("pools"), "a list of at least one pool", pools)
    return Workers(
        found.integer("processes", 1, MOST_WORKERS, 1),
        found.integer("concurrency", 1, MOST_WORKERS, 100),
        tuple(dict.fromkeys(pools)),
    )


def _tenant(value: object, path: str) -> Tenant:
    found = Section(
        value, path, ("name", "count", "limit", "guaranteed", "rate", "weight", "backlog", "messages")
    )
    streams = found.each("messages", _stream)
    limit = {TENANT_LIMIT: _most(found.value("limit"), found.at("limit"))} if found.has("limit") else {}
    return Tenant(
        name=found.name("name"),
        count=found.integer("count", 1, MOST_TENANTS, 1),
        streams=tuple(streams),
        limits=limit,
        guaranteed=found.integer("guaranteed", 1, LARGEST_INTEGER) if found.has("guaranteed") else None,
        rates={TENANT_LIMIT: _rate(found.value("rate"), found.at("rate"))} if found.has("rate") else {},
        weight=found.number("weight", LIGHTEST, HEAVIEST, 1),
        backlog=found.integer("backlog", 0, LARGEST_INTEGER) if found.has("backlog") else None,
    )


def _paused(value: object, path: str) -> Paused:
    found = Section(value, path, (*SELECTORS, "from", "until"))
    selectors = {name: found.name(name) for name in SELECTORS if found.has(name)}
    if not selectors:
        raise expected(path, f"of at least one of {', '.join(SELECTORS)}", value)
    from_s = found.number("from", 0, LONGEST, 0)
    return Paused(selectors, from_s, found.number("until", from_s, LONGEST, LONGEST))


def _stream(value: object, path: str) -> Stream:
    found = Section(value, path, _STREAM)
    return Stream(
        arrivals=arrivals_of(found.value("arrivals"), found.at("arrivals")),
        run=run_time_of(found.value("run"), found.at("run")),
        queue=found.name("queue", "default"),
        pool=found.name("pool", "default"),
        priority=found.integer("priority", LOWEST_PRIORITY, HIGHEST_PRIORITY, 0),
        cost=_cost(found),
        metadata=_metadata(Section(found.value("metadata", {}), found.at("metadata"), None)),
        expires_s=found.number("expires", 0.001, LONGEST) if found.has("expires") else None,
    )


_STREAM: Final = ("arrivals", "run", "queue", "pool", "priority", "cost", "metadata", "expires")


def _cost(found: Section) -> float | None:
    return None if found.value("cost", 1) == "run" else found.number("cost", LOWEST_COST, HIGHEST_COST, 1)


def _metadata(found: Section) -> dict[str, Any]:
    return {identifier(found.path, key): found.name(key) for key in found.keys()}  # noqa: SIM118
