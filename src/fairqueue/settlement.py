"""How one delivery is to end, before and after the server has answered."""

from __future__ import annotations

from dataclasses import dataclass

from fairqueue.outcomes import Outcome
from fairqueue.validation import said

__all__ = ["Settlement", "described"]


@dataclass(slots=True)
class Settlement:
    """What was asked for a lease, and what came of it; None while nobody knows yet.

    ``delay_ms`` None: the retry policy decides, by ``error``, when it is sent. ``seconds``: what the handler took, where
    tenants are charged for that.
    """

    action: str
    delay_ms: int | None = 0
    reason: str = ""
    text: str = ""
    error: BaseException | None = None
    seconds: float | None = None
    outcome: Outcome | None = None


def described(error: BaseException) -> str:
    """An exception's type and text."""
    return f"{type(error).__name__}: {said(error)}"
