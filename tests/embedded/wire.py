"""A few lines of the server's protocol, so that an actor process need not import a client library."""

from __future__ import annotations

import socket
from typing import Self
from urllib.parse import unquote, urlsplit

Reply = bytes | int | None | list["Reply"]


class Wire:
    """One connection to a unix:// URL; ConnectionError when the server goes away, RuntimeError for an error reply."""

    def __init__(self, url: str, timeout: float = 10) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(unquote(urlsplit(url).path))
        except OSError:
            self._socket.close()
            raise
        self._stream = self._socket.makefile("rb")

    def __call__(self, *words: str | bytes) -> Reply:
        encoded = [word.encode() if isinstance(word, str) else word for word in words]
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
        self._socket.sendall(b"*%d\r\n%b" % (len(parts), b"".join(parts)))
        return self._reply()

    def _reply(self) -> Reply:
        line = self._stream.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self._stream.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def info(url: str, field: str) -> str:
    """One field of INFO: `run_id` tells one run of a server from the next, `process_id` whom to signal."""
    with Wire(url) as wire:
        text = wire("INFO", "server")
    assert isinstance(text, bytes)
    return dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)[field]


def config(url: str, name: str) -> str:
    with Wire(url) as wire:
        pair = wire("CONFIG", "GET", name)
    assert isinstance(pair, list)
    value = pair[1]
    assert isinstance(value, bytes)
    return value.decode()
