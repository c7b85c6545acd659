"""Checks of single values, all with one voice: ``expected <option> to be <what>, got <value>``.

Every function takes the option's name first and the value second, returns the value in its normal form (a duration
as whole milliseconds, an identifier as a plain ``str``) and raises ``error``, a ``FairQueueError``, for anything
else. ``True`` and ``False`` are never numbers here, and neither NaN nor infinity is a value of any option.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fairqueue.errors import ConfigurationError, FairQueueError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "ENDINGS",
    "IDENTIFIER_BYTES",
    "LARGEST_INTEGER",
    "LONGEST_MS",
    "boolean",
    "callable_",
    "choice",
    "counted",
    "duration_ms",
    "expected",
    "identifier",
    "instant_ms",
    "integer",
    "namespace",
    "number",
    "said",
    "several",
    "shown",
]

ENDINGS: Final = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)
"""What ends a program or a task. Anything else that code of the application raises, a ``BaseException`` too (a panic of a
codec written in Rust is one), is a refusal of the one message it was asked about."""

IDENTIFIER_BYTES = 512
"""The longest tenant, queue, id, pool or group id, in bytes of UTF-8."""

LARGEST_INTEGER = 2**31 - 1
"""The largest count an option takes: far above any use, far below where the server's doubles lose integers."""

LONGEST_MS = 36_525 * 86_400_000
"""The longest duration an option takes, in milliseconds: 100 years of 365.25 days."""

_SHOWN_CHARACTERS = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f]"
)  # exactly Unicode's category Cc, which no later version can extend
_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_C = TypeVar("_C", bound="Callable[..., Any]")
_T = TypeVar("_T")


def shown(value: object) -> str:
    """The value for an error message: its ``repr`` on one line, shortened to 80 characters; never raises."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - a broken __repr__, or an int of too many digits
        return f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def said(error: BaseException) -> str:
    """The error's text; one that cannot be made, whatever is raised for it, must not keep a message in flight."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # noqa: BLE001 - whatever a user's __str__ raises
        return f"<its text raised {type(broken).__name__}>"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun, for people; ``plural`` where that is not the noun and an s.

    >>> counted(1, "message"), counted(2_000, "message"), counted(2, "entry", "entries")
    ('1 message', '2,000 messages', '2 entries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def expected(
    option: str, what: str, value: object, *, error: type[FairQueueError] = ConfigurationError
) -> FairQueueError:
    """The error to raise for a value that is not ``what``.

    >>> raise expected("shards", "1", 7)
    Traceback (most recent call last):
    fairqueue.errors.ConfigurationError: expected shards to be 1, got 7
    """
    return error(f"expected {option} to be {what}, got {shown(value)}")


def duration_ms(
    option: str, value: object, *, minimum_ms: int = 0, error: type[FairQueueError] = ConfigurationError
) -> int:
    """A ``timedelta``, or a number of seconds, as whole milliseconds.

    Rounded to the nearest millisecond, but a positive duration is never rounded away: it becomes 1 at least.
    Refused: anything under ``minimum_ms`` and anything over 100 years.
    """
    milliseconds = _milliseconds(value)
    if milliseconds is None or not minimum_ms <= milliseconds <= LONGEST_MS:
        raise expected(option, _duration_wanted(value, minimum_ms), value, error=error)
    return milliseconds


def _milliseconds(value: object) -> int | None:
    """Whole milliseconds; None for what is no duration, is NaN or is negative."""
    if isinstance(value, timedelta):
        exact = value / _MILLISECOND
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value > LONGEST_MS:  # infinity, or an int that no float can hold
            return LONGEST_MS + 1
        exact = value * 1000
    else:
        return None
    if not exact >= 0:  # NaN too; and before rounding: -0.1 ms is not zero
        return None
    return max(1, round(exact)) if exact > 0 else 0


def _duration_wanted(value: object, minimum_ms: int) -> str:
    wanted = "a duration of 0 or more" if minimum_ms <= 0 else "a positive duration"
    if minimum_ms > 1:
        wanted += f" of at least {minimum_ms / 1000:g} s"
    milliseconds = _milliseconds(value)
    if milliseconds is not None and milliseconds > LONGEST_MS:
        return wanted + " and at most 100 years"
    if isinstance(value, timedelta | int | float) and not isinstance(value, bool):
        return wanted
    return wanted + " (a timedelta, or a number of seconds)"


