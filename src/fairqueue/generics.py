"""The payload's type, which a queue carries from the producer to the handler."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # for checkers alone: it is not needed at run time

    # Without an annotation a queue takes any payload, also for a strict checker.
    P = TypeVar("P", default=Any)
    P_co = TypeVar("P_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    P = TypeVar("P")
    P_co = TypeVar("P_co", covariant=True)

__all__ = ["P", "P_co", "subscriptable"]

_T = TypeVar("_T")


def _refuse_assignment(self: object, name: str, *_value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to {name!r} of a {type(self).__name__}")


def subscriptable(cls: type[_T]) -> type[_T]:
    """Let ``Message[dict](...)`` work: before Python 3.13 it raises TypeError for a frozen dataclass with slots.

    ``typing`` tries to note the parameter on the new object and takes AttributeError for "it will not have it"; the
    ``__setattr__`` that dataclass generates fails otherwise, because adding slots replaces the class it refers to.
    """
    cls.__setattr__ = cls.__delattr__ = _refuse_assignment  # type: ignore[method-assign]
    return cls
