"""Whose time it is: the server's own, or a clock that a test holds in its hand."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from fairqueue.errors import ConfigurationError

__all__ = ["SERVER_CLOCK", "Clock", "ManualClock", "ServerClock", "from_ms"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: float) -> datetime:
    """An instant of the server's clock as an aware datetime in UTC; damaged ones past the year 9999 are its last.

    >>> from_ms(1_500)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + timedelta(milliseconds=min(milliseconds, _LAST_MS))


class Clock(Protocol):
    """What every script asks for the time."""

    def now_ms(self) -> int | None:
        """Milliseconds since 1970 (UTC), or None: the server reads its own clock inside the script."""
        ...


class ServerClock:
    """The server's clock, so that a client whose own clock is wrong by an hour changes nothing."""

    __slots__ = ()

    def now_ms(self) -> None:
        """None: the script asks the server."""

    def __repr__(self) -> str:
        return "SERVER_CLOCK"


SERVER_CLOCK: Final = ServerClock()


class ManualClock:
    """A clock that stands still until it is told to advance, for tests against a real server.

    Leases, delays and retries of a queue made with ``clock=ManualClock()`` follow it: a test of an hour's delay
    takes microseconds. Every client of one namespace must share the clock, or the server sees two times.
    Safe to use from several threads; it never goes back.

    >>> clock = ManualClock()
    >>> clock.advance(90)
    >>> clock.now
    datetime.datetime(2026, 1, 1, 0, 1, 30, tzinfo=datetime.timezone.utc)
    """

    def __init__(self, start: datetime = _DEFAULT_START) -> None:
        self._now = _aware(start).astimezone(UTC)
        self._lock = threading.Lock()

    @property
    def now(self) -> datetime:
        """The present instant, an aware datetime in UTC."""
        return self._now

    def now_ms(self) -> int:
        """The present instant in whole milliseconds since 1970 (UTC), rounded down."""
        return (self._now - _EPOCH) // _MILLISECOND

    def advance(self, duration: timedelta | float) -> None:
        """Move on by a ``timedelta`` or a number of seconds; a negative one raises ``ConfigurationError``."""
        step = _step(duration)
        with self._lock:
            try:
                self._now += step
            except OverflowError as error:
                raise ConfigurationError(f"the clock cannot advance by {duration!r}: no such year") from error

    def __repr__(self) -> str:
        return f"ManualClock({self._now.isoformat()})"


def _aware(start: object) -> datetime:
    if not isinstance(start, datetime) or start.utcoffset() is None:
        raise ConfigurationError(f"expected start to be an aware datetime, got {start!r}")
    if start < _EPOCH + _MILLISECOND:  # to the scripts 0 means: take the server's time
        raise ConfigurationError(f"expected start to be after 1970-01-01 00:00 UTC, got {start!r}")
    return start


def _step(duration: timedelta | float) -> timedelta:
    step: timedelta | None
    try:
        # A bool is no duration, and multiplying by NaN, infinity or text is what timedelta refuses by itself.
        step = duration if isinstance(duration, timedelta) else duration * timedelta(seconds=1)
    except (TypeError, ValueError, OverflowError):
        step = None
    if step is None or isinstance(duration, bool) or step < timedelta(0):
        raise ConfigurationError(
            f"expected duration to be 0 or more seconds or a timedelta, got {duration!r}"
        )
    return step
