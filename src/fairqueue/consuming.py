"""Claiming, extending and settling: thin over the engine's calls, with their replay after lost replies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from fairqueue._engine.calls import Call, SettleRow, Stream
from fairqueue._engine.engine import Engine
from fairqueue._engine.replies import Claimed, ClaimedMessage
from fairqueue.codec import BodyError, decode_payload, unpack_body
from fairqueue.errors import FairQueueError
from fairqueue.lease import Lease, Settlement, from_ms
from fairqueue.maintenance.reconciler import repair_groups
from fairqueue.message import Message, P
from fairqueue.outcomes import Outcome

T = TypeVar("T")
_log = logging.getLogger("fairqueue")

SETTLE_CHUNK = 500
MAX_ROUNDS = 10_000  # of a claim that is told to look again: each round parks up to 200 lanes for good
_CLOSE_SECONDS = 1.0  # that close() may take to give back what lost claims took
_FRESHENINGS = 3  # of leases whose answer came late; a server that slow is the caller's to judge
BURIAL = 1.0  # seconds a claim waits until what it could not decode is among the dead letters
IDLE_LOOK = 1.0  # seconds after which an idle waiter looks by itself, should a wake-up have been lost


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """How a claim is made: at most ``n`` from ``pools`` in the order given."""

    n: int
    pools: tuple[str, ...]
    consumer: str
    visibility_ms: int

    def of(self, n: int) -> ClaimOptions:
        """The same for another number."""
        return replace(self, n=n)


@dataclass(slots=True)
class _Batch:
    """One settle call. Until it is answered it may be sent again as it was: it is answered as the first time."""

    stream: Stream
    items: list[tuple[Lease[Any], Settlement]]
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    answered: bool = False


class Consumer(Generic[P]):
    """The consuming half of a queue, shared by ``FairQueue`` and its leases."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[int, _Batch] = {}  # id(lease) -> the settle call it is in, until that is answered
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unanswered: ClaimOptions | None = None  # of the last claim that was not answered
        self._giving_back = False
        self._mending: set[str] = set()  # groups under repair beside the claims that found them
        self.next_due_ms: int | None = None
        engine.forget_parent = self._forget_parent

    def _forget_parent(self) -> object:
        inherited = (self._open, self._tasks)
        self._open, self._tasks, self._mending, self._unanswered = {}, set(), set(), None
        return inherited

    # --- claiming --------------------------------------------------------------------------------------------

    async def claim(self, options: ClaimOptions, wait: float) -> list[Lease[P]]:
        """At most ``options.n`` leases; waits up to ``wait`` seconds for the first."""
        give_up = time.monotonic() + wait
        while True:
            leases = await self.claim_now(options)
            left = give_up - time.monotonic()
            if leases or left <= 0:
                return leases
            await self._engine.bell(options.pools).wait(min(left, self.idle_seconds()))

    def idle_seconds(self) -> float:
        """How long an idle claimer may wait for the bell: until the next due message, at most a second."""
        due = self.next_due_ms
        return IDLE_LOOK if due is None else min(IDLE_LOOK, max(due, 1) / 1000)

    async def claim_now(self, options: ClaimOptions) -> list[Lease[P]]:
        """One look. Cancelled, it gives back uncounted what it was about to hand over."""
        _, leases = await self.exchange([], options)
        return leases

    async def exchange(
        self, requests: Sequence[tuple[Lease[Any], Settlement]], options: ClaimOptions
    ) -> tuple[list[Outcome], list[Lease[P]]]:
        """Settles and claims, both in one round trip."""
        task = self._start(self._exchange(requests, options))
        try:
            outcomes, leases = await asyncio.shield(task)
            return outcomes, await self._still_ours(leases)
        except asyncio.CancelledError:
            self._start(self._give_back(task))
            raise

    async def _still_ours(self, leases: list[Lease[P]]) -> list[Lease[P]]:
        """What was asked for long ago may have expired, and be somebody else's, before anybody read the answer.

        The process was frozen, say, or its event loop blocked. Nobody kept these leases alive meanwhile.
        """
        for _ in range(_FRESHENINGS):
            aged = [lease for lease in leases if not lease.sure_for(lease.visibility_ms / 1000 / 2)]
            if not aged:
                break
            try:
                await self.extend(aged)
            except FairQueueError:
                break  # away again: handed over, to be extended when it is back
            leases = [lease for lease in leases if not lease.lost.is_set()]
        return leases

    async def _exchange(
        self, requests: Sequence[tuple[Lease[Any], Settlement]], options: ClaimOptions
    ) -> tuple[list[Outcome], list[Lease[P]]]:
        batches = self._batches(requests)
        for batch in batches[1:]:
            await self._send(batch)
        asked_at = time.monotonic()
        claimed = await self._claim_round(options, batches[0] if batches else None)
        leases = await self._hand_over(claimed, options, asked_at)
        mended: set[str] = set()
        for _ in range(MAX_ROUNDS):
            dirty = set(claimed.dirty) - mended
            if leases:
                self._mend_aside(dirty)
            elif dirty:
                mended |= dirty
                await repair_groups(self._engine, dirty)
            elif not (claimed.again or claimed.messages):
                break
            if leases and (not claimed.again or len(leases) >= options.n):
                break
            asked_at = time.monotonic()
            try:
                claimed = await self._claim_round(options.of(options.n - len(leases)), None)
            except FairQueueError:
                if not leases:
                    raise
                break  # what came before the trouble is handed over
            leases += await self._hand_over(claimed, options, asked_at)
        return [_answer(lease, asked) for lease, asked in requests], leases

    def _mend_aside(self, dirty: set[str]) -> None:
        """Repairs groups that kept others out while this claim got something; its leases need not wait for that.

        Left to a claim that gets nothing, who waits there would starve while others have work.
        """
        if new := dirty - self._mending:
            self._mending |= new
            self._start(repair_groups(self._engine, new)).add_done_callback(
                lambda _: self._mending.difference_update(new)
            )

    async def _claim_round(self, options: ClaimOptions, batch: _Batch | None) -> Claimed:
        await self._engine.connect()
        streams = self._engine.claim_streams
        stream = streams.take(options.pools)
        call = self._engine.calls.claim(
            stream, options.n, options.visibility_ms, options.consumer, options.pools
        )
        try:
            answer = await self._send_together(call, batch)
        except BaseException:
            streams.unanswered(stream, options.n, options.pools)
            self._unanswered = options
            raise
        streams.answered(stream, options.n, len(answer.messages))
        if (owing := streams.owing) and owing.pools != options.pools and not self._giving_back:
            # the server answers again; nobody may claim on those pools for long
            self._giving_back = True
            self._start(self._give_back_owed(options)).add_done_callback(self._gave_back)
        self.next_due_ms = answer.next_due_ms
        return answer

    def _gave_back(self, _task: asyncio.Task[None]) -> None:
        self._giving_back = False

    async def _send_together(self, claim: Call[Claimed], batch: _Batch | None) -> Claimed:
        if batch is None:
            return await self._engine.connection.run(claim)
        async with batch.sending:
            if batch.answered:  # meanwhile, to somebody else: sent again it would count as a new call
                return await self._engine.connection.run(claim)
            settled, answer = await self._engine.connection.run_all([self._settle_call(batch), claim])
            self._note_outcomes(batch, settled)
        if isinstance(answer, Exception):
            raise answer
        return cast("Claimed", answer)

    async def _hand_over(self, claimed: Claimed, options: ClaimOptions, asked_at: float) -> list[Lease[P]]:
        """Leases with decoded messages. An unreadable one goes to the dead letters; the others of its batch run."""
        leases: list[Lease[P]] = []
        unreadable: list[tuple[Lease[Any], Settlement]] = []
        for message in claimed.messages:
            try:
                leases.append(self._lease(message, self._decoded(message), options, asked_at))
            except BodyError as error:
                lease: Lease[Any] = self._lease(message, self._bare(message), options, asked_at)
                unreadable.append((lease, Settlement("dead", reason="undecodable", text=str(error))))
                _log.error("message %r of %r cannot be decoded: %s", message.id, message.tenant, error)
        if unreadable:
            # The readable ones must not wait, leased, for a server that has gone away meanwhile.
            await asyncio.wait([self._start(self._settle(unreadable))], timeout=BURIAL)
        return leases

    def _decoded(self, claimed: ClaimedMessage) -> Message[P]:
        if claimed.body is None:
            raise BodyError("the stored payload is missing")
        metadata, payload = unpack_body(claimed.body)
        return message_of(claimed.id, claimed.header, metadata, decode_payload(self._engine.codec, payload))

    def _bare(self, claimed: ClaimedMessage) -> Message[Any]:
        return message_of(claimed.id, claimed.header, {}, None)

    def _lease(
        self, claimed: ClaimedMessage, message: Message[Any], options: ClaimOptions, asked_at: float
    ) -> Lease[Any]:
        return Lease(
            self,
            message,
            claimed.token,
            from_ms(claimed.deadline),
            options.visibility_ms,
            options.consumer,
            asked_at,
        )

    async def _give_back(self, task: asyncio.Task[tuple[list[Outcome], list[Lease[P]]]]) -> None:
        """The claimer was cancelled: what it would have got is released, uncounted."""
        with contextlib.suppress(FairQueueError, asyncio.CancelledError):
            _, leases = await task
            await self.settle([(lease, Settlement("release")) for lease in leases])

    # --- extending and settling ------------------------------------------------------------------------------

    async def extend(self, leases: Sequence[Lease[Any]]) -> list[Outcome]:
        """Extends all to their full visibility timeout; a lost lease is marked."""
        for (visibility_ms, consumer), group in _by_timeout(leases).items():
            named = [(lease.message.tenant, lease.message.id, lease.token) for lease in group]
            asked_at = time.monotonic()
            deadlines = await self._engine.run(self._engine.calls.extend(named, visibility_ms, consumer))
            for lease, deadline in zip(group, deadlines, strict=True):
                if deadline is None:
                    lease.lost.set()
                else:
                    lease.deadline = from_ms(deadline)
                    lease.renewed(asked_at)
        return ["lost" if lease.lost.is_set() else "extended" for lease in leases]

    def retry_delay_ms(self, attempt: int, error: BaseException | None) -> int:
        """The retry policy's delay after this attempt failed."""
        return self._engine.retry.delay_ms(attempt, error)

    async def settle(self, requests: Sequence[tuple[Lease[Any], Settlement]]) -> list[Outcome]:
        """Ends deliveries; goes on when the caller is cancelled, so that a lease always knows its outcome."""
        return await asyncio.shield(self._start(self._settle(list(requests))))

    async def _settle(self, requests: list[tuple[Lease[Any], Settlement]]) -> list[Outcome]:
        for batch in self._batches(requests):
            await self._send(batch)
        return [_answer(lease, asked) for lease, asked in requests]

    def _batches(self, requests: Sequence[tuple[Lease[Any], Settlement]]) -> list[_Batch]:
        """The calls to send: those still open for leases that were settled before, then one for what is new."""
        batches = {id(b): b for lease, _ in requests if (b := self._open.get(id(lease)))}
        fresh = []
        for lease, asked in requests:
            if lease.settlement is None:
                lease.settlement = asked
                fresh.append((lease, asked))
        for start in range(0, len(fresh), SETTLE_CHUNK):
            batch = _Batch(self._engine.settle_streams.take(), fresh[start : start + SETTLE_CHUNK])
            batches[id(batch)] = batch
            self._open.update((id(lease), batch) for lease, _ in batch.items)
        return list(batches.values())

    async def _send(self, batch: _Batch) -> None:
        await self._engine.connect()
        async with batch.sending:
            if batch.answered:  # by somebody who settled the same lease at the same time
                return
            (answer,) = await self._engine.connection.run_all([self._settle_call(batch)])
            self._note_outcomes(batch, answer)

    def _settle_call(self, batch: _Batch) -> Call[list[str]]:
        rows = [
            SettleRow(
                lease.message.tenant,
                lease.message.id,
                lease.token,
                asked.action,
                asked.delay_ms,
                asked.reason,
                asked.text,
            )
            for lease, asked in batch.items
        ]
        ttl_ms = 2 * max(lease.visibility_ms for lease, _ in batch.items) + 60_000
        return self._engine.calls.settle(batch.stream, rows, ttl_ms)

    def _note_outcomes(self, batch: _Batch, answer: list[str] | Exception) -> None:
        batch.answered = True
        self._engine.settle_streams.answered(batch.stream)
        for lease, _ in batch.items:
            self._open.pop(id(lease), None)
        if isinstance(answer, Exception):
            for lease, _ in batch.items:
                lease.settlement = None  # refused as a whole: it may be asked again
            raise answer
        for (lease, asked), outcome in zip(batch.items, answer, strict=True):
            asked.outcome = cast("Outcome", outcome)
            if outcome == "lost":
                lease.lost.set()

    # --- life ------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        self._engine.own()
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        """Lets what is under way end, and releases uncounted what a lost claim may have taken."""
        self._engine.own()
        while self._tasks:
            done, _ = await asyncio.wait(set(self._tasks), timeout=2.0)
            if not done:
                break
        if self._unanswered is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._give_back_owed(self._unanswered)

    async def _give_back_owed(self, options: ClaimOptions) -> None:
        """Repeats the claims that were not answered, and releases what they had taken."""
        while stream := self._engine.claim_streams.owing:
            leases = await self.claim_now(replace(options, n=stream.owed, pools=stream.pools))
            await self.settle([(lease, Settlement("release")) for lease in leases])


def _answer(lease: Lease[Any], asked: Settlement) -> Outcome:
    made = lease.settlement
    if made is None or made.outcome is None or made.action != asked.action:
        return "lost"
    return made.outcome


def _by_timeout(leases: Sequence[Lease[Any]]) -> dict[tuple[int, str], list[Lease[Any]]]:
    groups: dict[tuple[int, str], list[Lease[Any]]] = {}
    for lease in leases:
        groups.setdefault((lease.visibility_ms, lease.consumer), []).append(lease)
    return groups


def message_of(id_: str, header: Any, metadata: dict[str, Any], payload: Any) -> Message[Any]:
    """A message as users see it, from its header and decoded body."""
    return Message(
        id=id_,
        tenant=header.tenant,
        queue=header.queue,
        payload=payload,
        metadata=metadata,
        attempt=header.attempt,
        crashes=header.crashes,
        priority=header.priority,
        cost=header.cost,
        pool=header.pool,
        enqueued_at=from_ms(header.enqueued_at),
        groups=header.groups,
        max_attempts=header.max_attempts,
    )
