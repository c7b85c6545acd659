"""The options of a queue, checked once and then frozen. Nothing here reads the environment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast
from urllib.parse import urlsplit

from fairqueue.clock import SERVER_CLOCK, Clock
from fairqueue.errors import ConfigurationError
from fairqueue.limits import Limit, validated
from fairqueue.retry import RetryPolicy
from fairqueue.validation import boolean, choice, duration_ms, expected, integer, namespace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

__all__ = ["Codec", "Options", "Scheduler", "Url", "UrlScheme", "parse_url"]

Scheduler = Literal["fair", "fifo"]
UrlScheme = Literal["redis", "rediss", "unix", "embedded"]

SCHEDULERS: Final = ("fair", "fifo")
SHORTEST_VISIBILITY_MS: Final = 100
LARGEST_PAYLOAD_BYTES: Final = 512 * 1024 * 1024  # what the server takes in one value

_SCHEMES: Final[dict[str, UrlScheme]] = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
    "unix": "unix",
    "embedded": "embedded",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_SECRET_QUERY = re.compile(r"([?&][^=&]*password[^=&]*=)[^&#]*", re.IGNORECASE)


class Codec(Protocol):
    """How payloads become bytes and come back. What it raises on encoding refuses that one message."""

    def encode(self, obj: Any) -> bytes:
        """The payload as bytes."""
        ...

    def decode(self, data: bytes) -> Any:
        """The payload that ``encode`` made these bytes from; raises for bytes that are none of its own."""
        ...


@dataclass(frozen=True, slots=True)
class Url:
    """Where the server is. Its ``repr`` and ``str`` hide the password; ``text`` does not."""

    scheme: UrlScheme
    text: str = field(repr=False)
    """For the client library, ``valkey://`` written as ``redis://``."""
    path: Path | None = field(default=None, repr=False)
    """The directory of an embedded server; None for a private, temporary one and for every other scheme."""
    shown: str = ""
    """For logs and error messages: as it was given, with ``***`` for what may be secret."""

    def __str__(self) -> str:
        return self.shown


def parse_url(text: object) -> Url:
    """Check a server's URL; raises ``ConfigurationError`` for one that this version cannot use.

    ``redis://[[user]:password@][host][:port][/database]``, ``rediss://`` for TLS, ``valkey://`` and ``valkeys://``
    meaning the same; ``unix://[[user]:password@]/path/to/socket[?db=0]``; ``embedded:///directory`` (taken
    literally: no percent signs, no query) and ``embedded://``, private and temporary.
    """
    if not isinstance(text, str):
        raise expected("url", "text such as 'redis://localhost:6379/0'", text)
    match = _SCHEME.fullmatch(text)
    if match is None or not text.isprintable():
        raise ConfigurationError(
            f"expected url to be a URL such as 'redis://localhost:6379/0', got {_masked(text)!r}"
        )
    scheme, rest = match[1].lower(), match[2]
    if scheme not in _SCHEMES:
        raise ConfigurationError(_unsupported(scheme))
    if scheme == "embedded":
        return _embedded(rest)
    return _unix(rest) if scheme == "unix" else _tcp(scheme, rest)


def _unsupported(scheme: str) -> str:
    known = ", ".join(_SCHEMES)
    text = f"expected url to have one of the schemes {known}, got {scheme!r}"
    if "cluster" in scheme or "sentinel" in scheme:
        text += " (cluster and sentinel are not supported by this version)"
    return text


def _embedded(rest: str) -> Url:
    shown = f"embedded://{rest}"
    if rest and not rest.startswith("/"):
        raise ConfigurationError(
            f"expected url to be embedded:// with an absolute path or none, got {shown!r}"
        )
    return Url("embedded", shown, Path(rest) if rest else None, shown)


def _unix(rest: str) -> Url:
    user, slash, socket = rest.partition("/")
    shown = _masked(f"unix://{user}") + slash + _without_secrets(socket)
    if not socket.partition("?")[0] or (user and not user.endswith("@")):
        raise ConfigurationError(
            "expected url to be unix:// with the absolute path of a socket, such as 'unix:///run/valkey.sock'"
        )
    return Url("unix", f"unix://{rest}", None, shown)


