from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairqueue import validation
from fairqueue.errors import ConfigurationError, InvalidMessageError
from fairqueue.validation import LONGEST_MS, duration_ms, identifier, instant_ms, integer, number, shown

NO_NUMBERS = [True, False, None, "1", b"1", 1j, [1], object()]


class Color(str, Enum):  # noqa: UP042 - the older kind, whose str() is not its value
    RED = "red"


class Shape(StrEnum):
    ROUND = "round"


# ---------------------------------------------------------------- how a value is shown


@pytest.mark.parametrize("value", ["x" * 10**6, list(range(10**5)), b"y" * 1000])
def test_a_shown_value_has_at_most_80_characters(value: object) -> None:
    assert len(shown(value)) == 80
    assert shown(value).endswith("...")


def test_a_shown_value_is_one_line_and_never_raises() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    class TwoLines:
        def __repr__(self) -> str:
            return "one\n   two"

    assert shown(TwoLines()) == "one two"
    assert shown(Broken()) == "<Broken that cannot be shown>"
    assert shown(10**10_000) == "<int that cannot be shown>"
    assert shown("\ud800") == r"'\ud800'"


# ---------------------------------------------------------------- durations


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        (0.0, 0),
        (timedelta(0), 0),
        (1, 1000),
        (1.5, 1500),
        (0.0014, 1),
        (0.0016, 2),
        (0.0001, 1),
        (5e-324, 1),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=1600), 2),
        (timedelta(hours=1), 3_600_000),
        (LONGEST_MS / 1000, LONGEST_MS),
    ],
)
def test_durations_become_whole_milliseconds(value: timedelta | float, milliseconds: int) -> None:
    result = duration_ms("delay", value)
    assert result == milliseconds
    assert type(result) is int


@pytest.mark.parametrize(
    "value",
    [
        *NO_NUMBERS,
        -1,
        -1e-9,
        -(10**400),
        math.nan,
        math.inf,
        -math.inf,
        timedelta(microseconds=-1),
        timedelta.max,
        timedelta.min,
        LONGEST_MS,
        10**400,
    ],
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(InvalidMessageError, match=r"^expected delay to be a duration of 0 or more.*, got "):
        duration_ms("delay", value, error=InvalidMessageError)


def test_the_text_names_the_least_duration() -> None:
    with pytest.raises(ConfigurationError, match=r"^expected delay to be a positive duration, got -3$"):
        duration_ms("delay", -3, minimum_ms=1)
    with pytest.raises(ConfigurationError, match=r"a positive duration of at least 0\.1 s, got 0\.05$"):
        duration_ms("visibility_timeout", 0.05, minimum_ms=100)
    with pytest.raises(ConfigurationError, match=r"and at most 100 years, got 1e\+30$"):
        duration_ms("delay", 1e30)
    with pytest.raises(ConfigurationError, match=r"\(a timedelta, or a number of seconds\), got '5s'$"):
        duration_ms("delay", "5s")


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_000)))
def test_a_timedelta_and_its_seconds_mean_the_same_within_a_millisecond(value: timedelta) -> None:
    result = duration_ms("delay", value)
    assert abs(result - duration_ms("delay", value.total_seconds())) <= 1
    assert abs(timedelta(milliseconds=result) - value) < timedelta(milliseconds=1)
    assert (result > 0) == (value > timedelta(0))


# ---------------------------------------------------------------- instants


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1_767_225_600_001),
        (datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC), 1_767_225_600_001),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), 0),
    ],
)
def test_instants_are_rounded_up_so_that_nothing_is_early(value: datetime, milliseconds: int) -> None:
    assert instant_ms("at", value) == milliseconds


class NoOffset(tzinfo):
    def utcoffset(self, _: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1),  # noqa: DTZ001
        datetime(2026, 1, 1, tzinfo=NoOffset()),
        1_767_225_600,
        "2026-01-01T00:00:00Z",
        None,
    ],
)
def test_naive_instants_are_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected at to be an aware datetime"):
        instant_ms("at", value)


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_an_instant_is_never_before_the_datetime(value: datetime) -> None:
    later = datetime(1970, 1, 1, tzinfo=UTC) - value + timedelta(milliseconds=instant_ms("at", value))
    assert timedelta(0) <= later < timedelta(milliseconds=1)


# ---------------------------------------------------------------- identifiers


@pytest.mark.parametrize("value", ["a", "a b", "{a}:*[", "ü", "🦊", "a" * 512, "é" * 256, "\u200b", "\u2028"])
def test_identifiers_are_kept_byte_for_byte(value: str) -> None:
    assert identifier("tenant", value) == value