def instant_ms(
    option: str, value: object, *, latest: bool = False, error: type[FairQueueError] = ConfigurationError
) -> int:
    """An aware ``datetime`` as milliseconds since 1970 (UTC), rounded up: never earlier than the instant given.

    ``latest``: it is the end of something, and rounded down.

    A naive one is refused: it means another instant on another machine.
    """
    if not isinstance(value, datetime) or not isinstance(value.utcoffset(), timedelta):
        raise expected(option, "an aware datetime (one with a time zone)", value, error=error)
    microseconds = (value - _EPOCH) // _MICROSECOND
    return microseconds // 1000 if latest else -(-microseconds // 1000)


def identifier(option: str, value: object, *, error: type[FairQueueError] = ConfigurationError) -> str:
    """Non-empty text of at most 512 bytes of UTF-8, without control characters or lone surrogates.

    Colons, braces, ``*``, ``[``, spaces and emoji are ordinary characters; nothing is normalised or folded.
    """
    if not isinstance(value, str):
        raise expected(option, "text", value, error=error)
    if 0 < len(value) <= IDENTIFIER_BYTES and value.isascii() and value.isprintable():
        return value if type(value) is str else str.__str__(value)  # a str enum's member is its value
    fault = _identifier_fault(value)
    if fault is not None:
        raise expected(option, fault, value, error=error)
    return str.__str__(value)


def _identifier_fault(value: str) -> str | None:
    if not value:
        return "non-empty text"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "text without lone surrogates"
    if size > IDENTIFIER_BYTES:
        return f"text of at most {IDENTIFIER_BYTES} bytes of UTF-8 (this is {size})"
    return "text without control characters" if _CONTROL.search(value) else None


def integer(
    option: str,
    value: object,
    minimum: int,
    maximum: int | None = None,
    *,
    error: type[FairQueueError] = ConfigurationError,
) -> int:
    """An ``int`` from ``minimum`` to ``maximum``, both included; None for ``maximum``: no upper end."""
    if isinstance(value, int) and not isinstance(value, bool):
        whole = int(value)
        if whole >= minimum and (maximum is None or whole <= maximum):
            return whole
    wanted = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    raise expected(option, f"an integer {wanted}", value, error=error)


def number(
    option: str,
    value: object,
    minimum: float,
    maximum: float,
    *,
    error: type[FairQueueError] = ConfigurationError,
) -> float:
    """An ``int`` or ``float`` from ``minimum`` to ``maximum``, both included, as a ``float``."""
    if isinstance(value, int | float) and not isinstance(value, bool) and minimum <= value <= maximum:
        return float(value)
    raise expected(option, f"a number from {minimum:,g} to {maximum:,g}", value, error=error)


def boolean(option: str, value: object, *, error: type[FairQueueError] = ConfigurationError) -> bool:
    """``True`` or ``False`` themselves; no other truth is taken for them."""
    if isinstance(value, bool):
        return value
    raise expected(option, "True or False", value, error=error)


def namespace(option: str, value: object, *, error: type[FairQueueError] = ConfigurationError) -> str:
    """A name that is safe inside a key and a file name: 1 to 64 of ASCII letters, digits, ``.``, ``_`` and ``-``."""
    if isinstance(value, str) and _NAMESPACE.fullmatch(value):
        return str.__str__(value)
    raise expected(option, "1 to 64 ASCII letters, digits, '.', '_' or '-'", value, error=error)


def choice(
    option: str, value: object, choices: Sequence[str], *, error: type[FairQueueError] = ConfigurationError
) -> str:
    """One of ``choices``; the error lists them and says which one was probably meant."""
    if isinstance(value, str):
        if value in choices:
            return str.__str__(value)
        close = difflib.get_close_matches(value[:_SHOWN_CHARACTERS], choices, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
    else:
        hint = ""
    wanted = " or ".join(repr(one) for one in choices)
    raise error(f"expected {option} to be {wanted}, got {shown(value)}{hint}")


def callable_(option: str, value: _C, *, error: type[FairQueueError] = ConfigurationError) -> _C:
    """Something that can be called; what it takes and returns is checked when it is."""
    if callable(value):
        return value
    raise expected(option, "callable", value, error=error)


def several(
    option: str, value: object, kind: type[_T], *, error: type[FairQueueError] = ConfigurationError
) -> list[_T]:
    """A list of what an iterable gives, all of it of one type; a single one is no list of one."""
    if not isinstance(value, Iterable):
        raise expected(option, f"a list of {kind.__name__}", value, error=error)
    found = list(value)
    for one in found:
        if not isinstance(one, kind):
            raise expected(option, f"{kind.__name__} objects", one, error=error)
    return found
