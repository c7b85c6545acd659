"""Values of a workload file. What is wrong is named by its place, such as ``tenants[2].messages[0].run``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from fairqueue.errors import ConfigurationError
from fairqueue.validation import expected, identifier, integer, number, shown

__all__ = ["MISSING", "Section", "named_number"]

MISSING: Final = object()
T = TypeVar("T")


class Section:
    """A mapping of the file: only ``known`` keys may be in it.

    Args:
        value: what the file has there.
        path: where; empty for the file itself.
        known: the keys there can be. None: any, such as groups.

    Raises:
        ConfigurationError: it is no mapping, or has another key; the text names the place.
    """

    def __init__(self, value: object, path: str, known: Iterable[str] | None) -> None:
        if not isinstance(value, Mapping):
            raise expected(path or "the workload", "a mapping of names to values", value)
        self._value, self.path = value, path
        if known is not None:
            self._only(tuple(known))

    def _only(self, known: tuple[str, ...]) -> None:
        for key in self._value:
            if key not in known:
                close = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
                raise ConfigurationError(
                    f"unknown key {shown(key)} in {self.path or 'the workload'} ({hint})"
                )

    def keys(self) -> list[Any]:
        """The keys that are there, in the order of the file."""
        return list(self._value)

    def has(self, key: str) -> bool:
        """Whether the file says anything about it."""
        return key in self._value

    def at(self, key: str) -> str:
        """The place of a key."""
        return f"{self.path}.{key}" if self.path else key

    def value(self, key: str, default: object = MISSING) -> Any:
        """What is there.

        Raises:
            ConfigurationError: nothing is, and it has no default.
        """
        if key in self._value:
            return self._value[key]
        if default is MISSING:
            raise ConfigurationError(f"expected {self.at(key)}, got none")
        return default

    def number(self, key: str, minimum: float, maximum: float, default: object = MISSING) -> float:
        """A number from ``minimum`` to ``maximum``."""
        return number(self.at(key), self.value(key, default), minimum, maximum)

    def integer(self, key: str, minimum: int, maximum: int | None = None, default: object = MISSING) -> int:
        """A whole number from ``minimum`` to ``maximum``."""
        return integer(self.at(key), self.value(key, default), minimum, maximum)

    def name(self, key: str, default: object = MISSING) -> str:
        """Text that may name a tenant, a queue, a pool or a group."""
        return identifier(self.at(key), self.value(key, default))

    def each(self, key: str, read: Callable[[Any, str], T], default: object = MISSING) -> list[T]:
        """A list, or one of what it may hold; ``read`` gets each value and its place."""
        value = self.value(key, default)
        if not isinstance(value, list):
            return [read(value, self.at(key))]
        return [read(one, f"{self.at(key)}[{place}]") for place, one in enumerate(value)]


def named_number(value: object, path: str, known: Mapping[str, T]) -> tuple[T, Any, str]:
    """The one of several forms that a value has, ``{exponential: 2}``, and what stands under it."""
    section = Section(value, path, known)
    if len(section.keys()) != 1:
        raise expected(path, f"one of {', '.join(known)}", value)
    (form,) = section.keys()
    return known[form], section.value(form), section.at(form)
