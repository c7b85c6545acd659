from __future__ import annotations

import logging
import math
import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairqueue.errors import ConfigurationError
from fairqueue.retry import RetryPolicy

PLAIN = RetryPolicy(jitter=False)


def test_the_default_doubles_from_a_second_to_an_hour() -> None:
    assert [PLAIN.delay_ms(attempt) for attempt in range(1, 6)] == [1000, 2000, 4000, 8000, 16_000]
    assert PLAIN.delay_ms(12) == 2_048_000
    assert PLAIN.delay_ms(13) == PLAIN.delay_ms(10**6) == 3_600_000


def test_fixed_linear_and_none() -> None:
    assert {RetryPolicy.fixed(30).delay_ms(attempt) for attempt in (1, 2, 1000)} == {30_000}
    linear = RetryPolicy.linear(10, maximum=25, jitter=False)
    assert [linear.delay_ms(attempt) for attempt in (1, 2, 3, 10**6)] == [10_000, 20_000, 25_000, 25_000]
    assert RetryPolicy.none().max_attempts == 1
    assert RetryPolicy.none().max_crashes == 5


@pytest.mark.parametrize("attempt", [0, -1, -(10**6)])
def test_an_attempt_that_cannot_be_counts_as_the_first(attempt: int) -> None:
    for policy in (PLAIN, RetryPolicy.linear(1, jitter=False)):
        assert policy.delay_ms(attempt) == 1000


def test_jitter_spreads_between_half_and_the_whole() -> None:
    policy, rng = RetryPolicy(initial=100, maximum=100), random.Random(1)
    delays = [policy.delay_ms(1, rng=rng) for _ in range(2000)]
    assert 50_000 <= min(delays) < 51_000
    assert 99_000 < max(delays) <= 100_000
    assert abs(sum(delays) / len(delays) - 75_000) < 2000
    assert policy.delay_ms(1, rng=random.Random(7)) == policy.delay_ms(1, rng=random.Random(7))


seconds = st.floats(0, 3_155_760_000, allow_nan=False)
attempts = st.integers(1, 10**6)
factors = st.floats(1, 1000, allow_nan=False)


@given(seconds, factors, seconds, attempts, st.booleans())
def test_no_attempt_overflows_or_leaves_the_range(
    initial: float, factor: float, maximum: float, attempt: int, jitter: bool
) -> None:
    initial, maximum = sorted((initial, maximum))
    top = round(maximum * 1000) + 1
    for policy in (
        RetryPolicy(initial=initial, factor=factor, maximum=maximum, jitter=jitter),
        RetryPolicy.linear(initial, maximum=maximum, jitter=jitter),
        RetryPolicy.fixed(initial, jitter=jitter),
        RetryPolicy.custom(lambda attempt, _: attempt * initial, maximum=maximum),
    ):
        delay = policy.delay_ms(attempt)
        assert type(delay) is int
        assert 0 <= delay <= top


@given(st.floats(0.001, 1000), factors, attempts)
def test_without_jitter_no_later_wait_is_shorter(initial: float, factor: float, attempt: int) -> None:
    policy = RetryPolicy(initial=initial, factor=factor, jitter=False)
    assert policy.delay_ms(attempt) <= policy.delay_ms(attempt + 1)


# ---------------------------------------------------------------- custom policies


def test_a_custom_policy_sees_the_attempt_and_the_error() -> None:
    policy = RetryPolicy.custom(
        lambda attempt, error: attempt if isinstance(error, KeyError) else timedelta(minutes=1)
    )
    assert policy.delay_ms(3, KeyError("x")) == 3000
    assert policy.delay_ms(3, ValueError("x")) == 60_000
    assert RetryPolicy.custom(lambda *_: 100, maximum=5).delay_ms(1) == 5000


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -1, "5", None, True, [1], 10**400, timedelta(seconds=-1)]
)
def test_a_custom_policy_that_returns_no_duration_falls_back_and_is_logged(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RetryPolicy.custom(lambda *_: value)
    with caplog.at_level(logging.ERROR, logger="fairqueue"):
        assert 2000 <= policy.delay_ms(3) <= 4000
    assert "custom retry policy failed at attempt 3" in caplog.text
    assert "expected the delay a custom retry policy returns to be a duration" in caplog.text


def test_a_custom_policy_that_raises_falls_back_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(attempt: int, error: BaseException | None) -> float:
        raise RuntimeError("no idea")

    with caplog.at_level(logging.ERROR, logger="fairqueue"):
        assert 0.5e6 <= RetryPolicy.custom(broken).delay_ms(11) <= 1.1e6
        assert RetryPolicy.custom(broken, maximum=2).delay_ms(11) == 2000
    assert "RuntimeError: no idea" in caplog.text


def test_a_custom_policy_must_be_a_plain_function() -> None:
    async def coroutine(attempt: int, error: BaseException | None) -> float:
        return 1.0

    for fn in (coroutine, 3, None):
        with pytest.raises(ConfigurationError, match=r"^expected fn to be "):
            RetryPolicy.custom(fn)  # type: ignore[arg-type]


# ---------------------------------------------------------------- options and settings


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", 2**31),
        ("max_attempts", True),
        ("max_crashes", 0),
        ("max_crashes", 1.5),
        ("initial", -1),
        ("initial", math.nan),
        ("factor", 0.5),
        ("factor", 1001),
        ("factor", math.inf),
        ("maximum", math.inf),
        ("maximum", "1h"),
        ("jitter", 1),
        ("kind", "expnential"),
        ("function", len),
    ],
)
def test_wrong_options_are_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^expected {option} to be .*, got "):
        RetryPolicy(**{option: value})


def test_a_maximum_under_the_first_wait_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^expected maximum to be at least the first wait of 7200 s, got 3600$"
    ):
        RetryPolicy(initial=7200)


@pytest.mark.parametrize("make", [RetryPolicy.fixed, RetryPolicy.linear])
def test_a_wrong_step_is_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected (delay|step) to be a duration"):
        make(-1)


def test_durations_are_the_same_in_seconds_and_as_timedelta() -> None:
    assert RetryPolicy(initial=timedelta(seconds=2), maximum=60) == RetryPolicy(
        initial=2, maximum=timedelta(minutes=1)
    )
    assert RetryPolicy().initial == timedelta(seconds=1)


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(),
        RetryPolicy(3, 4, 0.5, 1.5, 10, jitter=False),
        RetryPolicy.fixed(30, max_attempts=2),
        RetryPolicy.linear(1, maximum=7, max_crashes=9),
        RetryPolicy.none(),
    ],
)
def test_a_policy_comes_back_from_settings(policy: RetryPolicy) -> None:
    assert RetryPolicy.from_settings(policy.to_settings()) == policy
    assert RetryPolicy.from_settings(policy.to_settings()).to_settings() == policy.to_settings()


def test_of_a_custom_policy_the_tries_come_back_and_the_default_waits() -> None:
    policy = RetryPolicy.custom(lambda *_: 1, max_attempts=3, max_crashes=2)
    assert policy.to_settings() == '{"kind":"custom","max_attempts":3,"max_crashes":2}'
    assert RetryPolicy.from_settings(policy.to_settings()) == RetryPolicy(max_attempts=3, max_crashes=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        "[]",
        "{}",
        '{"kind":"custom"}',
        '{"kind":"odd","max_attempts":1,"max_crashes":1}',
        RetryPolicy().to_settings().replace("1000", "1e400"),
        RetryPolicy().to_settings().replace("12", "0"),
    ],
)
def test_other_settings_are_refused(text: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^the retry policy stored under this name cannot be read: "
    ):
        RetryPolicy.from_settings(text)
