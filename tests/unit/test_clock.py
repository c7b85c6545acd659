from __future__ import annotations

import math
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from fairqueue.clock import SERVER_CLOCK, Clock, ManualClock
from fairqueue.errors import ConfigurationError

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_servers_clock_leaves_the_time_to_the_server() -> None:
    clock: Clock = SERVER_CLOCK
    assert clock.now_ms() is None


def test_a_manual_clock_stands_still_until_it_advances() -> None:
    clock = ManualClock()
    assert clock.now == clock.now == START
    clock.advance(1.5)
    clock.advance(timedelta(minutes=1))
    clock.advance(0)
    assert clock.now == START + timedelta(seconds=61.5)
    assert clock.now_ms() == 1_767_225_600_000 + 61_500


def test_time_under_a_millisecond_adds_up() -> None:
    clock = ManualClock()
    for _ in range(10):
        clock.advance(0.0001)
    assert clock.now_ms() == 1_767_225_600_001


def test_it_starts_where_it_is_told_in_utc() -> None:
    clock = ManualClock(datetime(2030, 6, 1, 12, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now == datetime(2030, 6, 1, 10, tzinfo=UTC)
    assert clock.now.tzinfo is UTC


@pytest.mark.parametrize(
    "duration", [-1, -0.001, timedelta(seconds=-1), math.nan, math.inf, True, None, "1", 1e300]
)
def test_it_never_goes_back_and_keeps_its_time_when_refused(duration: Any) -> None:
    clock = ManualClock()
    with pytest.raises(ConfigurationError):
        clock.advance(duration)
    assert clock.now == START


@pytest.mark.parametrize("start", [datetime(2026, 1, 1), None, 0, "2026-01-01"])  # noqa: DTZ001
def test_a_naive_start_is_refused(start: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected start to be an aware datetime, got "):
        ManualClock(start)


@pytest.mark.parametrize("start", [datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, tzinfo=UTC)])
def test_a_start_that_the_scripts_would_take_for_the_servers_time_is_refused(start: datetime) -> None:
    with pytest.raises(ConfigurationError, match="expected start to be after 1970-01-01 00:00 UTC, got "):
        ManualClock(start)
    assert ManualClock(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)).now_ms() == 1000


def test_no_advance_is_lost_between_threads() -> None:
    clock = ManualClock()
    threads = [threading.Thread(target=lambda: [clock.advance(1) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now == START + timedelta(seconds=2000)