@pytest.mark.parametrize("value", [Color.RED, Shape.ROUND])
def test_a_member_of_a_text_enum_is_its_value(value: str) -> None:
    assert type(identifier("tenant", value)) is str
    assert identifier("tenant", value) == value.value  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("", "non-empty text"),
        ("a" * 513, r"text of at most 512 bytes of UTF-8 \(this is 513\)"),
        ("é" * 257, r"text of at most 512 bytes of UTF-8 \(this is 514\)"),
        ("a\n", "text without control characters"),
        ("\x00", "text without control characters"),
        ("\x7f", "text without control characters"),
        ("\x85", "text without control characters"),
        ("\ud800", "text without lone surrogates"),
        (b"a", "text"),
        (7, "text"),
        (None, "text"),
        (True, "text"),
    ],
)
def test_anything_else_is_no_identifier(value: object, wanted: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^expected tenant to be {wanted}, got "):
        identifier("tenant", value)


@given(st.text(st.characters(exclude_categories=()), max_size=600))
def test_an_identifier_is_exactly_what_the_rule_says(value: str) -> None:
    legal = (
        value != ""
        and not any(unicodedata.category(one) in {"Cc", "Cs"} for one in value)
        and len(value.encode("utf-8", "surrogatepass")) <= 512
    )
    if legal:
        assert identifier("id", value) == value
    else:
        with pytest.raises(ConfigurationError):
            identifier("id", value)


def test_every_control_character_is_refused() -> None:
    control = [chr(code) for code in range(0x11_0000) if unicodedata.category(chr(code)) == "Cc"]
    assert len(control) == 65
    for one in control:
        with pytest.raises(ConfigurationError, match="without control characters"):
            identifier("id", f"a{one}")


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(("value", "maximum"), [(1, None), (10**30, None), (7, 7), (1, 1)])
def test_integers_in_range(value: int, maximum: int | None) -> None:
    assert integer("n", value, 1, maximum) == value


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, 11, 5.0, math.nan, math.inf])
def test_what_is_no_integer_in_range_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected n to be an integer from 1 to 10, got "):
        integer("n", value, 1, 10)


def test_an_integer_without_an_upper_end_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"^expected n to be an integer of at least 1, got 0$"):
        integer("n", 0, 1)


@pytest.mark.parametrize("value", [0.001, 1, 1.0, 1000])
def test_numbers_in_range(value: float) -> None:
    result = number("cost", value, 0.001, 1000)
    assert result == value
    assert type(result) is float


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, 0, 0.0009, 1000.1, -1, math.nan, math.inf, -math.inf, 10**400]
)
def test_what_is_no_number_in_range_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected cost to be a number from 0.001 to 1,000, got "):
        number("cost", value, 0.001, 1000)


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize("value", ["default", "A-z_0.9", "x" * 64])
def test_namespaces(value: str) -> None:
    assert validation.namespace("name", value) == value


@pytest.mark.parametrize("value", ["", "a b", "x" * 65, "ü", "a\n", "a:b", "{a}", 7, None, b"a"])
def test_what_is_no_namespace_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected name to be 1 to 64 ASCII letters"):
        validation.namespace("name", value)


def test_a_choice_says_what_was_probably_meant() -> None:
    assert validation.choice("scheduler", "fifo", ("fair", "fifo")) == "fifo"
    with pytest.raises(
        ConfigurationError, match=r"^expected scheduler to be 'fair' or 'fifo', got 'fare' \(did you mean"
    ):
        validation.choice("scheduler", "fare", ("fair", "fifo"))
    for value in ("xyz", "", "fair" * 10**5, None, 3, ["fair"]):
        with pytest.raises(
            ConfigurationError, match=r"^expected scheduler to be 'fair' or 'fifo', got .*[^)]$"
        ):
            validation.choice("scheduler", value, ("fair", "fifo"))


@pytest.mark.parametrize("value", [0, 1, None, "true", []])
def test_only_true_and_false_are_booleans(value: object) -> None:
    assert validation.boolean("jitter", True) is True
    with pytest.raises(ConfigurationError, match=r"^expected jitter to be True or False, got "):
        validation.boolean("jitter", value)


def test_callables() -> None:
    assert validation.callable_("fn", len) is len
    value: Any = 3
    with pytest.raises(ConfigurationError, match=r"^expected fn to be callable, got 3$"):
        validation.callable_("fn", value)
