"""How a delivery ends, and the exceptions by which a handler chooses the end itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fairqueue.validation import duration_ms

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["DeadLetterNow", "HandlerSignal", "Outcome", "Release", "Retry"]

Outcome = Literal["done", "retried", "dead", "dropped", "released", "cancelled", "lost", "extended"]
"""What a settle did.

``done``: completed and gone. ``retried``: delayed by the policy. ``dead``: among the dead letters. ``dropped``: out
of tries where dead letters are off. ``released``: back in its place, the attempt not counted. ``cancelled``: ended by
an earlier cancel. ``extended``: ours until a new deadline (from ``extend_many``). ``lost``: nothing was changed, the
lease is no longer ours (only the ``*_many`` calls return it; the others raise ``LeaseLostError``).
"""


class HandlerSignal(Exception):  # noqa: N818 - not an error: a handler's choice
    """The base of what a handler raises to choose its message's outcome."""


class Retry(HandlerSignal):
    """Count this attempt as failed and try again after ``delay``, or die if the tries are used up.

    Args:
        delay: a ``timedelta`` or seconds; None leaves it to the retry policy.
        reason: kept with the message as its last error.

    A negative or endless delay raises ``ConfigurationError``, which then counts as the handler's failure.

    >>> raise Retry(delay=30, reason="the API is busy")
    Traceback (most recent call last):
    fairqueue.outcomes.Retry: the API is busy
    """

    delay_ms: int | None
    reason: str | None

    def __init__(self, delay: timedelta | float | None = None, reason: str | None = None) -> None:
        super().__init__(delay, reason)  # the arguments themselves: copies and pickles are made from them
        self.delay_ms = None if delay is None else duration_ms("delay", delay)
        self.reason = None if reason is None else _text(reason)

    def __str__(self) -> str:
        return self.reason or "retry asked for by the handler"


class Release(HandlerSignal):
    """Give the message back without counting the attempt, to be claimed again after ``delay``.

    Args:
        delay: a ``timedelta`` or seconds; 0 puts it back in its place at once.

    >>> raise Release(delay=5)
    Traceback (most recent call last):
    fairqueue.outcomes.Release: release asked for by the handler
    """

    delay_ms: int

    def __init__(self, delay: timedelta | float = 0) -> None:
        super().__init__(delay)
        self.delay_ms = duration_ms("delay", delay)

    def __str__(self) -> str:
        return "release asked for by the handler"


class DeadLetterNow(HandlerSignal):
    """Move the message to the dead letters at once, whatever tries are left.

    Args:
        reason: why, for whoever looks at the dead letter.

    >>> raise DeadLetterNow("the account was deleted")
    Traceback (most recent call last):
    fairqueue.outcomes.DeadLetterNow: the account was deleted
    """

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = _text(reason)

    def __str__(self) -> str:
        return self.reason


def _text(reason: object) -> str:
    """Text the server can hold. A handler's choice is never lost to an odd reason: an exception, a lone surrogate."""
    return str(reason).encode("utf-8", "backslashreplace").decode()
