"""The deliveries a worker has in hand: those whose handlers run, and those that are finished but not settled yet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Generic

from fairqueue.generics import P
from fairqueue.lease import Lease, failure, held
from fairqueue.lease_keeper import LeaseKeeper
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
    """

    def __init__(self, runner: Runner, keeper: LeaseKeeper, changed: Callable[[], None]) -> None:
        self._runner, self._keeper, self._changed = runner, keeper, changed
        self.running: dict[asyncio.Task[None], Lease[P]] = {}
        self.finished: list[Request] = []
        self._called_off: set[asyncio.Task[None]] = set()  # by us: lost leases, the end of grace

    def start(self, lease: Lease[P]) -> None:
        """Runs the handler; its lease is kept alive until the message is settled."""
        task = asyncio.ensure_future(self._work(lease))
        self.running[task] = lease
        loop = asyncio.get_running_loop()
        self._keeper.keep(lease, lambda: self._lease_lost(loop, task))
        task.add_done_callback(self._ended)

    def refuse(self, lease: Lease[P]) -> None:
        """It came when no more handlers were to start: released, uncounted."""
        self.finished.append((lease, Settlement("release")))

    def take_finished(self) -> list[Request]:
        """What is to be settled now; who cannot settle it puts it back."""
        finished, self.finished = self.finished, []
        return finished

    def put_back(self, finished: list[Request]) -> None:
        """To be settled before all that has finished since."""
        self.finished[:0] = finished

    def settled(self, lease: Lease[Any], outcome: str) -> None:
        """The server has answered."""
        self._keeper.drop(lease)
        if outcome == "lost":
            _log.warning(
                "message %r of tenant %r was finished after its lease was lost: it runs again",
                lease.message.id,
                lease.message.tenant,
            )

    async def _work(self, lease: Lease[P]) -> None:
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
        ours = task in self._called_off
        self._called_off.discard(task)
        if task.cancelled() and not ours:
            # a cancel scope that leaks, say: released uncounted it would come back at once, for ever
            self.finished.append((lease, failure(lease, "the handler's task was cancelled from inside")))
        elif task.cancelled() and not lease.lost.is_set():
            self.finished.append((lease, Settlement("release")))
        elif not task.cancelled() and (error := task.exception()) is not None:
            self.finished.append((lease, failure(lease, error)))
        self._changed()

    def _call_off(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            self._called_off.add(task)
            task.cancel()

    def _lease_lost(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
        """Called in the keeper's thread: somebody else has the message. A thread sees ``current_lease().lost``."""
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
        task.cancel()
        _log.warning(
            "message %r of tenant %r still runs in a thread: its lease will expire",
            lease.message.id,
            lease.message.tenant,
        )
