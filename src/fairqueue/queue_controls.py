"""What an operator does to work that is there: the half of ``FairQueue`` that stops and ends messages."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairqueue import end_calls, pause_calls
from fairqueue.generics import P
from fairqueue.queue_views import QueueViews
from fairqueue.states import Cancelled, Pause

__all__ = ["QueueControls"]


class QueueControls(QueueViews[P]):
    """See ``FairQueue``."""

    # --- pausing ---------------------------------------------------------------------------------------------

    async def pause(
        self,
        tenant: str | None = None,
        queue: str | None = None,
        pool: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Starts nothing new of a tenant, a queue or a pool, from the next claim on, until it is resumed.

        Several selectors together are one pause of what has all of them. Each pause is independent of the others and of
        limits, and kept on the server: it outlives every restart. What is in flight goes on, and can be extended and
        settled; what comes back (by a release, a retry, a reclaim or a redrive) waits, as does what is enqueued.

        Args:
            tenant: whose messages, or None: of all tenants.
            queue: the queues of this name, or None: all.
            pool: the messages of this pool, or None: of all pools.
            by: who pauses, for others to read.
            reason: why.

        Returns:
            Whether it is new. One that stands already gets the new ``by`` and ``reason``, and keeps its ``since``.

        Raises:
            ConfigurationError: no selector, or one that can be no name. QueueFullError: the server is out of memory;
                nothing is paused. QueueUnavailableError: the server stayed away; call again.

        Example:
            >>> await queue.pause(tenant="acme", by="ops", reason="their API is down")
            True
        """
        return await pause_calls.pause(self._engine, (tenant, queue, pool), by, reason)

    async def resume(
        self, tenant: str | None = None, queue: str | None = None, pool: str | None = None
    ) -> bool:
        """Lifts the pause of exactly these selectors, and no other; idle workers start at once what may start now.

        The time paused brings a tenant neither credit nor debt.

        Returns:
            Whether there was such a pause.

        Raises:
            ConfigurationError: no selector, or one that can be no name. QueueUnavailableError: the server stayed away;
                call again: what was not let go yet, is then.

        Example:
            >>> await queue.pause(tenant="acme")
            True
            >>> await queue.resume(tenant="acme")
            True
        """
        return await pause_calls.resume(self._engine, (tenant, queue, pool))

    async def pauses(self) -> AsyncIterator[Pause]:
        """The pauses that stand, the oldest first.

        Raises:
            QueueUnavailableError: the server stayed away.

        Example:
            >>> await queue.pause(tenant="acme", by="ops")
            True
            >>> [(pause.tenant, pause.by) async for pause in queue.pauses()]
            [('acme', 'ops')]
        """
        async for pause in pause_calls.pauses(self._engine):
            yield pause

    # --- ending messages -------------------------------------------------------------------------------------

    async def cancel(self, tenant: str, id: str) -> Cancelled:
        """Ends one message, wherever it is.

        * ``"cancelled"``: it was ready, delayed or a dead letter, and is gone.
        * ``"cancelling"``: it runs. Its holder is told by the next extend (``lease.cancelled`` is set; a worker cancels an
          async handler), and its delivery is its last: a ``fail``, ``release``, ``dead_letter`` or an expired lease
          ends it as ``"cancelled"``. Only a ``complete`` still counts as done.
        * ``"not_found"``: there is no such message.

        Atomic against a claim: a message whose cancel returned ``"cancelled"`` is never delivered afterwards.

        Raises:
            ConfigurationError: that can be no tenant or id. QueueUnavailableError: the server stayed away; call again.

        Example:
            >>> await queue.cancel("acme", "m1")
            'cancelled'
        """
        return await end_calls.cancel(self._engine, tenant, id)

    async def purge(self, tenant: str, queue: str | None = None) -> int:
        """Ends all messages of a tenant, or of one queue of it, that wait: ready or delayed; how many.

        What runs goes on, dead letters stay (``dead_letters.purge``), and so does what is enqueued or redriven after the
        call began. It is done in steps of 50 messages: others are served in between. After an error, call again: what
        is gone is gone, and the rest goes then.

        Raises:
            ConfigurationError: that can be no tenant or queue. QueueUnavailableError: the server stayed away; call again.

        Example:
            >>> await queue.purge("acme")
            2
        """
        return await end_calls.purge(self._engine, tenant, queue)
