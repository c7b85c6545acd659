"""A proxy between a client and its server that knows the protocol, so that a fault can be put at an exact place.

It runs in a thread with a loop of its own: a client whose loop is blocked, or a process that is frozen, still meets it::

    with Proxy(server_url) as proxy:
        queue = FairQueue(proxy.url)
        proxy.next("claim", lose_reply())        # done by the server, never answered
        proxy.next("settle", after=2)            # the third settle from now: swallowed (the default fault)
        proxy.silence()                          # open connections stay open and carry nothing from now on

A request is known by the script it calls (``claim``, ``settle``) or, if it is a plain command, by that (``BLPOP``).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from fairqueue._engine.script import load_all

T = TypeVar("T")
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request and its reply; made by the functions below."""

    forward: bool = True
    keep_reply: int | None = (
        None  # bytes of the reply that still arrive before the connection breaks; None: all
    )
    delay: float = 0.0
    gate: threading.Event | None = None
    before: bool = False  # the gate holds the request, not the reply
    half: bool = False  # of the reply arrives before the connection breaks
    late: bool = False  # what was delayed still arrives, and is done, when the client has hung up meanwhile
    silent: bool = False  # the connection stays open and carries nothing from then on
    away: float = 0.0  # seconds for which every connection breaks, and every new one


def lose_request() -> Fault:
    """The server never sees it; the connection breaks."""
    return Fault(forward=False)


def lose_reply() -> Fault:
    """The server does it; the connection breaks instead of the answer."""
    return Fault(keep_reply=0)


def cut_reply(size: int) -> Fault:
    """The server does it; the connection breaks after so many bytes of the answer."""
    return Fault(keep_reply=size)


def half_reply() -> Fault:
    """The server does it; the connection breaks in the middle of the answer."""
    return Fault(half=True)


def arrive_late(seconds: float) -> Fault:
    """It arrives that much later, though its client may have hung up and repeated it meanwhile."""
    return Fault(delay=seconds, late=True)


def arrive_at(gate: threading.Event) -> Fault:
    """It arrives when the gate is set, though its client may have hung up, repeated it, and gone on to other things."""
    return Fault(gate=gate, before=True, late=True)


def fall_silent(*, after: bool = False) -> Fault:
    """The connection stays open and carries nothing any more; with ``after`` the server still gets this request."""
    return Fault(forward=after, silent=True)


def go_away(seconds: float, *, after: bool = False) -> Fault:
    """Nobody is there for so long; with ``after`` the server still does this request first."""
    return Fault(forward=after, away=seconds)


def delay(seconds: float) -> Fault:
    """The request arrives that much later, and so does all that follows on its connection."""
    return Fault(delay=seconds)


def hold_reply(gate: threading.Event) -> Fault:
    """The server does it at once; the answer arrives when the gate is set."""
    return Fault(gate=gate)


def hold_request(gate: threading.Event) -> Fault:
    """It arrives when the gate is set, and so does all that follows on its connection."""
    return Fault(gate=gate, before=True)


@dataclass(frozen=True, slots=True)
class Request:
    """One request that came by."""

    connection: int
    name: str
    words: tuple[bytes, ...]


@dataclass(slots=True)
class _Order:
    name: str | None
    fault: Fault
    skip: int
    times: int


@dataclass(eq=False, slots=True)
class _Link:
    """One client's connection and ours to the server."""

    number: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    unanswered: deque[Fault | None] = field(default_factory=deque)
    silent: bool = False
    late: bool = False

    def abort(self) -> None:
        for side in (self.client, self.server):
            side.transport.abort()


