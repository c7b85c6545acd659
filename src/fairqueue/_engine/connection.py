"""The one connection to the server: sends calls, repeats them after trouble, and turns replies into our errors.

A call may be sent several times (the reply of the first may be lost); scripts make that safe. A caller that is
cancelled never cancels the exchange itself: the reply is always read by the call it belongs to, so no later
call on the same connection can get it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fairqueue.errors import DamagedKeyError, QueueUnavailableError

from .calls import Call
from .script import load_all

if TYPE_CHECKING:
    from redis.asyncio import Redis

T = TypeVar("T")

_log = logging.getLogger("fairqueue")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_REPAIRS = 3  # an empty server in the place of ours lacks the scripts first and then the settings


def pauses(first: float = _FIRST_PAUSE, longest: float = _LONGEST_PAUSE) -> Callable[[], float]:
    """Growing pauses with full jitter, so that a fleet does not come back all at once."""
    pause = first

    def following() -> float:
        nonlocal pause
        drawn = random.uniform(pause / 2, pause)
        pause = min(longest, pause * 2)
        return drawn

    return following


def import_driver() -> None:
    """Imports redis-py, which takes long enough to be done in a thread rather than hold up an event loop."""
    from . import driver  # noqa: F401


class Connection:
    """Runs calls on one server.

    Args:
        locate: gives the URL to use, and is asked again after each lost connection (an embedded server may
            have come back elsewhere).
        configure: called when the server has lost the namespace's settings, before the call is repeated.
        patience: seconds during which a call is repeated before ``QueueUnavailableError``.
        answer_time: seconds after which a connection without an answer is taken for dead; None: the driver's.
        tells: outages are logged; a second connection to the same server need not say the same.
    """

    def __init__(
        self,
        locate: Callable[[], Awaitable[str]],
        root: str,
        configure: Callable[[], Awaitable[None]],
        patience: float = 10.0,
        answer_time: float | None = None,
        *,
        tells: bool = True,
    ) -> None:
        self._locate, self._configure = locate, configure
        self._timeouts: dict[str, Any] = {}
        if answer_time is not None:
            self._timeouts = {"socket_timeout": answer_time, "own_timeout": True}
        self._root = root
        self._patience = patience
        self._tells = tells
        self._gone_at: float | None = None  # since when the outage lasts that was told
        self._redis: Redis | None = None
        self._url = ""
        self._exchanges: set[asyncio.Task[Any]] = set()
        self.round_trips = 0
        """Exchanges begun so far, repetitions included; calls that went together are one."""
        self._answered = False
        self.away = False
        """Nothing has been answered since the last trouble."""
        self.lost_at: float | None = None
        """Monotonic instant at which the server was last known to be away, for those who must wait after an outage."""

    async def run(self, call: Call[T], patience: float | None = None) -> T:
        """Sends one call.

        Raises:
            QueueUnavailableError: the server stayed away longer than ``patience``; whether the call was done is
                unknown. QueueFullError, SchemaMismatchError, FairQueueError: the server refused it.
        """
        (answer,) = await self.run_all([call], patience)
        if isinstance(answer, Exception):
            raise answer
        result: T = answer
        return result

    async def run_all(self, calls: Sequence[Call[Any]], patience: float | None = None) -> list[Any]:
        """Sends several calls in one round trip; each answer is a value, or the error of that call alone."""
        return await self.protected(lambda: self._exchange(calls), patience)

    async def command(self, *args: str | int | float | bytes, patience: float | None = None) -> Any:
        """Sends one plain command (a read: it may be repeated)."""

        async def once() -> Any:
            (answer,) = await self._send([list(args)])
            if isinstance(answer, Exception):
                raise answer
            return answer

        return await self.protected(once, patience)

    async def read(self, *args: str | int | float | bytes, empty: Any) -> Any:
        """Sends one plain read of an index; one that holds another type is ``empty``, as it is for a script that reads it."""
        try:
            return await self.command(*args)
        except DamagedKeyError:
            return empty

    async def evaluate(self, call: Call[T]) -> T:
        """One call by its script's text, for a server that may have no script yet."""

        async def once() -> T:
            (answer,) = await self._send([["EVAL", call.script.source, 1, self._root, *call.sending()]])
            if isinstance(answer, Exception):
                raise answer
            return call.decode(answer)

        return await self.protected(once)

    async def protected(self, once: Callable[[], Awaitable[T]], patience: float | None = None) -> T:
        """Repeats ``once`` through passing trouble, in a task of its own that outlives a cancelled caller."""
        task = asyncio.ensure_future(self._persist(once, self._patience if patience is None else patience))
        self._exchanges.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._exchanges.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that was cancelled is not there to see it

    async def _persist(self, once: Callable[[], Awaitable[T]], patience: float) -> T:
        from . import driver

        give_up, pause = time.monotonic() + patience, pauses()
        while True:
            try:
                answer = await once()
            except QueueUnavailableError as error:  # the embedded server did not come up
                self.note_trouble(error)
                if time.monotonic() > give_up:
                    raise
            except driver.TROUBLE as error:
                if not driver.is_passing(error):
                    raise driver.translated(error) from error
                await self._note_passing(error)
                if time.monotonic() > give_up:
                    raise self._given_up(error) from error
            else:
                self._note_answer()
                return answer
            await asyncio.sleep(pause())

    def _given_up(self, error: Exception) -> Exception:
        from . import driver

        found = driver.translated(error)
        if self._answered or not driver.may_lack_tls(error, self._url):
            return found
        return type(found)(
            f"{found} (rediss:// is for servers that speak TLS, redis:// for those that do not)"
        )

    async def _note_passing(self, error: Exception) -> None:
        from . import driver

        self.note_trouble(error)
        if self._redis is not None and driver.is_broken(error):
            await driver.drop_idle(self._redis)

    def note_trouble(self, error: Exception) -> None:
        """The server could not be used just now."""
        self.away = True
        self.lost_at = time.monotonic()
        # Who never got an answer has the wrong address, say: the caller is told, by an error.
        if self._tells and self._answered and self._gone_at is None:
            self._gone_at = self.lost_at
            _log.warning("the server is away, calls are repeated until it is back: %s", error)

    def _note_answer(self) -> None:
        self._answered = True
        if self._gone_at is not None:
            _log.warning("the server is back after %.1f s", time.monotonic() - self._gone_at)
            self._gone_at = None
        if self.away:
            self.away = False
            self.lost_at = time.monotonic()  # until now: whoever waits after an outage counts from here

    async def _exchange(self, calls: Sequence[Call[Any]]) -> list[Any]:
        commands = [self._words(call) for call in calls]
        answers = await self._send(commands)
        for _ in range(_REPAIRS):
            for position in (again := await self._repaired(answers)):
                (answers[position],) = await self._send([commands[position]])
            if not again:
                break
        return [self._read(call, answer) for call, answer in zip(calls, answers, strict=True)]

    async def _send(self, commands: list[list[Any]]) -> list[Any]:
        from . import driver

        client = await self._client()
        self.round_trips += 1
        if len(commands) == 1:
            return [await driver.send(client, commands[0])]
        return await driver.send_all(client, commands)

    def _words(self, call: Call[Any]) -> list[Any]:
        return ["EVALSHA", call.script.sha, 1, self._root, *call.sending()]

    async def _repaired(self, answers: list[Any]) -> list[int]:
        """Loads scripts or settings the server has lost; the positions of the calls that are to be sent again."""
        again = [i for i, answer in enumerate(answers) if _is(answer, "NOSCRIPT")]
        if again:
            await self.load_scripts()
        unconfigured = [i for i, answer in enumerate(answers) if _is(answer, "FQUNCONFIGURED")]
        if unconfigured:
            await self._configure()
        return sorted({*again, *unconfigured})

    async def load_scripts(self) -> None:
        """Gives the server every script, in one round trip.

        Raises:
            FairQueueError: it refuses one.
        """
        for answer in await self._send([["SCRIPT LOAD", script.source] for script in load_all().values()]):
            if isinstance(answer, Exception):
                raise self._refusal(answer)

    def _read(self, call: Call[Any], answer: Any) -> Any:
        return self._refusal(answer) if isinstance(answer, Exception) else call.decode(answer)

    def _refusal(self, error: Exception) -> Exception:
        """The error for the caller; one that passes is raised, and the exchange repeated."""
        from . import driver

        if driver.is_passing(error):
            raise error
        return driver.translated(error)

    async def _client(self) -> Redis:
        from . import driver

        url = await self._locate()
        if self._redis is None or url != self._url:
            old, self._redis, self._url = self._redis, driver.open_redis(url, **self._timeouts), url
            if old is not None:
                await old.aclose()
        return self._redis

    async def dedicated(self, socket_timeout: float) -> Redis:
        """A client of its own for a blocking wait, with one connection."""
        from . import driver

        url = await self._locate()
        return driver.open_redis(url, socket_timeout=socket_timeout, connections=1, own_timeout=True)

    async def close(self, wait: float = 2.0) -> None:
        """Lets running exchanges end (bounded), then closes the connections."""
        if self._exchanges:
            await asyncio.wait(self._exchanges, timeout=wait)
        for task in self._exchanges:
            task.cancel()
        if self._exchanges:  # or one that is just connecting may end up with a connection that nobody closes
            await asyncio.wait(self._exchanges, timeout=wait)
        if self._redis is not None:
            await self._redis.aclose()
            self._redis = None

    def forget(self) -> object:
        """After a fork: nothing is sent on the parent's sockets. Returns what must live on untouched."""
        inherited = (self._redis, self._exchanges)
        self._redis, self._exchanges, self._url = None, set(), ""
        self._answered, self._gone_at = False, None
        return inherited


def _is(answer: Any, code: str) -> bool:
    if not isinstance(answer, Exception):
        return False
    return str(answer).startswith(code) or (
        code == "NOSCRIPT" and "NOSCRIPT" in type(answer).__name__.upper()
    )
