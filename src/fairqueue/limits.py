"""Concurrency limits: what a limit counts, and which groups of it a message belongs to.

A limit's name and a group id together make a limit group, such as ``("tenant", "acme")``. While a message is in flight
it holds one slot in each of its groups. Groups are resolved once, by the producer, and stay with the message.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from fairqueue.errors import ConfigurationError, InvalidMessageError
from fairqueue.new_message import NewMessage
from fairqueue.validation import (
    ENDINGS,
    LARGEST_INTEGER,
    duration_ms,
    expected,
    identifier,
    integer,
    namespace,
    said,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

__all__ = [
    "Limit",
    "LimitKey",
    "from_settings",
    "guaranteed_slots",
    "rate",
    "resolve_groups",
    "slots",
    "to_settings",
    "validated",
    "with_functions",
]

TENANT: Final = "tenant"
"""The limit whose groups are the tenants themselves."""

LimitKey = str | Callable[[NewMessage[Any]], str | None]
"""A key of the metadata that holds the group id, or a function that computes it (None: the limit does not apply)."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Declares a limit: at most so many messages of one group are in flight at a time.

    Args:
        name: 1 to 64 of ASCII letters, digits, ``.``, ``_`` and ``-``. Groups of ``"tenant"`` are the tenants.
        default: the limit of every group that was not given one of its own; 0 stops them, None: unlimited.
        key: for every name but ``"tenant"``, where the group id comes from: a key of the message's metadata, or a
            function of the ``NewMessage``. A message without that key, or for which the function returns None, is
            not counted by this limit.

    Raises ``ConfigurationError`` for anything else.

    >>> [Limit("tenant", default=10), Limit("org", default=50, key="org")]
    >>> Limit("model", key=lambda message: message.queue.split(".")[0])
    """

    name: str
    default: int | None = None
    key: LimitKey | None = field(default=None)

    def __post_init__(self) -> None:
        namespace("a limit's name", self.name)
        if self.default is not None:
            slots(f"the default of limit {self.name!r}", self.default)
        _check_key(self.name, self.key)

    def group_id(self, message: NewMessage[Any]) -> str | None:
        """The group of this limit that the message belongs to; None: the limit does not apply to it.

        Raises ``InvalidMessageError`` where the function raises or the group id is not an identifier.
        """
        if self.key is None:
            return message.tenant
        found = (
            _computed(self, self.key, message)
            if callable(self.key)
            else message.metadata.get(self.key, _MISSING)
        )
        if found is _MISSING:
            return None
        return identifier(f"the group id of limit {self.name!r}", found, error=InvalidMessageError)


_MISSING: Final = object()


def slots(option: str, value: object) -> int:
    """How many slots a group may have, where that is not None.

    Raises ``ConfigurationError`` for anything but an integer of 0 or more: unlimited is None.
    """
    try:
        return integer(option, value, 0, LARGEST_INTEGER)
    except ConfigurationError:
        wanted = f"an integer from 0 to {LARGEST_INTEGER}, or None for unlimited"
        raise expected(option, wanted, value) from None


MOST_PER_TIME: Final = 1_000_000
MOST_AT_ONCE: Final = 100_000
LONGEST_PER_MS: Final = 366 * 86_400_000
"""Of a rate. What a group owes is counted in n-ths of a millisecond, and stays a whole number with these."""


def rate(n: object, per: timedelta | float, burst: object) -> tuple[int, int, int]:
    """The n, per (ms) and burst of a rate. Raises ``ConfigurationError`` for what is none."""
    per_ms = duration_ms("per", per, minimum_ms=1)
    if per_ms > LONGEST_PER_MS:
        raise expected("per", "a positive duration of at most 366 days", per)
    return integer("n", n, 1, MOST_PER_TIME), per_ms, integer("burst", burst, 1, MOST_AT_ONCE)


def guaranteed_slots(group: str, limit: int | None, guaranteed: object) -> int | None:
    """How many of its slots a tenant is guaranteed; None: none.

    Raises ``ConfigurationError`` for anything but an integer from 1 to the limit, and for groups that are no tenants.
    """
    if guaranteed is None:
        return None
    if group != TENANT:
        raise expected("guaranteed", f"None for limit {group!r} (only {TENANT!r} has guarantees)", guaranteed)
    try:
        return integer("guaranteed", guaranteed, 1, LARGEST_INTEGER if limit is None else limit)
    except ConfigurationError:
        most = "" if limit is None else f" to the limit, {limit}"
        raise expected(
            "guaranteed", f"an integer from 1{most}, or None for no guarantee", guaranteed
        ) from None


def _check_key(name: str, key: object) -> None:
    option = f"the key of limit {name!r}"
    if name == TENANT:
        if key is not None:
            raise expected(option, "None (its group is always the message's tenant)", key)
    elif isinstance(key, str):
        identifier(option, key)
    elif not callable(key):
        raise expected(option, "a key of the metadata or a function", key)


def _computed(limit: Limit, key: Callable[[NewMessage[Any]], str | None], message: NewMessage[Any]) -> object:
    try:
        found = key(message)
    except ConfigurationError:  # the limit was read back from the server: its function is in another program
        raise
    except ENDINGS:
        raise
    except BaseException as error:
        raise InvalidMessageError(
            f"the key function of limit {limit.name!r} failed for message {shown(message.id)}: "
            f"{type(error).__name__}: {said(error)}"
        ) from error
    return _MISSING if found is None else found


def resolve_groups(limits: Sequence[Limit], message: NewMessage[Any]) -> tuple[tuple[str, str], ...]:
    """The (limit's name, group id) pairs of a message, in the order the limits are declared.

    >>> resolve_groups([Limit("tenant", 10), Limit("org", key="org")], NewMessage({}, tenant="acme"))
    (('tenant', 'acme'),)
    """
    resolved = ((limit.name, limit.group_id(message)) for limit in limits)
    return tuple((name, group) for name, group in resolved if group is not None)


def validated(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    """The limits as a tuple; a name declared twice or something that is no ``Limit``: ``ConfigurationError``."""
    found = _limits(limits)
    names: set[str] = set()
    for limit in found:
        if limit.name in names:
            raise ConfigurationError(f"expected every limit to be declared once, got {limit.name!r} twice")
        names.add(limit.name)
    return found


def _limits(value: object) -> tuple[Limit, ...]:
    found = tuple(value) if isinstance(value, Iterable) else None
    if found is None or not all(isinstance(one, Limit) for one in found):
        raise expected("limits", "a list of Limit", value)
    return found


@dataclass(frozen=True, slots=True)
class _FunctionElsewhere:
    """Stands for a key function that only the program that declared it has."""

    name: str

    def __call__(self, message: NewMessage[Any]) -> str | None:  # noqa: ARG002 - called as a key function is
        raise ConfigurationError(
            f"limit {self.name!r} is computed by a function: declare it in this client to enqueue"
        )


def to_settings(limits: Iterable[Limit]) -> str:
    """The declarations as canonical JSON, for the server to keep: equal declarations give equal text."""
    declared = [
        {
            "name": limit.name,
            "default": limit.default,
            "key": {"function": True} if callable(limit.key) else limit.key,
        }
        for limit in limits
    ]
    return json.dumps(declared, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def from_settings(text: str) -> tuple[Limit, ...]:
    """The declarations that ``to_settings`` wrote; raises ``ConfigurationError`` for any other text.

    A key that was a function comes back as one that raises ``ConfigurationError`` when a message is enqueued:
    such a client can claim and settle, which need no key, but not enqueue.
    """
    try:
        declared = json.loads(text)
        if not isinstance(declared, list):
            raise TypeError(f"expected a list, got {shown(declared)}")
        return validated([_declared(**one) for one in declared])
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the limits stored under this name cannot be read: {error}") from error


def of_defaults(defaults: Mapping[str, str]) -> str:
    """Declarations as ``to_settings`` writes them, of which only names and stored defaults are known.

    Their keys stand as functions of another program: nothing is enqueued before somebody has declared them again.
    """
    limits = []
    for name, text in sorted(defaults.items()):
        default = int(text) if text.isascii() and text.isdigit() else None
        with contextlib.suppress(ConfigurationError):  # none that anybody declared
            limits.append(Limit(name, default, None if name == TENANT else _FunctionElsewhere(name)))
    return to_settings(limits)


def with_functions(stored: Iterable[Limit], own: Iterable[Limit]) -> tuple[Limit, ...]:
    """The stored limits; one that is computed by a function has ours, if ``own`` has a limit of its name with one."""
    ours = {limit.name: limit.key for limit in own if callable(limit.key)}
    return tuple(
        replace(limit, key=ours.get(limit.name, limit.key)) if callable(limit.key) else limit
        for limit in stored
    )


def _declared(name: str, default: int | None, key: str | dict[str, Any] | None) -> Limit:
    return Limit(name, default, _FunctionElsewhere(name) if isinstance(key, dict) else key)
