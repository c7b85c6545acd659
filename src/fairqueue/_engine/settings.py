"""What a client says and knows of its namespace's settings. The server owns them; only functions stay with who has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fairqueue.config import HIGHEST_QUANTUM, LOWEST_QUANTUM, SCHEDULERS, Options
from fairqueue.errors import ConfigurationError, SchemaMismatchError
from fairqueue.limits import Limit, from_settings, of_defaults, to_settings, with_functions
from fairqueue.retry import RetryPolicy
from fairqueue.validation import choice, integer, number

T = TypeVar("T")
_log = logging.getLogger("fairqueue")


@dataclass(frozen=True, slots=True)
class Known:
    """The settings as the server last told them, and what follows from them: replaced as a whole, never in parts.

    Whoever takes several of them, with the revision, without a pause in between, has what belongs together.
    """

    stored: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    damage: str = ""
    """Why the limits cannot be read: nothing may be enqueued then, or it would be counted by none."""

    @property
    def revision(self) -> str:
        """Another one at each change. '0': stored by a version that does not count them, or damaged."""
        return self.stored.get("revision") or "0"


def known(options: Options, stored: Mapping[str, str]) -> Known:
    """What is stored, with the functions of those limits and of that retry policy that this client declared itself.

    Where it was damaged claims and settles go on, as does the doctor, who mends it.
    """
    none: tuple[Limit, ...] = ()
    limits, damage = _readable(from_settings, stored.get("limits") or "[]", none)
    text = stored.get("retry")
    own = options.retry or RetryPolicy()
    retry, _ = (
        _readable(lambda told: RetryPolicy.from_settings(told, options.retry), text, own)
        if text
        else (own, "")
    )
    return Known(stored, with_functions(limits, options.limits or ()), retry, damage)


def _readable(read: Callable[[str], T], text: str, otherwise: T) -> tuple[T, str]:
    """What was read, or what holds otherwise and why it cannot be read."""
    try:
        return read(text), ""
    except ConfigurationError as error:
        _log.warning("%s (fairqueue doctor --fix mends it)", error)
        return otherwise, str(error)


def damaged(stored: Mapping[str, str], defaults: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Fields of the stored settings that cannot be read: the name, why, and what they are to hold instead.

    Of limits nothing but their ``defaults`` is known: their keys are told again by a client that declares them.
    """
    checks: dict[str, tuple[Callable[[str], object], str]] = {
        "limits": (from_settings, of_defaults(defaults)),
        "retry": (lambda text: text and RetryPolicy.from_settings(text), ""),
        "scheduler": (lambda text: choice("scheduler", text, SCHEDULERS), "fair"),
        "quantum": (_check_quantum, "1.0"),
        "max_attempts": (
            lambda text: integer("max_attempts", _number(text), 1),
            str(RetryPolicy().max_attempts),
        ),
        "max_crashes": (
            lambda text: integer("max_crashes", _number(text), 1),
            str(RetryPolicy().max_crashes),
        ),
        "dead_letters": (lambda text: choice("dead_letters", text, ("0", "1")), "1"),
    }
    found = []
    for name, (read, instead) in checks.items():
        try:
            if name in stored:
                read(stored[name])
        except ConfigurationError as error:
            found.append((name, str(error), instead))
    return found


def _check_quantum(text: str) -> None:
    try:
        value: object = float(text)
    except ValueError:
        value = text
    number("quantum", value, LOWEST_QUANTUM, HIGHEST_QUANTUM)


def _number(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() else text


def declared(options: Options) -> tuple[dict[str, str], list[tuple[str, int | None]]]:
    """What a client with these options declares, and the defaults of its limits."""
    said: dict[str, str] = {}
    if options.scheduler is not None:
        said["scheduler"] = options.scheduler
    if options.quantum is not None:
        said["quantum"] = repr(options.quantum)
    if options.dead_letters is not None:
        said["dead_letters"] = "1" if options.dead_letters else "0"
    if options.retry is not None:
        said["retry"] = options.retry.to_settings()
        said["max_attempts"] = str(options.retry.max_attempts)
        said["max_crashes"] = str(options.retry.max_crashes)
    if options.limits is not None:
        said["limits"] = to_settings(options.limits)
    return said, defaults(options.limits or ())


def defaults(limits: Sequence[Limit]) -> list[tuple[str, int | None]]:
    """The default of each limit by its name."""
    return [(limit.name, limit.default) for limit in limits]


def overruled(options: Options, stored: Mapping[str, str]) -> list[str]:
    """What this client declared and somebody else has replaced since."""
    return [name for name, value in declared(options)[0].items() if stored.get(name) != value]


def other_schema(said: str) -> SchemaMismatchError:
    """The error for a namespace that speaks another schema than ours; ``said`` names both."""
    return SchemaMismatchError(
        f"another version of fairqueue wrote this namespace ({said}): run the same version everywhere; "
        "a version with another number works under another name, once the old version has drained this one (docs: upgrading)"
    )
