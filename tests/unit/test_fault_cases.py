"""Every case has its test, every test its case, and the page names them all."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from tests.faults.cases.catalogue import CASES, KINDS
from tools import reliability


def test_there_are_fifty_cases_of_eighteen_kinds() -> None:
    assert (len(KINDS), len(CASES)) == (18, 50)
    assert {case[0] for case in CASES} == set(KINDS)


def test_every_case_has_a_test_and_every_test_a_case() -> None:
    carried = [test.case for test in reliability.tests()]
    assert set(carried) == set(CASES)
    assert all(f"test_{test.case[0].lower()}_" in test.path for test in reliability.tests())


def test_the_page_is_what_the_tests_and_its_figures_say() -> None:
    assert reliability.main(["--check"]) == 0, "run: python -m tools.reliability --render"


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page and its figures, where they may be written to."""
    for name in ("PAGE", "FIGURES"):
        path = getattr(reliability, name)
        (tmp_path / path.name).write_text(path.read_text())
        monkeypatch.setattr(reliability, name, tmp_path / path.name)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "said", "instead"),
    [
        ("reliability.md", "faults were injected one by one", "and one faults were injected one by one"),
        ("reliability.md", "of 50 cases", "of 51 cases"),
        ("reliability.md", "(../tests/faults/cases/test_a_slots_leak.py)", "(gone.py)"),
        ("reliability.md", " | passed |", " | not run |"),
        ("reliability.md", "Where a fault cannot happen", "Where no fault can happen"),
        ("reliability.json", '"scenarios": ', '"scenarios": 1'),
        ("reliability.json", '"passed": ', '"failed": '),
    ],
)
def test_text_and_figures_cannot_be_edited_apart(copied: Path, file: str, said: str, instead: str) -> None:
    text = (copied / file).read_text()
    assert said in text
    (copied / file).write_text(text.replace(said, instead, 1))
    assert reliability.main(["--check"]) == 1


def told(**changed: object) -> str:
    """The page with other figures, without its line ends."""
    figures = deepcopy(reliability.kept())
    for name, value in changed.items():
        figures[name] = figures[name] | value if isinstance(value, dict) else value
    return " ".join(reliability.page(figures).split())


def test_acts_and_public_operations_are_told_apart() -> None:
    assert "at every exchange of 38 public operations, made in 42 acts, with the server" in told(
        exchanges={"acts": 42, "operations": 38}
    )


def test_what_was_wrong_otherwise_is_told_beside_the_harm() -> None:
    assert "expired lease 0, with **problems in claim async, claim sync**." in told(
        exchanges={"problems": ["claim async", "claim sync"], "twice": 0}
    )


def test_it_says_how_many_faults_were_followed_to_their_end() -> None:
    assert "After 60 of them the maintenance passes ran" in told(commands={"faults": 100, "followed": 60})
    assert "the other 40 left exactly" in told(commands={"faults": 100, "followed": 60})
    assert "how many these were was not counted" in told(commands={"followed": None})


@pytest.mark.parametrize(
    ("every", "said"), [(1, "at every server command"), (3, "at one in 3 of the server commands")]
)
def test_the_page_tells_of_how_many_commands_each_failed(every: int, said: str) -> None:
    assert said in told(commands={"every": every})


def test_the_page_names_what_ran() -> None:
    run = {
        "commit": "abc1234",
        "changed": True,
        "date": "2026-01-02",
        "server": "Valkey 9.1.2",
        "python": "3.11.7",
    }
    assert (
        "`make faults` are of commit abc1234, with changes besides, on 2026-01-02, with Valkey 9.1.2 and Python 3.11.7."
        in told(faults=run)
    )


def test_a_short_run_is_called_one() -> None:
    assert "**The last run was not whole, or had problems:** one in 3; nobody knows." in told(
        short=["one in 3", "nobody knows"]
    )
    assert "whole run" not in told(short=[])


def test_a_run_of_chaos_that_did_not_come_to_its_end_is_told() -> None:
    assert "The last run of `make chaos` **did not come to its end**: AssertionError()." in told(
        chaos={"failed": "AssertionError()"}
    )


def test_the_page_tells_of_the_problems_of_chaos() -> None:
    counts = ("messages", "deliveries", "repeated", "lost", "wedged", "doubled", "exceeded", "faults", "seed")
    run = dict.fromkeys(counts, 30) | {"kills": 30, "wanted": 40, "problems": 2}
    figures = reliability.kept() | {"chaos": run}
    page = " ".join(reliability.page(figures).split())
    assert "killed processes 30 times under load (of 40 that were asked for)" in page
    assert "it found 2 problems" in page
