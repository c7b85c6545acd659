"""Everything that knows redis-py: how a client is opened, and what its errors mean.

Imported at the first call: redis-py takes longer to import than all the rest of the package.
"""

from __future__ import annotations

import contextlib
from typing import Any

import redis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from fairqueue.errors import (
    ConfigurationError,
    DamagedKeyError,
    FairQueueError,
    QueueFullError,
    QueueUnavailableError,
    SettingsChangedError,
)

from .settings import other_schema

SOCKET_TIMEOUT = 5.0  # longer than any script, shorter than a user's patience with a dead connection
CONNECT_TIMEOUT = 3.0
MAX_CONNECTIONS = 32
# What the server says while it cannot serve us but soon will: all of it is worth another try. redis-py takes the
# first word off the text of the errors it has a class for (LOADING is a ConnectionError).
_PASSING = (
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
)
_PASSING_WORDS = ("BUSY ", "MISCONF ", "NOREPLICAS ")
_REFUSED = (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError)
TROUBLE = (redis.RedisError, OSError, EOFError)  # what an exchange may raise that is not a mistake of ours


def open_redis(
    url: str,
    *,
    socket_timeout: float = SOCKET_TIMEOUT,
    connections: int = MAX_CONNECTIONS,
    own_timeout: bool = False,
) -> Redis:
    """A redis-py client without retries of its own: when to repeat is decided here, in one place.

    With ``own_timeout`` a ``socket_timeout`` in the URL, meant for calls, does not replace the one given: shorter than
    a blocking wait it would break off each one, and lose the wake-up that the server sends at that moment.
    """
    options: dict[str, Any] = {
        "socket_timeout": socket_timeout,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "max_connections": connections,
        "timeout": None,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
    }
    if not url.startswith("unix:"):
        options["socket_keepalive"] = True
    try:
        pool = BlockingConnectionPool.from_url(url, **options)
        # the URL may say what is not for it to say: replies are read as they come in this protocol
        pool.connection_kwargs |= {"protocol": 2, "decode_responses": False}
        if own_timeout:
            pool.connection_kwargs["socket_timeout"] = socket_timeout
        pool.make_connection()  # type: ignore[no-untyped-call]  # connects to nothing yet, but knows its options
    except (ValueError, TypeError) as error:  # an option in the URL that redis-py does not know
        raise ConfigurationError(
            f"expected url to be usable, got an option redis-py refuses: {error}"
        ) from error
    return Redis.from_pool(pool)  # closing the client closes its pool


def is_passing(error: BaseException) -> bool:
    """Is it worth trying again: the server is away, starting, or not the master at the moment?"""
    if isinstance(error, _REFUSED):
        return False
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError | EOFError):
        return True
    if isinstance(error, _PASSING):
        return True
    return isinstance(error, redis.ResponseError) and str(error).startswith(_PASSING_WORDS)


def may_lack_tls(error: Exception, url: str) -> bool:
    """Is this what a server that speaks no TLS looks like? It waits for a command to be complete, and is silent."""
    text = str(error)
    strange = isinstance(error, redis.TimeoutError | TimeoutError) or (
        "SSL" in text and "CERTIFICATE" not in text
    )
    return url.startswith("rediss:") and strange


def is_broken(error: BaseException) -> bool:
    """Did the connection fail, not the server refuse?"""
    return not isinstance(error, redis.ResponseError | redis.exceptions.BusyLoadingError)


def translated(error: Exception) -> Exception:
    """The server's error as one of ours."""
    text = str(error)
    if isinstance(error, _REFUSED):
        return ConfigurationError(f"the server refuses the url's user or password: {text}")
    if isinstance(error, redis.exceptions.OutOfMemoryError) or text.startswith("OOM"):
        return QueueFullError(f"the server is out of memory, nothing was stored: {text}")
    if text.startswith("FQSCHEMA"):
        return other_schema(text[9:])
    if text.startswith("FQSETTINGS"):
        return SettingsChangedError(
            "the settings of this namespace change all the time: programs at odds declare them in turn; nothing was done"
        )
    if is_passing(error):
        return QueueUnavailableError(f"the server cannot be used: {text or type(error).__name__}")
    return _refused(text)


def _refused(text: str) -> FairQueueError:
    if not text.startswith("WRONGTYPE"):
        return FairQueueError(f"the server refused a command: {text}")
    return DamagedKeyError(
        "expected a key of this namespace to hold what fairqueue wrote, but it holds another type "
        f"(fairqueue doctor names it, with --fix it mends what can be told from the messages): {text}"
    )


async def drop_idle(client: Redis) -> None:
    """Closes the connections that nobody uses: those of a pool die together, and each would cost a timeout of its own."""
    with contextlib.suppress(*TROUBLE):
        await client.connection_pool.disconnect(inuse_connections=False)


async def send(client: Redis, words: list[Any]) -> Any:
    """One command; a refusal by the server is the answer, trouble on the way is raised."""
    try:
        return await client.execute_command(*words)  # type: ignore[no-untyped-call]
    except redis.ResponseError as error:
        return error


async def send_all(client: Redis, commands: list[list[Any]]) -> list[Any]:
    """Several commands in one round trip; each answer or refusal in its place."""
    pipeline = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)
    answers: list[Any] = await pipeline.execute(raise_on_error=False)
    return answers
