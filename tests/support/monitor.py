"""What a server was asked, in the order in which it did it, and when by its own clock; as MONITOR tells.

async with monitored(url) as monitor:
    ...
    for one in await monitor.seen():            # of everybody's commands since then, those inside scripts included
        print(one.at, one.in_script, one.words)

for call in calls_of(seen):                     # the scripts among them, each with the keys that it touched
    assert {slot(key) for key in call.keys} == {slot(call.first)}
"""

from __future__ import annotations

import asyncio
import binascii
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from uuid import uuid4

from fairqueue._engine.script import load_all

_LINE = re.compile(rb'^\+(\d+\.\d+) \[\d+ (lua|[^\]]*)\] (".*")$', re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}
_LONGEST = 1 << 24  # bytes of a line
_PATIENCE = 60.0  # seconds for a line that must come

ALL_KEYS = {b"EXISTS", b"DEL", b"UNLINK"}
"""The commands of scripts whose arguments are all keys; of the others the first is."""
NO_KEY = {b"TIME", b"INFO"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A command that the server did: ``at`` by its wall clock."""

    at: float
    in_script: bool
    words: tuple[bytes, ...]


class Monitor:
    """Made by ``monitored``."""

    def __init__(self, reader: asyncio.StreamReader, url: str) -> None:
        self._reader, self._url = reader, url
        self._seen: list[Seen] = []

    async def seen(self) -> list[Seen]:
        """All that it did until now."""
        mark = uuid4().hex.encode()
        _, writer = await _asked(self._url, b"ECHO " + mark)
        writer.close()
        while (one := await self._next()).words != (b"ECHO", mark):
            self._seen.append(one)
        return list(self._seen)

    async def _next(self) -> Seen:
        line = (await asyncio.wait_for(self._reader.readline(), _PATIENCE)).rstrip(b"\r\n")
        match = _LINE.match(line)
        assert match, line
        words = tuple(_unescaped(word) for word in _WORD.findall(match[3]))
        return Seen(float(match[1]), match[2] == b"lua", words)


@asynccontextmanager
async def monitored(url: str) -> AsyncIterator[Monitor]:
    """The server at ``url`` tells what it does, from now until the end of the block."""
    reader, writer = await _asked(url, b"MONITOR")
    try:
        assert await reader.readline() == b"+OK\r\n"
        yield Monitor(reader, url)
    finally:
        writer.close()
        await writer.wait_closed()


async def _asked(url: str, command: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(parts.path, limit=_LONGEST)
    else:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=_LONGEST)
    writer.write(command + b"\r\n")
    await writer.drain()
    return reader, writer


def _unescaped(word: bytes) -> bytes:
    def one(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code[1:], 16)]) if code[:1] == b"x" else _ESCAPES.get(code, code)

    return re.sub(rb"\\(x[0-9a-f]{2}|.)", one, word, flags=re.DOTALL)


# --- the scripts among them ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ScriptCall:
    """One call of a script, '?' if it is none of ours: the key it was given first, and all it touched."""

    script: str
    first: bytes
    keys: set[bytes] = field(default_factory=set)


def calls_of(seen: Iterable[Seen]) -> Iterator[ScriptCall]:
    """In their order; nothing comes between a call and what it does."""
    names = {
        word.encode(): script.name for script in load_all().values() for word in (script.sha, script.source)
    }
    call: ScriptCall | None = None
    for one in seen:
        if one.words[0].upper() in (b"EVALSHA", b"EVAL"):
            if call:
                yield call
            call = ScriptCall(names.get(one.words[1], "?"), one.words[3])
        elif one.in_script:
            assert call, f"{one.words[0]!r} of a script that was called before"
            call.keys |= keys_of(one.words)
    if call:
        yield call


def keys_of(words: tuple[bytes, ...]) -> set[bytes]:
    """The keys of a command as scripts use it: the first argument, or all of them."""
    name = words[0].upper()
    if name in NO_KEY:
        return set()
    return set(words[1:]) if name in ALL_KEYS else {words[1]}


def slot(key: bytes) -> int:
    """Of the 16,384 of a cluster: by what is in the first pair of braces, if there is anything."""
    tag = re.match(rb"[^{]*\{([^}]+)\}", key, re.DOTALL)
    return binascii.crc_hqx(tag[1] if tag else key, 0) % 16384
