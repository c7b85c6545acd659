from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairqueue.codec import JSON, BodyError, JsonCodec, decode_payload, encode_payload, pack_body, unpack_body
from fairqueue.errors import InvalidMessageError, PayloadTooLargeError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_json_values_come_back_exactly(value: Any) -> None:
    encoded = JSON.encode(value)
    assert JSON.decode(encoded) == value
    assert json.loads(encoded) == value


def test_json_is_compact_utf8_with_exact_integers() -> None:
    assert JsonCodec().encode({"ключ": [1, "🦊"]}) == '{"ключ":[1,"🦊"]}'.encode()
    for exact in (2**53 + 1, 10**100, -(2**64)):
        assert JSON.decode(JSON.encode(exact)) == exact


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "payload",
    [
        object(),
        b"x",
        {1, 2},
        math.nan,
        -math.inf,
        "\ud800",
        {"\udfff": 1},
        endless(),
        pytest.param(nested(10**5), id="too deep"),
        pytest.param(10**5000, id="too many digits"),
    ],
)
def test_what_json_cannot_hold_is_an_invalid_message(payload: Any) -> None:
    with pytest.raises(InvalidMessageError, match=r"^payload cannot be encoded by JsonCodec: ") as e:
        encode_payload(JSON, payload, 1_000_000)
    assert e.value.__cause__ is not None


def test_a_payload_has_at_most_so_many_bytes() -> None:
    assert encode_payload(JSON, "x" * 8, 10) == b'"xxxxxxxx"'
    with pytest.raises(
        PayloadTooLargeError, match=r"^expected the encoded payload to have at most 1,000 bytes, got 1,002$"
    ):
        encode_payload(JSON, "é" * 500, 1000)


class Odd:
    def __init__(self, result: object) -> None:
        self.result = result

    def encode(self, obj: Any) -> Any:
        return self.result

    def decode(self, data: bytes) -> Any:
        raise KeyError(data)


@pytest.mark.parametrize("result", ["text", bytearray(b"x"), None, 3])
def test_a_codec_must_return_bytes(result: object) -> None:
    with pytest.raises(InvalidMessageError, match=r"^payload cannot be encoded by Odd: expected bytes, got "):
        encode_payload(Odd(result), {}, 100)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b"[1]x", "[1]".encode("utf-16"), b"[" * 10**5]
)
def test_what_is_no_json_cannot_be_decoded(raw: bytes) -> None:
    with pytest.raises(BodyError, match=r"^payload cannot be decoded by JsonCodec: "):
        decode_payload(JSON, raw)


def test_whatever_a_codec_raises_is_one_error() -> None:
    assert decode_payload(JSON, b'{"a":1}') == {"a": 1}
    with pytest.raises(BodyError, match=r"^payload cannot be decoded by Odd: ") as e:
        decode_payload(Odd(b""), b"x")
    assert isinstance(e.value.__cause__, KeyError)


# ---------------------------------------------------------------- bodies


@given(st.dictionaries(st.text(), json_values, max_size=4), st.binary(max_size=200))
def test_a_body_gives_back_its_metadata_and_payload(metadata: dict[str, Any], payload: bytes) -> None:
    assert unpack_body(pack_body(metadata, payload)) == (metadata, payload)


def test_the_form_of_a_body() -> None:
    assert pack_body({}, b"[1]") == b"0:[1]"
    assert pack_body({"org": "ü"}, b"[1]") == b'12:{"org":"\xc3\xbc"}[1]'
    assert unpack_body(b"2:{}:") == ({}, b":")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b":",
        b"0",
        b"x:",
        b"-1:",
        b"+1:",
        b" 1:",
        b"1_0:",
        b"5:{}",
        b"2:[]",
        b"2:{]x",
        b"1:7",
        b"99999999999:",
        b"4:\xff\xff\xff\xff",
        "\u0661:".encode(),
        b"10000:" + b"[" * 10_000,
    ],
)
def test_what_is_no_body_is_one_error(raw: bytes) -> None:
    with pytest.raises(BodyError):
        unpack_body(raw)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_body_or_that_error(raw: bytes) -> None:
    try:
        metadata, payload = unpack_body(raw)
    except BodyError:
        return
    assert isinstance(metadata, dict)
    assert raw.endswith(payload)


def test_metadata_that_is_not_json_is_an_invalid_message() -> None:
    with pytest.raises(InvalidMessageError, match=r"^metadata cannot be encoded: "):
        pack_body({"a": object()}, b"")
