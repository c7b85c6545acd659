"""``FairQueue``: the asyncio client. Thin: it checks arguments and hands them to the engine's calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from fairqueue import producing
from fairqueue.claiming import claim_options
from fairqueue.client import Client
from fairqueue.clock import Clock
from fairqueue.config import Codec, Options
from fairqueue.consuming import Consumer
from fairqueue.dead_letters import DeadLetters
from fairqueue.generics import P
from fairqueue.lease import Lease, failure
from fairqueue.limits import Limit
from fairqueue.limits_control import LimitsControl
from fairqueue.message import Enqueued
from fairqueue.new_message import NewMessage
from fairqueue.outcomes import Outcome
from fairqueue.queue_controls import QueueControls
from fairqueue.retry import RetryPolicy
from fairqueue.settlement import Settlement
from fairqueue.settling import extend_each, settle_each
from fairqueue.tenants import Tenants
from fairqueue.url import resolved_url
from fairqueue.validation import duration_ms, several

__all__ = ["FairQueue"]


class FairQueue(QueueControls[P]):
    """Fair multi-tenant queues on a Valkey or Redis server.

    Every tenant gets its fair share of what is claimed, no limit group holds more slots than its limit, and no
    failure leaves a slot held for good. An object belongs to one event loop and is safe to use from any number
    of its tasks; after a fork it connects anew. Connects on first use, and again after a lost connection. Once
    closed it raises ``QueueClosedError``, until ``connect()`` or entering it opens it again, in any event loop.

    Args:
        url: ``redis://``, ``rediss://``, ``valkey://``, ``valkeys://``, ``unix://``, ``embedded:///path`` (a server of
            our own, shared by all processes that name the path) or ``embedded://`` (private, temporary). None:
            ``$FAIRQUEUE_URL``, else ``.fairqueue`` in the current directory.
        name: the namespace: two names never see each other.
        limits: what may run at once, for each limit group. None: what is stored under the name. What another client
            declares later holds for this one too, from its next call on.
        retry: what happens after a failure. None: what is stored, else exponential with 12 attempts.
        visibility_timeout: how long a lease lasts without an extend; a ``timedelta`` or seconds, at least 0.1.
        reclaim_interval: how often a worker looks for expired leases. 0: never by itself.
        reconcile_interval: how often a worker makes slots equal to leases again. 0: never by itself.
        scheduler: ``"fair"``, ``"drr"`` (deficit round robin) or, to compare with, ``"fifo"``. None: what is stored, else fair.
        codec: payloads to bytes and back; JSON by default.
        max_payload_bytes: larger encoded payloads are refused.
        dead_letters: False drops (and counts) what is out of tries. None: what is stored, else True.
        durability: ``"server"``, the only one: an enqueue that returned is as safe as the server's own settings make it.
        clock: ``fairqueue.testing.ManualClock`` in tests; None is the server's clock.
        quantum: of the scheduler ``"drr"``: what a tenant of weight 1 may be served in one turn, in cost units, 0.001 to
            1,000. None: what is stored, else 1.

    Raises:
        ConfigurationError: a wrong option, named with its value and what was expected.

    Example:
        >>> async with FairQueue(limits=[Limit("tenant", default=10)]) as queue:
        ...     await queue.enqueue({"invoice": 7}, tenant="acme")
        ...     for lease in await queue.claim(10, wait=1):
        ...         await lease.complete()
    """

    _engine: Client

    def __init__(
        self,
        url: str | None = None,
        name: str = "default",
        limits: Iterable[Limit] | None = None,
        retry: RetryPolicy | None = None,
        visibility_timeout: timedelta | float = 30,
        reclaim_interval: timedelta | float = 5,
        reconcile_interval: timedelta | float = 60,
        scheduler: str | None = None,
        shards: int | None = None,
        codec: Codec | None = None,
        max_payload_bytes: int = 1_048_576,
        dead_letters: bool | None = None,
        durability: str = "server",
        clock: Clock | None = None,
        quantum: float | None = None,
    ) -> None:
        self._options = Options.make(
            resolved_url(url) if url is None else url,
            name,
            limits=limits,
            retry=retry,
            visibility_timeout=visibility_timeout,
            reclaim_interval=reclaim_interval,
            reconcile_interval=reconcile_interval,
            scheduler=scheduler,
            shards=shards,
            codec=codec,
            max_payload_bytes=max_payload_bytes,
            dead_letters=dead_letters,
            durability=durability,
            clock=clock,
            quantum=quantum,
        )
        self._engine = Client(self._options)
        self._consumer: Consumer[P] = Consumer(self._engine)
        self.limits = LimitsControl(self._engine)
        self.tenants = Tenants(self._engine)
        self.dead_letters = DeadLetters(self._engine)

    # --- connecting ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:  # nobody calls __aexit__ then
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connects now rather than on first use; opens a queue that was closed.

        The first time it declares what the queue was made with; later it follows what is stored.

        Raises:
            QueueUnavailableError: the server cannot be reached. ConfigurationError: it cannot hold queues.
            SchemaMismatchError: another version of this library wrote the namespace.

        Example:
            >>> await queue.connect()
        """
        await self._engine.open()

    async def close(self) -> None:
        """Gives back, uncounted, what lost claims may have taken, and closes the connections.

        Calls that are under way end, leases that were handed over stay ours. Every later call raises
        ``QueueClosedError``, of leases too, until ``connect()``. A second close does nothing.

        Example:
            >>> await queue.close()
            >>> await queue.stats()
            Traceback (most recent call last):
            fairqueue.errors.QueueClosedError: the queue is closed: connect() it, or enter it again, to use it further
        """
        await self._consumer.close()
        await self._engine.close()

    @property
    def url(self) -> str:
        """Of the server in use; ``unix:///path/to/socket`` for an embedded one, once connected."""
        return self._engine.url or (self._options.url.text if self._options.url else "")

    @property
    def name(self) -> str:
        """The namespace."""
        return self._options.name

    # --- producing -------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        payload: P,
        *,
        tenant: str,
        queue: str = "default",
        id: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        max_attempts: int | None = None,
        pool: str = "default",
        priority: int = 0,
        cost: float = 1,
        expires: timedelta | float | datetime | None = None,
        on_expiry: str = "dead",
        dedupe_for: timedelta | float | None = None,
    ) -> Enqueued:
        """Stores one message; once this returned it is not lost. See ``NewMessage`` for the arguments.

        An id that the tenant still has, dead letters included, adds nothing: ``created`` is False and what is
        there keeps its payload. After an error, repeat with the same id: what the failed call stored is found, and not
        stored again, unless it was completed meanwhile (a completed message leaves nothing behind to find).

        Raises:
            InvalidMessageError: a wrong argument, or a payload that cannot be encoded; nothing is stored.
            PayloadTooLargeError: nothing is stored. QueueFullError: the server is out of memory, nothing is stored.
            BacklogFullError: the tenant has as many messages waiting as it may; nothing is stored.
            QueueUnavailableError: the server stayed away; the message may or may not be stored.
            ConfigurationError: a limit is computed by a function that only another program has; nothing is stored.
            SettingsChangedError: others declare different settings all the time; nothing is stored.

        Example:
            >>> sent = await queue.enqueue({"invoice": 7}, tenant="acme", delay=60)
        """
        message = NewMessage(
            payload,
            tenant=tenant,
            queue=queue,
            id=id,
            delay=delay,
            at=at,
            metadata=metadata,
            max_attempts=max_attempts,
            pool=pool,
            priority=priority,
            cost=cost,
            expires=expires,
            on_expiry=on_expiry,
            dedupe_for=dedupe_for,
        )
        (sent,) = await producing.enqueue_many(self._engine, [message])
        return sent

    async def enqueue_many(self, messages: Iterable[NewMessage[P]]) -> list[Enqueued]:
        """Stores messages of any tenants, in order, in as few round trips as their size allows.

        All are checked before the first is sent. An error after that may have stored some of them: repeat the same
        objects, they keep their ids; only what was completed meanwhile is stored again.

        Of a tenant whose backlog is bounded all new messages are stored, or none; of a batch of more than 500 messages, which
        goes in several calls, that holds for each call, and after a refusal nothing more of that tenant is sent. The
        messages of other tenants are stored, and the ids of all that are stand in the error's ``stored``.

        Raises:
            What ``enqueue`` raises. For a wrong argument or payload nothing is stored of any message.

        Example:
            >>> sent = await queue.enqueue_many(NewMessage(n, tenant="acme") for n in range(3))
            >>> [each.created for each in sent]
            [True, True, True]
        """
        return await producing.enqueue_many(self._engine, producing.listed(messages))

    # --- consuming by hand -----------------------------------------------------------------------------------

    async def claim(
        self,
        n: int = 1,
        wait: timedelta | float = 0,
        consumer: str | None = None,
        pools: Sequence[str] = ("default",),
        visibility_timeout: timedelta | float | None = None,
    ) -> list[Lease[P]]:
        """At most ``n`` leases, in fair order over all tenants; ``[]`` when nothing came within ``wait`` seconds.

        Pools are tried in the order given. A claimer that is cancelled gives back, uncounted, what it would have
        got. A message whose payload cannot be decoded goes to the dead letters; the others are handed over.

        Raises:
            ConfigurationError: a wrong argument. QueueUnavailableError: the server stayed away; what it may have
                given us comes with the next claim, or is delivered again when its lease expires.

        Example:
            >>> leases = await queue.claim(10, wait=5)
            >>> await queue.complete_many(leases)
            ['done', 'done']
        """
        options = claim_options(self._engine, n, consumer, pools, visibility_timeout)
        return await self._consumer.claim(options, duration_ms("wait", wait) / 1000)

    async def complete_many(self, leases: Sequence[Lease[P]]) -> list[Outcome]:
        """Completes all in one round trip; outcomes in order, ``"lost"`` instead of raising.

        Raises:
            ConfigurationError: that is no list of leases. QueueUnavailableError: the server stayed away; call again with
                the same leases, the queue recognises the repeated call.

        Example:
            >>> await queue.complete_many(leases)
            ['done', 'done']
        """
        return await settle_each([(lease, Settlement("complete")) for lease in _checked(leases)])

    async def fail_many(
        self, leases: Sequence[Lease[P]], error: BaseException | str | None = None
    ) -> list[Outcome]:
        """Fails all in one round trip; outcomes in order, ``"lost"`` instead of raising.

        Raises:
            ConfigurationError: that is no list of leases. QueueUnavailableError: the server stayed away; call again with
                the same leases, the queue recognises the repeated call.

        Example:
            >>> await queue.fail_many(leases, "the mail server is down")
            ['retried', 'retried']
        """
        return await settle_each([(lease, failure(error)) for lease in _checked(leases)])

    async def release_many(self, leases: Sequence[Lease[P]], delay: timedelta | float = 0) -> list[Outcome]:
        """Gives all back uncounted in one round trip; outcomes in order, ``"lost"`` instead of raising.

        Raises:
            ConfigurationError: that is no list of leases. QueueUnavailableError: the server stayed away; call again with
                the same leases, the queue recognises the repeated call.

        Example:
            >>> await queue.release_many(leases, delay=5)
            ['released', 'released']
        """
        delay_ms = duration_ms("delay", delay)
        return await settle_each([(lease, Settlement("release", delay_ms)) for lease in _checked(leases)])

    async def extend_many(self, leases: Sequence[Lease[P]]) -> list[Outcome]:
        """Extends all to a whole visibility timeout from now; ``"extended"`` or ``"lost"`` in order.

        Raises:
            ConfigurationError: that is no list of leases. QueueUnavailableError: the server stayed away; call again with
                the same leases, the queue recognises the repeated call.

        Example:
            >>> await queue.extend_many(leases)
            ['extended', 'extended']
        """
        return await extend_each(_checked(leases))


def _checked(leases: Sequence[Lease[P]]) -> list[Lease[P]]:
    """All are leases, before the first of them is touched."""
    return several("leases", leases, Lease)
