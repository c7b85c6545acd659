"""A lease: the right to work on one delivery of a message until a deadline, and the ways to end it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol

from fairqueue.errors import LeaseLostError
from fairqueue.generics import P
from fairqueue.message import Message
from fairqueue.outcomes import Outcome
from fairqueue.settlement import Settlement, described
from fairqueue.validation import duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["EXTENDS_PER_TIMEOUT", "Desk", "Held", "Lease", "failure", "held"]

EXTENDS_PER_TIMEOUT = 4  # two in a row may be lost: the third comes before the deadline


class Desk(Protocol):
    """Where leases are extended and settled (the queue that gave them)."""

    async def settle(self, requests: Sequence[tuple[Lease[Any], Settlement]]) -> list[Outcome]:
        """Ends deliveries; "lost" where the lease was not ours any more."""
        ...

    async def extend(self, leases: Sequence[Lease[Any]]) -> list[Outcome]:
        """Extends them to their full visibility timeout; "lost" as above."""
        ...


class Held:
    """What the queue keeps with a lease for itself.

    Args:
        desk: where the lease is extended and settled.
        visibility_ms: how long it lasts without an extend.
        consumer: who claimed.
        asked_at: the monotonic instant before the claim was sent.
    """

    __slots__ = (
        "_began_at",
        "_clock",
        "_took",
        "begun",
        "consumer",
        "desk",
        "settlement",
        "sure_until",
        "visibility_ms",
    )

    def __init__(self, desk: Desk, visibility_ms: int, consumer: str, asked_at: float) -> None:
        self.desk, self.visibility_ms, self.consumer = desk, visibility_ms, consumer
        self.settlement: Settlement | None = None
        self.begun = False  # a handler, or what the lease was kept alive for
        self._clock: Callable[[], float] | None = None
        self._began_at = 0.0
        self._took: float | None = None
        self.sure_until = 0.0
        self.renewed(asked_at)

    def begin(self, clock: Callable[[], float] | None = None) -> None:
        """The work begins; with a clock it is measured, in seconds, until ``end()``."""
        self._began_at = clock() if clock else 0.0
        self.begun, self._clock = True, clock

    def end(self) -> None:
        """The work is over, however it ended: the first time that somebody says so."""
        self._took = self.seconds

    @property
    def seconds(self) -> float | None:
        """What the work took, or has taken so far; None where that is not measured."""
        if self._clock is None or self._took is not None:
            return self._took
        return max(0.0, self._clock() - self._began_at)

    @property
    def visibility(self) -> float:
        """How long it lasts without an extend, in seconds."""
        return self.visibility_ms / 1000

    @property
    def settled(self) -> bool:
        """Its end is known: there is nothing left to extend or settle."""
        return self.settlement is not None and self.settlement.outcome is not None

    def renewed(self, asked_at: float) -> None:
        """The server gave a whole visibility timeout, some time after it was asked at this monotonic instant."""
        self.sure_until = asked_at + self.visibility

    def sure_for(self, seconds: float = 0) -> bool:
        """By our own clock nobody can take the message for so long. Afterwards only the server knows."""
        return time.monotonic() + seconds < self.sure_until


class Lease(Generic[P]):
    """One delivery. Its token is new at every claim and greater, as text, than every earlier one of the message.

    A lease remembers its own end: asked again for the same, it answers the first outcome; asked for something
    else it raises ``LeaseLostError``. All settling methods raise ``LeaseLostError``, changing nothing, when the
    message has been taken back and given to somebody else, and ``QueueUnavailableError`` when the server stays
    away; then call again: the queue recognises the repeated call.

    ``lost`` is set when an extend or a settle found that it is not ours any more; ``cancelled`` when one found that its
    message was cancelled (``FairQueue.cancel``): then it ends with this delivery, as ``"done"`` if it is completed and as
    ``"cancelled"`` however else.

    Example:
        >>> for lease in await queue.claim(10, wait=5):
        ...     async with lease.keep_alive():
        ...         await send(lease.message.payload)
        ...     await lease.complete()
    """

    __slots__ = ("_held", "cancelled", "deadline", "lost", "message", "token")

    def __init__(self, message: Message[P], token: str, deadline: datetime, held: Held) -> None:
        self.message = message
        self.token = token
        self.deadline = deadline
        self.lost = threading.Event()
        self.cancelled = threading.Event()
        self._held = held

    def __repr__(self) -> str:
        return f"<Lease {self.message.tenant!r}/{self.message.id!r} attempt {self.message.attempt} until {self.deadline}>"

    async def extend(self) -> datetime:
        """Moves the deadline to now + the visibility timeout and returns it; revives an expired lease nobody reclaimed.

        Sets ``cancelled`` when the message was cancelled meanwhile; the lease lives on, for the handler to tidy up.

        Raises:
            LeaseLostError: somebody else has the message, or it is settled; ``lost`` is set.
            QueueUnavailableError: the server stayed away; the lease may still be ours.

        Example:
            >>> deadline = await lease.extend()
        """
        (outcome,) = await self._held.desk.extend([self])
        if outcome == "lost":
            raise self._lost_error()
        return self.deadline

    async def complete(self) -> Outcome:
        """The work is done: the message is gone. Also ends a message whose lease expired, as long as nobody took it since.

        Raises:
            LeaseLostError: it is no longer ours, or was ended otherwise; nothing was changed.
            QueueUnavailableError: the server stayed away; call again.

        Example:
            >>> await lease.complete()
            'done'
        """
        return await self._settle(Settlement("complete"))

    async def fail(self, error: BaseException | str | None = None) -> Outcome:
        """The attempt failed: ``"retried"`` after the policy's delay, or ``"dead"`` (``"dropped"``) out of tries.

        Raises:
            LeaseLostError: it is no longer ours, or was ended otherwise; nothing was changed.
            QueueUnavailableError: the server stayed away; call again.

        Example:
            >>> await lease.fail("the mail server is down")
            'retried'
        """
        return await self._settle(failure(error))

    async def release(self, delay: timedelta | float = 0) -> Outcome:
        """Gives the message back to its place, or for later; the attempt is not counted.

        With nothing begun (no ``keep_alive()`` was entered) the tenant also gets back what it was charged, the first time
        that the message is given back. With a delay that holds for 100 messages of the tenant in a row: then the others
        have their turns, until one of its messages has completed.

        Raises:
            LeaseLostError: it is no longer ours, or was ended otherwise; nothing was changed.
            QueueUnavailableError: the server stayed away; call again.

        Example:
            >>> await lease.release(delay=5)
            'released'
        """
        return await self._settle(Settlement("release", duration_ms("delay", delay)))

    async def dead_letter(self, reason: str) -> Outcome:
        """Sends the message to the dead letters now, whatever tries are left.

        Raises:
            LeaseLostError: it is no longer ours, or was ended otherwise; nothing was changed.
            QueueUnavailableError: the server stayed away; call again.

        Example:
            >>> await lease.dead_letter("the account was deleted")
            'dead'
        """
        return await self._settle(Settlement("dead", reason=reason, text=reason))

    @contextlib.asynccontextmanager
    async def keep_alive(self) -> AsyncIterator[Lease[P]]:
        """Extends the lease in the background while the body runs; ``lost`` is set when that fails for good.

        In the event loop: a body that blocks it is not kept alive (a ``Worker``'s handler is, by a thread).

        Example:
            >>> async with lease.keep_alive():
            ...     await send(lease.message.payload)
        """
        self._held.begin()
        keeper = asyncio.ensure_future(self._keep())
        try:
            yield self
        finally:
            keeper.cancel()
            await asyncio.wait(
                [keeper]
            )  # awaiting the keeper itself could take a cancellation of the caller for its end

    async def _keep(self) -> None:
        while not self.lost.is_set():
            await asyncio.sleep(self._held.visibility / EXTENDS_PER_TIMEOUT)
            if self._held.settled:
                return
            # away or lost, or whatever it is: an expired lease is revived by the next extend
            with contextlib.suppress(Exception):
                await self.extend()

    async def _settle(self, asked: Settlement) -> Outcome:
        (outcome,) = await self._held.desk.settle([(self, asked)])
        if outcome == "lost":
            raise self._lost_error()
        return outcome

    def _lost_error(self) -> LeaseLostError:
        message = self.message
        return LeaseLostError(
            f"the lease of message {message.id!r} of tenant {message.tenant!r} (attempt {message.attempt}) "
            "is no longer ours"
        )


def held(lease: Lease[Any]) -> Held:
    """What the queue keeps with the lease, for the other parts of this package."""
    return lease._held  # noqa: SLF001 - the only way in


def failure(error: BaseException | str | None, delay_ms: int | None = None) -> Settlement:
    """The settlement of a failed attempt; without a delay the retry policy in force when it is sent gives one."""
    exception = error if isinstance(error, BaseException) else None
    text = described(exception) if exception else str(error or "")
    return Settlement("fail", delay_ms, text=text, error=exception)