def _tcp(scheme: str, rest: str) -> Url:
    normal = _SCHEMES[scheme]
    text, shown = f"{normal}://{rest}", _masked(f"{scheme}://{rest}")
    if not _is_server(text):
        raise ConfigurationError(
            f"expected url to be {scheme}://[[user]:password@]host[:port][/database], got {shown!r} "
            "(write special characters of a password as %XX)"
        )
    return Url(normal, text, None, shown)


def _is_server(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # a port that is none, or a broken IPv6 address: never chained, it quotes the password
        return False
    database = parts.path.removeprefix("/")
    numbered = not database or (database.isascii() and database.isdigit())
    return port != 0 and numbered and not parts.fragment


def _masked(text: str) -> str:
    """The URL without its password, wherever that ends: everything up to the last @ may be part of it."""
    before, at, after = text.rpartition("@")
    if not at:
        return _without_secrets(text)
    scheme, separator, user = before.rpartition("://") if before.count("://") == 1 else ("", "", "")
    name = user.partition(":")[0] + ":" if ":" in user else ""
    return f"{scheme}{separator}{name}***@{_without_secrets(after)}"


def _without_secrets(text: str) -> str:
    return _SECRET_QUERY.sub(r"\1***", text)


@dataclass(frozen=True, slots=True)
class Options:
    """Every option of a queue in its normal form; made by ``Options.make``.

    None for ``limits``, ``retry``, ``scheduler`` and ``dead_letters``: what is stored under the name on the server,
    or else the default. None for ``codec``: JSON. None for ``url``: whoever connects decides.
    """

    url: Url | None
    name: str
    limits: tuple[Limit, ...] | None
    retry: RetryPolicy | None
    visibility_ms: int
    reclaim_ms: int
    reconcile_ms: int
    scheduler: Scheduler | None
    shards: int
    codec: Codec | None
    max_payload_bytes: int
    dead_letters: bool | None
    clock: Clock

    @classmethod
    def make(
        cls,
        url: str | None = None,
        name: str = "default",
        *,
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
        clock: Clock | None = None,
    ) -> Options:
        """Check every option; the first wrong one raises ``ConfigurationError``.

        >>> Options.make(visibility_timeout=-3)
        Traceback (most recent call last):
        fairqueue.errors.ConfigurationError: expected visibility_timeout to be a positive duration of at least 0.1 s, got -3
        """
        return cls(
            url=None if url is None else parse_url(url),
            name=namespace("name", name),
            limits=None if limits is None else validated(limits),
            retry=_retry(retry),
            visibility_ms=duration_ms(
                "visibility_timeout", visibility_timeout, minimum_ms=SHORTEST_VISIBILITY_MS
            ),
            reclaim_ms=duration_ms("reclaim_interval", reclaim_interval),
            reconcile_ms=duration_ms("reconcile_interval", reconcile_interval),
            scheduler=_scheduler(scheduler),
            shards=_shards(shards),
            codec=_codec(codec),
            max_payload_bytes=integer("max_payload_bytes", max_payload_bytes, 1, LARGEST_PAYLOAD_BYTES),
            dead_letters=None if dead_letters is None else boolean("dead_letters", dead_letters),
            clock=_clock(clock),
        )


def _retry(value: object) -> RetryPolicy | None:
    if value is None or isinstance(value, RetryPolicy):
        return value
    raise expected("retry", "a RetryPolicy", value)


def _scheduler(value: object) -> Scheduler | None:
    return None if value is None else cast("Scheduler", choice("scheduler", value, SCHEDULERS))


def _shards(value: object) -> int:
    if value is not None and integer("shards", value, 1) > 1:
        raise ConfigurationError(f"expected shards to be 1, got {value} (more shards need a later version)")
    return 1


def _codec(value: Any) -> Codec | None:
    if value is None or _offers(value, "encode", "decode"):
        return cast("Codec | None", value)
    raise expected("codec", "an object with encode(obj) -> bytes and decode(bytes) -> obj", value)


def _offers(value: Any, *methods: str) -> bool:
    """A class in place of its instance has the methods too, and would fail only when the first message comes."""
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)


def _clock(value: Any) -> Clock:
    if value is None:
        return SERVER_CLOCK
    if _offers(value, "now_ms"):
        return cast("Clock", value)
    raise expected("clock", "an object with now_ms(), such as fairqueue.testing.ManualClock", value)
