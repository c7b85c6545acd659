"""Walking a large key page by page: nothing blocks the server, and a page may repeat what an earlier one had."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from fairqueue.errors import DamagedKeyError

from .keys import INDEXES

_PAGE = 200


class Runs(Protocol):
    """Whoever can send a plain command."""

    async def command(self, *args: str | int | float | bytes) -> Any: ...


def escaped(text: str) -> str:
    """Text as a pattern that matches it alone."""
    return "".join("\\" + c if c in "*?[]\\^" else c for c in text)


async def scan_page(
    engine: Runs, command: str, key: str | None, cursor: str, match: str | None = None
) -> tuple[str, list[bytes]]:
    """One page: the next cursor (``"0"`` at the end) and the members, of a hash or sorted set without their values."""
    words: list[str | int] = [command, *([key] if key else []), cursor]
    words += [*(["MATCH", match] if match else []), "COUNT", _PAGE]
    after, page = await engine.command(*words)
    following = after.decode() if isinstance(after, bytes) else str(after)
    return following, _members(command, page)


def _members(command: str, page: Any) -> list[bytes]:
    """redis-py answers HSCAN with a dict and ZSCAN with pairs; a raw reply is flat."""
    if isinstance(page, dict):
        return list(page)
    if command == "ZSCAN" and page and isinstance(page[0], tuple):
        return [member for member, _ in page]
    return list(page[::2]) if command in {"HSCAN", "ZSCAN"} else list(page)


async def scan(engine: Runs, command: str, key: str | None, match: str | None = None) -> AsyncIterator[bytes]:
    """Every member, each once, of ``SSCAN``, ``HSCAN``, ``ZSCAN`` or (without a key) ``SCAN``.

    An index that holds another type has none, as for a script that reads it; of what nothing else can tell it is an error.
    """
    seen: set[bytes] = set()
    cursor = "0"
    while True:
        try:
            cursor, page = await scan_page(engine, command, key, cursor, match)
        except DamagedKeyError:
            if key and key.rpartition(":")[2] in INDEXES:
                return
            raise
        for member in page:
            if member not in seen:
                seen.add(member)
                yield member
        if cursor == "0":
            return
