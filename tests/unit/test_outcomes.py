from __future__ import annotations

import copy
import math
import pickle
from datetime import timedelta
from typing import Any

import pytest

from fairqueue.errors import ConfigurationError
from fairqueue.outcomes import DeadLetterNow, HandlerSignal, Release, Retry


def test_a_handler_chooses_its_outcome_by_raising() -> None:
    assert Retry().delay_ms is None
    assert Retry().reason is None
    assert Retry(delay=timedelta(minutes=1), reason="busy").delay_ms == 60_000
    assert str(Retry(reason="busy")) == "busy"
    assert Release().delay_ms == 0
    assert Release(0.25).delay_ms == 250
    assert DeadLetterNow("gone").reason == str(DeadLetterNow("gone")) == "gone"


@pytest.mark.parametrize("signal", [Retry(5, "busy"), Retry(), Release(5), DeadLetterNow("gone")])
def test_signals_are_exceptions_that_can_be_copied(signal: HandlerSignal) -> None:
    for other in (pickle.loads(pickle.dumps(signal)), copy.copy(signal)):
        assert isinstance(other, HandlerSignal)
        assert type(other) is type(signal)
        assert vars(other) == vars(signal)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, "5", True, timedelta(seconds=-1)])
@pytest.mark.parametrize("signal", [Retry, Release])
def test_a_wrong_delay_is_refused_where_it_is_raised(signal: Any, delay: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^expected delay to be a duration"):
        signal(delay=delay)


def test_an_odd_reason_loses_no_choice() -> None:
    reason: Any = ValueError("boom")
    assert DeadLetterNow(reason).reason == "boom"
    assert DeadLetterNow("\ud800").reason == r"\ud800"
