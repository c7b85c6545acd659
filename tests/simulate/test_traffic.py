"""When messages come and how long they run."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import fmean
from typing import Any

import pytest

from fairqueue.fairness import percentile
from fairqueue.simulate.traffic import arrivals_of, run_time_of

DRAWS = 20_000


def times(value: dict[str, Any], duration: float) -> list[float]:
    return [at / 1e6 for at in arrivals_of(value, "arrivals").times(Random(1), duration)]


def runs(value: object) -> list[float]:
    run, random = run_time_of(value, "run"), Random(1)
    return [run(random) for _ in range(DRAWS)]


def test_regular_arrivals_are_even_and_do_not_drift() -> None:
    assert times({"regular": 2}, 2) == [0, 0.5, 1, 1.5]
    assert times({"regular": 3}, 100_000)[-1] == 99_999.666667
    assert times({"regular": 1, "from": 1.5, "until": 4}, 10) == [1.5, 2.5, 3.5]


def test_bursts_come_once_or_again() -> None:
    assert times({"burst": 2}, 10) == [0, 0]
    assert times({"burst": 2, "from": 3, "every": 4}, 10) == [3, 3, 7, 7]


def test_poisson_arrivals_have_their_rate_and_are_as_bursty_as_chance() -> None:
    found = times({"poisson": 5}, 4_000)
    assert len(found) == pytest.approx(20_000, rel=0.03)
    gaps = [after - before for before, after in pairwise(found)]
    assert percentile(gaps, 0.5) == pytest.approx(0.2 * 0.6931, rel=0.03)
    assert times({"poisson": 5, "from": 8}, 10)[0] >= 8


@pytest.mark.parametrize(
    "value",
    [
        {"regular": 2.5, "from": 3},
        {"burst": 7, "every": 3, "from": 1},
        {"burst": 7, "until": 0.5},
        {"burst": 5, "from": 20},
    ],
)
def test_how_many_come_is_known_before(value: dict[str, Any]) -> None:
    assert arrivals_of(value, "arrivals").number_within(11) == len(times(value, 11))


def test_run_times_have_the_shape_they_were_given() -> None:
    assert set(runs(2)) == {2.0} == set(runs({"fixed": 2}))
    uniform = runs({"uniform": [1, 3]})
    assert (min(uniform) >= 1, max(uniform) <= 3, fmean(uniform)) == (True, True, pytest.approx(2, rel=0.02))
    exponential = runs({"exponential": 2})
    assert fmean(exponential) == pytest.approx(2, rel=0.03)
    assert percentile(exponential, 0.5) == pytest.approx(2 * 0.6931, rel=0.03)
    lognormal = runs({"lognormal": {"p50": 0.5, "p95": 3}})
    assert percentile(lognormal, 0.5) == pytest.approx(0.5, rel=0.03)
    assert percentile(lognormal, 0.95) == pytest.approx(3, rel=0.05)