class Proxy:
    """Stands in front of the server at ``upstream`` (``unix://...`` or ``redis://host:port``); ``url`` leads to it."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._links: set[_Link] = set()
        self._orders: list[_Order] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._names = {script.sha.encode(): script.name for script in load_all().values()}
        self._made = 0
        self._refusing = False
        self.port = 0
        self.requests: list[Request] = []
        """Every request so far, in order of arrival."""
        self.round_trips = 0
        """Requests that were not sent together with an earlier one that was still unanswered."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    # --- orders ----------------------------------------------------------------------------------------------

    def next(self, name: str | None, fault: Fault | None = None, *, after: int = 0, times: int = 1) -> None:
        """The next ``times`` requests called ``name`` (None: any), after ``after`` more, meet the fault."""
        with self._lock:
            self._orders.append(_Order(name, fault or lose_request(), after, times))

    def reset(self) -> None:
        """As new: every open connection breaks, orders are withdrawn, counts start again."""
        self._in_loop(self._cut)
        with self._lock:
            self._orders.clear()
            self._refusing = False
            self.requests.clear()
            self.round_trips = 0

    @property
    def waiting(self) -> int:
        """Orders that were not met yet."""
        return len(self._orders)

    @property
    def under_way(self) -> int:
        """Connections on which something is to arrive late."""
        return sum(link.late for link in list(self._links))

    def withdraw(self) -> int:
        """Takes all orders back; how many there were."""
        with self._lock:
            unmet = len(self._orders)
            self._orders.clear()
        return unmet

    def count(self, name: str) -> int:
        """How many requests of that name came by."""
        return sum(request.name == name for request in self.requests)

    def silence(self) -> None:
        """Open connections stay open and carry nothing any more; new ones work."""
        self._in_loop(self._silence)

    def cut(self) -> None:
        """Every open connection breaks; new ones work."""
        self._in_loop(self._cut)

    def refuse(self, refusing: bool = True) -> None:
        """Every open connection breaks, and so does every new one until this is called with False."""

        def now() -> None:
            self._refusing = refusing
            if refusing:
                self._cut()

        self._in_loop(now)

    # --- the loop's side -------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _in_loop(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        self._call(run())

    def _silence(self) -> None:
        for link in self._links:
            link.silent = True

    def _cut(self) -> None:
        for link in list(self._links):
            link.abort()

    async def _end(self) -> None:
        self._server.close()
        self._cut()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            return writer.transport.abort()
        try:
            from_server, to_server = await self._open()
        except OSError:
            return writer.transport.abort()
        self._made += 1
        link = _Link(self._made, writer, to_server)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(reader, link))
                both.create_task(self._replies(from_server, link))
        except* (OSError, _LinkBrokenError):
            pass
        finally:
            self._links.discard(link)
            link.abort()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._upstream.scheme == "unix":
            return await asyncio.open_unix_connection(self._upstream.path)
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port)

    def _go_away(self, seconds: float) -> None:
        self._refusing = True
        self._cut()
        self._loop.call_later(seconds, setattr, self, "_refusing", False)

    async def _requests(self, reader: asyncio.StreamReader, link: _Link) -> None:
        try:
            await self._pass_on(reader, link)
        except _LinkBrokenError:
            patience = 500
            while link.late and link.unanswered and patience:
                patience -= 1
                await asyncio.sleep(0.01)
            raise

    async def _pass_on(self, reader: asyncio.StreamReader, link: _Link) -> None:
        async for frame in _frames(reader):
            if link.silent:
                continue
            fault = self._note(frame, link)
            link.late = link.late or bool(fault and fault.late)
            if fault and fault.delay:
                await asyncio.sleep(fault.delay)
            if fault and fault.gate and fault.before:
                await asyncio.to_thread(fault.gate.wait, 60)
            link.silent = link.silent or bool(fault and fault.silent)
            if fault and not fault.forward:
                if fault.away:
                    self._go_away(fault.away)
                if fault.silent:
                    continue
                raise _LinkBrokenError
            link.unanswered.append(fault)
            link.server.write(frame)
            await link.server.drain()

    def _note(self, frame: bytes, link: _Link) -> Fault | None:
        words = _words(frame)
        name = words[0].decode().upper()
        if name == "EVALSHA":
            name = self._names.get(words[1].lower(), "unknown script")
        self.requests.append(Request(link.number, name, words))
        if not link.unanswered:
            self.round_trips += 1
        return self._ordered(name)

    def _ordered(self, name: str) -> Fault | None:
        with self._lock:
            for order in self._orders:
                if order.name not in (None, name):
                    continue
                if order.skip:
                    order.skip -= 1
                    continue
                order.times -= 1
                if not order.times:
                    self._orders.remove(order)
                return order.fault
        return None

    async def _replies(self, reader: asyncio.StreamReader, link: _Link) -> None:
        async for frame in _frames(reader):
            fault = link.unanswered.popleft()
            if fault and fault.gate and not fault.before:
                await asyncio.to_thread(fault.gate.wait, 60)
            if link.silent:
                continue
            if fault and fault.away:
                self._go_away(fault.away)
            if fault and (fault.half or fault.keep_reply is not None):
                link.client.write(frame[: len(frame) // 2 if fault.half else fault.keep_reply])
                await link.client.drain()
                link.client.close()  # what was written still arrives
                await link.client.wait_closed()
                raise _LinkBrokenError
            link.client.write(frame)
            await link.client.drain()
            link.late = link.late and bool(link.unanswered)


class _LinkBrokenError(Exception):
    """One side is gone, or is to go."""


async def _frames(reader: asyncio.StreamReader) -> Any:
    """Whole requests or replies; raises when the connection ends."""
    buffer = b""
    while True:
        part = await reader.read(_CHUNK)
        if not part:
            raise _LinkBrokenError
        buffer += part
        at = 0
        while (end := _end_of(buffer, at)) is not None:
            yield buffer[at:end]
            at = end
        buffer = buffer[at:]


def _end_of(buffer: bytes, at: int) -> int | None:
    """Where the value that starts at ``at`` ends, or None if it is not whole yet."""
    line_end = buffer.find(b"\r\n", at)
    if line_end < 0:
        return None
    after, kind = line_end + 2, buffer[at : at + 1]
    if kind not in b"$*":
        return after
    size = int(buffer[at + 1 : line_end])
    if size < 0:
        return after
    if kind == b"$":
        return after + size + 2 if len(buffer) >= after + size + 2 else None
    for _ in range(size):
        end = _end_of(buffer, after)
        if end is None:
            return None
        after = end
    return after


def _words(frame: bytes) -> tuple[bytes, ...]:
    """The words of a request: an array of bulk strings."""
    words, at = [], frame.index(b"\r\n") + 2
    while at < len(frame):
        line_end = frame.index(b"\r\n", at)
        size = int(frame[at + 1 : line_end])
        words.append(frame[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2
    return tuple(words)
