"""How one delivery is to end, before and after the server has answered."""

from __future__ import annotations

from dataclasses import dataclass

from fairqueue.outcomes import Outcome

__all__ = ["Settlement", "described"]


@dataclass(slots=True)
class Settlement:
    """What was asked for a lease, and what came of it; None while nobody knows yet.

    ``delay_ms`` None: the retry policy decides, by ``error``, when it is sent.
    """

    action: str
    delay_ms: int | None = 0
    reason: str = ""
    text: str = ""
    error: BaseException | None = None
    outcome: Outcome | None = None


def described(error: BaseException) -> str:
    """An exception's type and text; one whose text cannot be made must not keep its message in flight."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 - whatever a user's __str__ raises
        text = f"<its text raised {type(broken).__name__}>"
    return f"{type(error).__name__}: {text}"
