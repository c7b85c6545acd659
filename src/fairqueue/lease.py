"""A lease: the right to work on one delivery of a message until a deadline, and the ways to end it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol

from fairqueue.errors import FairQueueError, LeaseLostError
from fairqueue.message import Message, P
from fairqueue.outcomes import Outcome
from fairqueue.validation import duration_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Lease", "Settlement", "from_ms"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_EXTENDS_PER_TIMEOUT = 4  # two in a row may be lost: the third comes before the deadline


def from_ms(milliseconds: float) -> datetime:
    """An instant of the server's clock as an aware datetime in UTC; damaged ones past the year 9999 are its last."""
    return _EPOCH + timedelta(milliseconds=min(milliseconds, _LAST_MS))


def described(error: BaseException) -> str:
    """An exception's type and text; one whose text cannot be made must not keep its message in flight."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 - whatever a user's __str__ raises
        text = f"<its text raised {type(broken).__name__}>"
    return f"{type(error).__name__}: {text}"


@dataclass(slots=True)
class Settlement:
    """What was asked for a lease, and what came of it; None while nobody knows yet."""

    action: str
    delay_ms: int = 0
    reason: str = ""
    text: str = ""
    outcome: Outcome | None = None


class Desk(Protocol):
    """Where leases are extended and settled (the queue that gave them)."""

    async def settle(self, requests: Sequence[tuple[Lease[Any], Settlement]]) -> list[Outcome]: ...

    async def extend(self, leases: Sequence[Lease[Any]]) -> list[Outcome]: ...

    def retry_delay_ms(self, attempt: int, error: BaseException | None) -> int: ...


class Lease(Generic[P]):
    """One delivery. Its token is new at every claim and greater, as text, than every earlier one of the message.

    A lease remembers its own end: asked again for the same, it answers the first outcome; asked for something
    else it raises ``LeaseLostError``. All settling methods raise ``LeaseLostError``, changing nothing, when the
    message has been taken back and given to somebody else, and ``QueueUnavailableError`` when the server stays
    away; then call again: the queue recognises the repeated call.

    Example:
        >>> for lease in await queue.claim(10, wait=5):
        ...     async with lease.keep_alive():
        ...         await send(lease.message.payload)
        ...     await lease.complete()
    """

    __slots__ = (
        "_desk",
        "consumer",
        "deadline",
        "lost",
        "message",
        "settlement",
        "sure_until",
        "token",
        "visibility_ms",
    )

    def __init__(
        self,
        desk: Desk,
        message: Message[P],
        token: str,
        deadline: datetime,
        visibility_ms: int,
        consumer: str,
        asked_at: float,
    ) -> None:
        self._desk = desk
        self.message = message
        self.token = token
        self.deadline = deadline
        self.visibility_ms = visibility_ms
        self.consumer = consumer
        self.lost = threading.Event()
        self.settlement: Settlement | None = None
        self.sure_until = 0.0
        self.renewed(asked_at)

    def __repr__(self) -> str:
        return f"<Lease {self.message.tenant!r}/{self.message.id!r} attempt {self.message.attempt} until {self.deadline}>"

    @property
    def settled(self) -> bool:
        """Its end is known: there is nothing left to extend or settle."""
        return self.settlement is not None and self.settlement.outcome is not None

    def renewed(self, asked_at: float) -> None:
        """The server gave a whole visibility timeout, some time after it was asked at this monotonic instant."""
        self.sure_until = asked_at + self.visibility_ms / 1000

    def sure_for(self, seconds: float = 0) -> bool:
        """By our own clock nobody can take the message for so long. Afterwards only the server knows."""
        return not self.lost.is_set() and time.monotonic() + seconds < self.sure_until

    async def extend(self) -> datetime:
        """Moves the deadline to now + the visibility timeout and returns it; revives an expired lease nobody reclaimed.

        Raises:
            LeaseLostError: somebody else has the message, or it is settled; ``lost`` is set.
        """
        (outcome,) = await self._desk.extend([self])
        if outcome == "lost":
            raise self._lost_error()
        return self.deadline

    async def complete(self) -> Outcome:
        """The work is done: the message is gone. Also ends a message whose lease expired, as long as nobody took it since."""
        return await self._settle(Settlement("complete"))

    async def fail(self, error: BaseException | str | None = None) -> Outcome:
        """The attempt failed: ``"retried"`` after the policy's delay, or ``"dead"`` (``"dropped"``) out of tries."""
        return await self._settle(self.failure(error))

    async def release(self, delay: timedelta | float = 0) -> Outcome:
        """Gives the message back to its place, or for later; the attempt is not counted."""
        return await self._settle(Settlement("release", duration_ms("delay", delay)))

    async def dead_letter(self, reason: str) -> Outcome:
        """Sends the message to the dead letters now, whatever tries are left."""
        return await self._settle(Settlement("dead", reason=reason, text=reason))

    @contextlib.asynccontextmanager
    async def keep_alive(self) -> AsyncIterator[Lease[P]]:
        """Extends the lease in the background while the body runs; ``lost`` is set when that fails for good."""
        keeper = asyncio.ensure_future(self._keep())
        try:
            yield self
        finally:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper

    async def _keep(self) -> None:
        while not self.lost.is_set():
            await asyncio.sleep(self.visibility_ms / 1000 / _EXTENDS_PER_TIMEOUT)
            if self.settled:
                return
            # away or lost; an expired lease is revived by the next extend
            with contextlib.suppress(FairQueueError):
                await self.extend()

    def failure(self, error: BaseException | str | None, delay_ms: int | None = None) -> Settlement:
        """The settlement of a failed attempt; the retry policy gives the delay unless one is given."""
        exception = error if isinstance(error, BaseException) else None
        text = described(exception) if exception else str(error or "")
        if delay_ms is None:
            delay_ms = self._desk.retry_delay_ms(self.message.attempt, exception)
        return Settlement("fail", delay_ms, text=text)

    async def _settle(self, asked: Settlement) -> Outcome:
        (outcome,) = await self._desk.settle([(self, asked)])
        if outcome == "lost":
            raise self._lost_error()
        return outcome

    def _lost_error(self) -> LeaseLostError:
        message = self.message
        return LeaseLostError(
            f"the lease of message {message.id!r} of tenant {message.tenant!r} (attempt {message.attempt}) "
            "is no longer ours"
        )
