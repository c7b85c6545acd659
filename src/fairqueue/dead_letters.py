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
from fairqueue.errors import DamagedKeyError, InvalidMessageError, MessageNotFoundError
from fairqueue.lookup import readable
from fairqueue.message import DeadLetter
from fairqueue.validation import expected, identifier, integer

_PAGE = 500
_CURSOR = re.compile(r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|-?inf)_((?:[0-9a-f]{2})*)", re.ASCII)
Entry = tuple[float, bytes]
"""A letter's place and id, in the server's order: by these."""


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

        Raises:
            DamagedKeyError: their list holds another type (somebody's hand); ``reconcile()`` writes it again.

        Example:
            >>> await queue.dead_letters.count("acme")
            1
        """
        count: int = await self._read("ZCARD", tenant)
        return count

    async def list(
        self, tenant: str, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[DeadLetter[Any]], str | None]:
        """A page in the order of death, and the cursor of the next page or None.

        A letter whose payload cannot be decoded is listed with its raw bytes; nothing raises for it. No letter is left
        out, at whatever place somebody's hand has put it.

        Raises:
            DamagedKeyError: as with ``count``.
            ConfigurationError: a wrong limit, or a cursor that ``list`` did not return.

        Example:
            >>> items, cursor = await queue.dead_letters.list("acme", limit=10)
            >>> [(letter.message.id, letter.reason) for letter in items]
            [('d1', 'the account was deleted')]
        """
        integer("limit", limit, 1, 10_000)
        entries = await self._entries(tenant, cursor, limit)
        found = await self._engine.run(self._engine.calls.get([(tenant, text(id_)) for _, id_ in entries]))
        items = [self._letter(one) for one in found if one and one.header.state == "dead"]
        return items, _cursor_after(entries[-1]) if len(entries) == limit else None

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
            DamagedKeyError: as with ``count``; none was sent back.
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
            DamagedKeyError: none was given, and as with ``count``; none was deleted.

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
            page = texts(await self._read("ZRANGE", tenant, start, start + _PAGE - 1))
            if page:
                yield page
            if len(page) < _PAGE:
                return
            start += _PAGE

    async def _entries(self, tenant: str, cursor: object, limit: int) -> builtins.list[Entry]:
        """A page. The cursor names place and id, so that of letters at one place (somebody's hand) it hides none.

        All that are at its place are read again: by an offset letters that leave meanwhile would hide others.
        """
        after, size = _entry_of(cursor), limit + 1
        start = "-inf" if after is None else f"{after[0]:.17g}"
        while True:
            page = await self._from(start, tenant, size)
            entries = [one for one in page if after is None or one > after]
            if len(entries) >= limit or len(page) < size:
                return entries[:limit]
            size *= 2

    async def _from(self, start: str, tenant: str, size: int) -> builtins.list[Entry]:
        raw = await self._read("ZRANGEBYSCORE", tenant, start, "+inf", "WITHSCORES", "LIMIT", 0, size)
        flat = not raw or not isinstance(raw[0], tuple | list)
        pairs = zip(raw[::2], raw[1::2], strict=True) if flat else raw
        return [(float(at), id_) for id_, at in pairs]

    async def _read(self, command: str, tenant: str, *args: str | int) -> Any:
        """A read of the tenant's list. One that cannot be read is not empty: nobody is told that there are no letters."""
        try:
            return await self._engine.command(command, self._key(tenant), *args)
        except DamagedKeyError as error:
            raise DamagedKeyError(
                f"expected the list of dead letters of tenant {tenant!r} to be one, but its key holds another type; "
                "reconcile() writes it again from the messages, and so do workers within reconcile_interval"
            ) from error

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


def _entry_of(cursor: object) -> Entry | None:
    if cursor is None:
        return None
    named = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if named is None:
        raise expected("cursor", "one that list() returned", cursor)
    return float(named[1]), bytes.fromhex(named[2])


def _cursor_after(entry: Entry) -> str:
    return f"{entry[0]:.17g}_{entry[1].hex()}"


def _raw_payload(body: bytes | None) -> bytes:
    """The payload's bytes; of a body that cannot be taken apart, all of it."""
    try:
        return unpack_body(body)[1] if body is not None else b""
    except BodyError:
        return body or b""
