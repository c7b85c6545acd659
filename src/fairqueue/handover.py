"""What a claim brought becomes leases; what cannot be decoded becomes dead letters, and holds up nobody."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Generic

from fairqueue._engine.engine import Engine
from fairqueue._engine.replies import Claimed, ClaimedMessage
from fairqueue.clock import from_ms
from fairqueue.codec import BodyError
from fairqueue.decoding import decoded, message_of
from fairqueue.generics import P
from fairqueue.lease import Desk, Held, Lease
from fairqueue.message import Message, named
from fairqueue.settlement import Settlement
from fairqueue.settling import Request, Settler
from fairqueue.tasks import Tasks

__all__ = ["BURIAL", "HandOver"]

_log = logging.getLogger("fairqueue")
BURIAL = 1.0  # seconds a claim waits until what it could not decode is among the dead letters


class HandOver(Generic[P]):
    """Makes leases of what claims brought.

    Args:
        engine: whose codec decodes.
        tasks: where the burial of what cannot be decoded goes on when the claim does not wait for it.
        settler: buries it.
        desk: where the leases are extended and settled.
    """

    def __init__(self, engine: Engine, tasks: Tasks, settler: Settler, desk: Desk) -> None:
        self._engine, self._tasks, self._settler, self._desk = engine, tasks, settler, desk

    async def leases(
        self, claimed: Claimed, consumer: str, visibility_ms: int, asked_at: float
    ) -> list[Lease[P]]:
        """Leases with decoded messages. An unreadable one goes to the dead letters; the others of its batch run."""
        leases: list[Lease[P]] = []
        unreadable: list[Request] = []
        for each in claimed.messages:
            kept = Held(self._desk, visibility_ms, consumer, asked_at)
            try:
                leases.append(_lease(each, self._message(each), kept))
            except BodyError as error:
                lease: Lease[Any] = _lease(each, message_of(each.id, each.header, {}, None), kept)
                unreadable.append((lease, Settlement("dead", reason="undecodable", text=str(error))))
                _log.error(
                    "message %r of tenant %r cannot be decoded: %s",
                    each.id,
                    each.tenant,
                    error,
                    extra=named(lease.message),
                )
        if unreadable:
            # The readable ones must not wait, leased, for a server that has gone away meanwhile.
            await asyncio.wait([self._tasks.start(self._settler.settle(unreadable))], timeout=BURIAL)
        return leases

    def _message(self, claimed: ClaimedMessage) -> Message[P]:
        metadata, payload = decoded(self._engine.codec, claimed.body)
        return message_of(claimed.id, claimed.header, metadata, payload)


def _lease(claimed: ClaimedMessage, message: Message[Any], kept: Held) -> Lease[Any]:
    lease = Lease(message, claimed.token, from_ms(claimed.deadline), kept)
    if claimed.header.marked:  # cancelled before the reply of the claim, which was lost, came a second time
        lease.cancelled.set()
    return lease
