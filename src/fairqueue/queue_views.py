"""What a queue shows of itself, and how it is kept whole: the half of ``FairQueue`` that moves no message by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Generic

from fairqueue import explain_call, fairness_call, inspect, lookup
from fairqueue._engine.engine import Engine
from fairqueue.explanation import Explanation
from fairqueue.fairness_report import FairnessReport
from fairqueue.generics import P
from fairqueue.maintenance.auditor import AuditReport, audit
from fairqueue.maintenance.reclaimer import ReclaimReport, reclaim
from fairqueue.maintenance.reconciler import ReconcileReport, reconcile
from fairqueue.message import MessageInfo
from fairqueue.states import QueueState, QueueStats, WorkerState
from fairqueue.tenants import Tenants
from fairqueue.validation import identifier

__all__ = ["QueueViews"]


class QueueViews(Generic[P]):
    """See ``FairQueue``."""

    _engine: Engine
    tenants: Tenants

    # --- looking ---------------------------------------------------------------------------------------------

    async def stats(self, tenant: str | None = None) -> QueueStats:
        """Counts of the namespace, or of one tenant (a fixed number of calls, whatever the number of tenants).

        Raises:
            QueueUnavailableError: the server stayed away.

        Example:
            >>> (await queue.stats("acme")).ready
            2
        """
        return await inspect.stats(self._engine) if tenant is None else await self.tenants.get(tenant)

    async def get(self, tenant: str, id: str) -> MessageInfo[P] | None:
        """One message wherever it is, or None.

        Raises:
            QueueUnavailableError: the server stayed away.

        Example:
            >>> (await queue.get("acme", "m1")).state
            <MessageState.READY: 'ready'>
        """
        return await lookup.get(self._engine, identifier("tenant", tenant), identifier("id", id))

    async def explain(self, tenant: str, id: str) -> Explanation:
        """Why the message is not running: everything that stops it, or whose turn comes first; ``print()`` it.

        True at one instant of the server, by the rules that a claim has. Reads only, in bounded work.

        Raises:
            MessageNotFoundError: there is no such message: it is gone (done, cancelled, purged or dropped), or was never enqueued.
            QueueUnavailableError: the server stayed away.

        Example:
            >>> print(await queue.explain("acme", "m1"))                        # doctest: +SKIP
            ready in queue mail of pool default since 2026-01-01 00:00:00 UTC, for 12.5 s
            limit tenant:acme is full, 1 of 1: held by acme/m0 (worker-1 since 2026-01-01 00:00:01 UTC)
            >>> why = await queue.explain("acme", "m2")
            >>> why.state, why.position, why.stops
            (<MessageState.READY: 'ready'>, 1, ())
        """
        return await explain_call.explain(self._engine, identifier("tenant", tenant), identifier("id", id))

    async def messages(
        self,
        tenant: str,
        queue: str | None = None,
        state: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[MessageInfo[P]], str | None]:
        """A page of a tenant's messages and the next page's cursor, or None at the end.

        Ready ones come first in the order of their lanes, then those in flight, delayed and dead. While the queue
        moves, a message may be seen twice or be missed, as in any list of a moving thing. A page may hold
        somewhat more or fewer than ``limit``.

        Args:
            tenant: whose.
            queue: of this queue alone.
            state: ``"ready"``, ``"in_flight"``, ``"delayed"`` or ``"dead"`` alone.
            limit: 1 to 10,000.
            cursor: of the page before.

        Raises:
            ConfigurationError: a wrong argument. QueueUnavailableError: the server stayed away.

        Example:
            >>> items, cursor = await queue.messages("acme", state="ready")
            >>> [item.message.id for item in items], cursor
            (['m1', 'm2'], None)
        """
        return await lookup.messages(self._engine, identifier("tenant", tenant), queue, state, limit, cursor)

    async def fairness(self, window: timedelta | float = 900) -> FairnessReport:
        """Who was served what in the last minutes, what each was entitled to, and how long messages waited.

        Entitlement is max-min fairness by weight, minute by minute, among those who had work in a pool, after what they were
        served by their guarantees: whoever waits competes, also at a full shared limit; whom its own limit or a pause kept
        out was entitled to what it received. Counted always, by the claims themselves, to the minute, for an hour.

        Args:
            window: how far back, in whole minutes of the server's clock, the running one included; 60 to 3,600 s.

        Raises:
            ConfigurationError: a wrong window. QueueUnavailableError: the server stayed away.

        Example:
            >>> report = await queue.fairness()
            >>> report.of("umbrella").received, round(report.jain, 3)           # doctest: +SKIP
            (2.0, 1.0)
        """
        return await fairness_call.fairness(self._engine, window)

    async def queues(self, tenant: str) -> AsyncIterator[QueueState]:
        """The tenant's queues that have ready messages.

        Raises:
            QueueUnavailableError: the server stayed away.

        Example:
            >>> [(state.queue, state.ready) async for state in queue.queues("acme")]
            [('default', 2)]
        """
        for state in await inspect.queues(self._engine, tenant):
            yield state

    async def workers(self) -> AsyncIterator[WorkerState]:
        """The workers that are alive.

        Raises:
            QueueUnavailableError: the server stayed away.

        Example:
            >>> [worker.name async for worker in queue.workers()]
            []
        """
        for state in await inspect.workers(self._engine):
            yield state

    # --- maintenance -----------------------------------------------------------------------------------------

    async def reclaim(self) -> ReclaimReport:
        """Sends every expired lease back at once, or, out of tries, to the dead letters; frees their slots.

        Raises:
            QueueUnavailableError: the server stayed away.

        Example:
            >>> await queue.reclaim()
            ReclaimReport(reclaimed=[], dead=[])
        """
        return await reclaim(self._engine)

    async def reconcile(self) -> ReconcileReport:
        """Makes slots and deadlines equal to the leases again; wakes whoever was blocked by what was freed.

        Raises:
            QueueUnavailableError: the server stayed away.

        Example:
            >>> (await queue.reconcile()).freed
            []
        """
        return await reconcile(self._engine)

    async def audit(self, fix: bool = False) -> AuditReport:
        """Checks KEEP, SLOTS, OWNER, MOVES and CLEAN on the live queue, in bounded steps; names every finding.

        With ``fix`` what is found is put right from the messages themselves.

        Raises:
            QueueUnavailableError: the server stayed away.

        Example:
            >>> (await queue.audit()).ok
            True
        """
        return await audit(self._engine, fix)
