"""Where the server is: URLs, checked, and shown without their passwords."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from fairqueue.errors import ConfigurationError
from fairqueue.validation import expected

__all__ = ["Url", "UrlScheme", "parse_url", "resolved_url"]

UrlScheme = Literal["redis", "rediss", "unix", "embedded"]

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


def resolved_url(url: str | None) -> str:
    """The URL to use: the given one, ``$FAIRQUEUE_URL``, or the embedded server of this directory."""
    return url or os.environ.get("FAIRQUEUE_URL") or f"embedded://{Path.cwd() / '.fairqueue'}"


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
