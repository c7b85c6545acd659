"""Dead letters: messages out of tries, per tenant, until somebody redrives or purges them. None is ever forgotten."""

from __future__ import annotations

import builtins
import re
from collections.abc import AsyncIterator
from typing import Any

from fairqueue._engine.engine import Engine
from fairqueue._engine.keys import key
from fairqueue._engine.replies import Stored, text, texts
from fairqueue.clock import from_ms
from fairqueue.codec import BodyError, unpack_body
from fairqueue.decoding import message_of
from fairqueue.errors import InvalidMessageError, MessageNotFoundError
from fairqueue.lookup import readable
from fairqueue.message import DeadLetter
from fairqueue.validation import expected, identifier, integer

_PAGE = 500
_PLACE = re.compile(r"\d+(\.\d+)?(e-?\d+)?", re.ASCII)
_PLACES = 2**45  # no script gives a letter a place as large


class DeadLetters:
    """``queue.dead_letters``.

    Example:
        >>> items, cursor = await queue.dead_letters.list("acme")
        >>> await queue.dead_letters.redrive("acme", items[0].message.id)
        1
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def count(self, tenant: str) -> int:
        """How many the tenant has.

        Example:
            >>> await queue.dead_letters.count("acme")
            1
        """
        count: int = await self._engine.command("ZCARD", self._key(tenant))
        return count

    async def list(
        self, tenant: str, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[DeadLetter[Any]], str | None]:
        """A page in the order of death, and the cursor of the next page or None.

        A letter whose payload cannot be decoded is listed with its raw bytes; nothing raises for it.

        Raises:
            ConfigurationError: a wrong limit, or a cursor that ``list`` did not return.

        Example:
            >>> items, cursor = await queue.dead_letters.list("acme", limit=10)
            >>> [(letter.message.id, letter.reason) for letter in items]
            [('d1', 'the account was deleted')]
        """
        integer("limit", limit, 1, 10_000)
        entries = await self._entries(tenant, cursor, limit)
        found = await self._engine.run(self._engine.calls.get([(tenant, id_) for id_, _ in entries]))
        items = [self._letter(one) for one in found if one and one.header.state == "dead"]
        return items, f"{entries[-1][1]:.17g}" if len(entries) == limit else None

    async def redrive(self, tenant: str, *ids: str) -> int:
        """Sends letters back to the end of their queues, several in their old order; how many.

        Payload, metadata, queue and id stay; attempt and crashes start again.

        Raises:
            MessageNotFoundError: none of them is a dead letter.
            QueueFullError: the server is out of memory; the letters stay.

        Example:
            >>> await queue.dead_letters.redrive("acme", "d1")
            1
        """
        if not ids:
            raise InvalidMessageError(
                "expected at least one id to redrive (redrive_all sends every letter back)"
            )
        names = [identifier("id", id_, error=InvalidMessageError) for id_ in ids]
        if len(names) > _PAGE:  # one call sorts its own ids
            names = await self._in_old_order(self._checked(tenant), names)
        redriven = await self._in_pages(self._engine.calls.redrive, self._checked(tenant), names)
        if not redriven:
            raise MessageNotFoundError(f"tenant {tenant!r} has no dead letter {', '.join(map(repr, names))}")
        return redriven

    async def redrive_all(self, tenant: str) -> int:
        """Sends every letter of the tenant back, in the order in which they were enqueued; how many.

        Raises:
            QueueFullError: the server is out of memory; what was not sent back stays.

        Example:
            >>> await queue.dead_letters.redrive_all("acme")
            1
        """
        ids = [id_ async for page in self._pages(tenant) for id_ in page]
        ordered = await self._in_old_order(tenant, ids)
        return await self._in_pages(self._engine.calls.redrive, tenant, ordered)

    async def purge(self, tenant: str, id: str | None = None) -> int:
        """Deletes one letter, or all of the tenant's; how many.

        Raises:
            MessageNotFoundError: an id was given and is no dead letter.

        Example:
            >>> await queue.dead_letters.purge("acme", "d1")
            1
        """
        if id is not None:
            purge = self._engine.calls.purge_dead
            purged = await self._replayed(purge, self._checked(tenant), [identifier("id", id)])
            if not purged:
                raise MessageNotFoundError(f"tenant {tenant!r} has no dead letter {id!r}")
            return purged
        ids = [id_ async for page in self._pages(tenant) for id_ in page]
        return await self._in_pages(self._engine.calls.purge_dead, tenant, ids)

    async def tenants(self) -> AsyncIterator[str]:
        """Every tenant with dead letters.

        Example:
            >>> [tenant async for tenant in queue.dead_letters.tenants()]
            ['acme']
        """
        for raw in await self._engine.read(
            "SMEMBERS", key(self._engine.calls.root, "dead_tenants"), empty=[]
        ):
            yield text(raw)

    async def _in_old_order(self, tenant: str, ids: builtins.list[str]) -> builtins.list[str]:
        """Those of them that are dead letters, as they were enqueued."""
        letters: list[tuple[int, str]] = []
        for start in range(0, len(ids), _PAGE):
            page = [(tenant, id_) for id_ in ids[start : start + _PAGE]]
            found = await self._engine.run(self._engine.calls.get(page))
            letters.extend((one.header.seq, one.id) for one in found if one and one.header.state == "dead")
        return [id_ for _, id_ in sorted(letters)]

    async def _in_pages(self, build: Any, tenant: str, ids: builtins.list[str]) -> int:
        done = 0
        for start in range(0, len(ids), _PAGE):
            done += await self._replayed(build, tenant, ids[start : start + _PAGE])
        return done

    async def _replayed(self, build: Any, tenant: str, ids: builtins.list[str]) -> int:
        done: int = await self._engine.run_replayable(build, tenant, ids)
        return done

    async def _pages(self, tenant: str) -> AsyncIterator[builtins.list[str]]:
        start = 0
        while True:
            page = texts(await self._engine.command("ZRANGE", self._key(tenant), start, start + _PAGE - 1))
            if page:
                yield page
            if len(page) < _PAGE:
                return
            start += _PAGE

    async def _entries(self, tenant: str, cursor: object, limit: int) -> builtins.list[tuple[str, float]]:
        """A page of ids with their places. Places that were damaged by hand, below 0 or too large, are the doctor's."""
        if cursor is not None and not (isinstance(cursor, str) and _PLACE.fullmatch(cursor)):
            raise expected("cursor", "one that list() returned", cursor)
        after = "0" if cursor is None else f"({cursor}"
        raw = await self._engine.command(
            "ZRANGEBYSCORE", self._key(tenant), after, f"({_PLACES}", "WITHSCORES", "LIMIT", 0, limit
        )
        pairs = (
            raw
            if not raw or isinstance(raw[0], tuple | list)
            else list(zip(raw[::2], raw[1::2], strict=True))
        )
        return [(text(id_), float(at)) for id_, at in pairs]

    def _letter(self, found: Stored) -> DeadLetter[Any]:
        metadata, payload, decodable = readable(self._engine, found.body)
        reason, at, error = found.note or ("unknown", found.header.moved_at, "")
        return DeadLetter(
            message=message_of(found.id, found.header, metadata, payload),
            raw=_raw_payload(found.body),
            reason=reason,
            error=error or None,
            attempts=found.header.attempt,
            crashes=found.header.crashes,
            dead_at=from_ms(at),
            redrives=found.header.redrives,
            decodable=decodable,
        )

    def _key(self, tenant: str) -> str:
        return key(self._engine.calls.root, "dead", self._checked(tenant))

    def _checked(self, tenant: str) -> str:
        return identifier("tenant", tenant)


def _raw_payload(body: bytes | None) -> bytes:
    """The payload's bytes; of a body that cannot be taken apart, all of it."""
    try:
        return unpack_body(body)[1] if body is not None else b""
    except BodyError:
        return body or b""
