"""Payloads to bytes and back, and the stored body: a message's metadata and payload in one value."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from fairqueue.config import Codec
from fairqueue.errors import InvalidMessageError, PayloadTooLargeError
from fairqueue.validation import ENDINGS, said, shown

__all__ = [
    "JSON",
    "BodyError",
    "Codec",
    "JsonCodec",
    "decode_payload",
    "encode_payload",
    "pack_body",
    "unpack_body",
]

_MOST_LENGTH_DIGITS = 10


class BodyError(ValueError):
    """A stored body or payload cannot be read: it was damaged, or written by something else."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class JsonCodec:
    """JSON by the standard library, in compact UTF-8: the default codec.

    Integers are exact at any size. NaN, infinities, lone surrogates and objects JSON has no word for are refused.
    As in all JSON, a tuple comes back as a list and a key that is a number as text.

    >>> JsonCodec().encode({"invoice": 7})
    b'{"invoice":7}'
    """

    def __init__(self) -> None:
        self._encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._decoder = json.JSONDecoder(parse_constant=_refuse_constant)

    def encode(self, obj: object) -> bytes:
        """The object as JSON; raises ``TypeError`` or ``ValueError`` for what JSON cannot hold."""
        return self._encoder.encode(obj).encode()

    def decode(self, data: bytes) -> Any:
        """The object again; raises ``ValueError`` for anything that is not JSON in UTF-8."""
        return self._decoder.decode(data.decode())

    def __repr__(self) -> str:
        return "JsonCodec()"


JSON: Final = JsonCodec()
"""The codec of a queue that was given none."""


def encode_payload(codec: Codec, payload: object, max_bytes: int) -> bytes:
    """The payload's bytes, ready to store.

    Raises:
        InvalidMessageError: the codec raised, or returned anything but ``bytes``.
        PayloadTooLargeError: there are more than ``max_bytes``.
    """
    name = type(codec).__name__
    try:
        encoded: object = codec.encode(payload)
    except ENDINGS:
        raise
    except BaseException as error:
        raise InvalidMessageError(
            f"payload cannot be encoded by {name}: {said(error)} in {shown(payload)}"
        ) from error
    if not isinstance(encoded, bytes):
        raise InvalidMessageError(
            f"payload cannot be encoded by {name}: expected bytes, got {shown(encoded)}"
        )
    if len(encoded) > max_bytes:
        raise PayloadTooLargeError(
            f"expected the encoded payload to have at most {max_bytes:,} bytes, got {len(encoded):,}"
        )
    return encoded


def decode_payload(codec: Codec, payload: bytes) -> Any:
    """The payload again; whatever the codec raises for it becomes ``BodyError``.

    Raised through, it would take along all messages that were claimed with this one.
    """
    try:
        return codec.decode(payload)
    except ENDINGS:
        raise
    except BaseException as error:
        raise BodyError(f"payload cannot be decoded by {type(codec).__name__}: {said(error)}") from error


def pack_body(metadata: dict[str, Any], payload: bytes) -> bytes:
    """What is stored for a message: the metadata's length in decimal, a colon, the metadata as JSON, the payload.

    Empty metadata takes no JSON: most messages have none. Raises ``InvalidMessageError`` where it is not JSON.

    >>> pack_body({"org": "x"}, b"[1]")
    b'11:{"org":"x"}[1]'
    """
    if not metadata:
        return b"0:" + payload
    try:
        encoded = JSON.encode(metadata)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(f"metadata cannot be encoded: {error} in {shown(metadata)}") from error
    return b"%d:%b%b" % (len(encoded), encoded, payload)


def unpack_body(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """The metadata and the payload's bytes of a stored body; raises ``BodyError`` for anything else."""
    digits, colon, rest = raw[: _MOST_LENGTH_DIGITS + 1].partition(b":")
    if not colon or not digits.isdigit():
        raise BodyError(f"expected a body to start with the length of its metadata, got {shown(raw[:40])}")
    start, length = len(digits) + 1, int(digits)
    del rest
    if length == 0:
        return {}, raw[start:]
    if len(raw) - start < length:
        raise BodyError(f"expected {length} bytes of metadata, got {len(raw) - start}")
    try:
        metadata = JSON.decode(raw[start : start + length])
    except (ValueError, RecursionError) as error:
        raise BodyError(f"metadata cannot be decoded: {error}") from error
    if not isinstance(metadata, dict):
        raise BodyError(f"expected metadata to be an object, got {shown(metadata)}")
    return metadata, raw[start + length :]
