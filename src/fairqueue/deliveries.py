"""The deliveries a worker has in hand: those whose handlers run, and those that are finished but not settled yet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic

from fairqueue.generics import P
from fairqueue.lease import Lease, failure, held
from fairqueue.lease_keeper import LeaseKeeper
from fairqueue.message import named
from fairqueue.running import Runner
from fairqueue.settlement import Settlement
from fairqueue.settling import Request

__all__ = ["Deliveries"]

_log = logging.getLogger("fairqueue")
_CANCELLATION_SECONDS = 10  # that cancelled handlers have to tidy up in


class Deliveries(Generic[P]):
    """Runs handlers in tasks and collects how their messages are to be settled.

    Args:
        runner: runs one handler.
        keeper: keeps the leases of running handlers alive.
        changed: called in the event loop when a handler has ended.
        patience: seconds that nothing is started for the sake of one message that is to run alone.
    """

    def __init__(
        self, runner: Runner, keeper: LeaseKeeper, changed: Callable[[], None], patience: float
    ) -> None:
        self._runner, self._keeper, self._changed, self._patience = runner, keeper, changed, patience
        self.running: dict[asyncio.Task[None], Lease[P]] = {}
        self.finished: list[Request] = []
        self._called_off: set[asyncio.Task[None]] = (
            set()
        )  # by us: lost leases, cancelled messages, the end of grace
        self._alone: Lease[P] | None = None  # runs with nobody beside it, or is to
        self._an_end = asyncio.Event()
        self._settling, self._closing = False, False
        self.released = 0
        """Messages given back by a worker that drains."""

    @property
    def secluded(self) -> bool:
        """A message runs alone, or is to: nothing may be started beside it."""
        return self._alone is not None

    def start(self, lease: Lease[P], alone: bool = False) -> None:
        """Runs the handler; its lease is kept alive until the message is settled.

        ``alone``: when the others have ended, and with nobody beside it; given back while another is alone. Both for so
        long only: others that do not end in time, or a message that hangs, must not hold the worker up.
        """
        if alone and self._alone is not None:
            self.refuse(lease)
            return
        if alone:
            self._alone = lease
        task = asyncio.ensure_future(self._work(lease))
        self.running[task] = lease
        loop = asyncio.get_running_loop()
        self._keeper.keep(lease, lambda: self._over(loop, task))
        task.add_done_callback(self._ended)

    def refuse(self, lease: Lease[P]) -> None:
        """It came when no more handlers were to start: released, uncounted."""
        self.finished.append((lease, Settlement("release")))

    def take_finished(self) -> list[Request]:
        """What is to be settled now; who cannot settle it puts it back."""
        finished, self.finished = self.finished, []
        self._settling = bool(finished)
        return finished

    def put_back(self, finished: list[Request]) -> None:
        """To be settled before all that has finished since."""
        self.finished[:0] = finished
        self._settling = False

    def settled(self, finished: list[Request], outcomes: Sequence[str]) -> None:
        """The server has answered for what was taken."""
        self._settling = False
        self._an_end.set()
        for (lease, settlement), outcome in zip(finished, outcomes, strict=True):
            self._keeper.drop(lease)
            self.released += self._closing and outcome == "released"
            _tell(lease, settlement, outcome)

    def open(self) -> None:
        """The worker runs (again)."""
        self._closing, self.released = False, 0

    def close(self) -> None:
        """Nothing is to be started any more; who still waits for the others to end is refused."""
        self._closing = True
        self._an_end.set()

    async def _others_ended(self) -> None:
        """And are settled: what was refused would expire, with a crash more, if the process were killed now."""
        while (len(self.running) > 1 or self.finished or self._settling) and not self._closing:
            self._an_end.clear()
            await self._an_end.wait()

    async def _may_begin(self, lease: Lease[P]) -> bool:
        """Waits until the message that is to run alone can."""
        with contextlib.suppress(TimeoutError):  # then it runs beside them: they have proved to be no killers
            await asyncio.wait_for(self._others_ended(), self._patience)
        if self._closing:
            self.refuse(lease)
            return False
        asyncio.get_running_loop().call_later(self._patience, self._join, lease)
        return True

    def _join(self, lease: Lease[P]) -> None:
        """Others may run beside it (again)."""
        if lease is self._alone:
            self._alone = None
            self._changed()

    async def _work(self, lease: Lease[P]) -> None:
        if lease is self._alone and not await self._may_begin(lease):
            return
        settlement = await self._runner.run(lease)
        if settlement is None:  # it was never started
            self._keeper.drop(lease)
            return
        settlement = held(lease).settlement or settlement  # the handler may have settled it itself
        # Done work whose lease was lost still ends the message if nobody has taken it since.
        if not lease.lost.is_set() or settlement.action == "complete":
            self.finished.append((lease, settlement))

    def _ended(self, task: asyncio.Task[None]) -> None:
        lease = self.running.pop(task)
        self._join(lease)
        self._an_end.set()
        ours = task in self._called_off
        self._called_off.discard(task)
        if task.cancelled() and not ours:
            # a cancel scope that leaks, say: released uncounted it would come back at once, for ever
            error = RuntimeError("the handler's task was cancelled from inside")
            self.finished.append((lease, self._runner.failed(lease, error)))
        elif task.cancelled() and not lease.lost.is_set():
            self.finished.append((lease, Settlement("release")))
        elif not task.cancelled() and (raised := task.exception()) is not None:
            self.finished.append((lease, failure(raised)))
        self._changed()

    def _call_off(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            self._called_off.add(task)
            task.cancel()

    def _over(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
        """Called in the keeper's thread: somebody else has the message, or it is cancelled. A thread sees that at its lease."""
        if self._runner.is_async:
            with contextlib.suppress(RuntimeError):  # the loop has just closed: nothing runs any more
                loop.call_soon_threadsafe(self._call_off, task)

    async def abandon(self, exits_after: bool) -> None:
        """What still runs: coroutines are cancelled, awaited, then released; threads only if the process ends."""
        leases = dict(self.running)
        for task, lease in leases.items():
            if self._runner.is_async or exits_after:
                self._call_off(task)
            else:
                self._leave(task, lease)
        if leases:
            await asyncio.wait(leases, timeout=_CANCELLATION_SECONDS)
            await asyncio.sleep(0)  # done callbacks: cancelled ones ask for their release

    def _leave(self, task: asyncio.Task[None], lease: Lease[P]) -> None:
        """A thread cannot be ended: released, its message would run twice at once."""
        task.remove_done_callback(self._ended)
        self.running.pop(task)
        self._join(lease)
        task.cancel()
        _log.warning(
            "message %r of tenant %r still runs in a thread: its lease will expire",
            lease.message.id,
            lease.message.tenant,
            extra=named(lease.message),
        )


def _tell(lease: Lease[Any], settlement: Settlement, outcome: str) -> None:
    """The ends that somebody has to look at."""
    message = lease.message
    if outcome == "lost":
        _log.warning(
            "message %r of tenant %r was finished after its lease was lost: it runs again",
            message.id,
            message.tenant,
            extra=named(message),
        )
    elif outcome == "cancelled":
        _log.info(
            "message %r of tenant %r was cancelled while it ran",
            message.id,
            message.tenant,
            extra=named(message),
        )
    elif outcome in ("dead", "dropped"):
        _log.error(
            "message %r of tenant %r is %s now: %s",
            message.id,
            message.tenant,
            "a dead letter" if outcome == "dead" else "out of tries and dropped",
            settlement.text or settlement.reason or "failed",
            extra=named(message),
        )
