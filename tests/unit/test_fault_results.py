"""What test runs write down is read again: what began and never ended is named, and nobody takes part of a run for all."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.faults import record
from tools import fault_figures, fault_results, faults_matrix, reliability

HARM = {"faults": 5, "lost": 0, "wedged": 0, "twice": 0}
RUN = {"commit": "abc1234", "changed": False, "server": "Valkey 9.1.2", "python": "3.11.7"}
CASE = "tests/faults/cases/test_x.py::test_one"
CHAOS = dict.fromkeys(
    ("messages", "deliveries", "repeated", "lost", "wedged", "doubled", "exceeded", "problems"), 0
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole run of everything, as small as can be: ``tmp_path/faults`` and ``tmp_path/chaos``."""
    monkeypatch.setattr(record, "FOLDER", tmp_path / "faults")
    monkeypatch.setattr(fault_results, "FAULTS", tmp_path / "faults")
    monkeypatch.setattr(fault_results, "CHAOS", tmp_path / "chaos")
    monkeypatch.setattr(record, "EVERY", 1)
    begin(monkeypatch, "r1")
    for kind, what in named().items():
        record.began(kind, **what)
        record.note(kind, **what, **({"outcome": "passed"} if kind == "cases" else HARM))
    record.note("exchanges", operation="claim", flavour="sync", covers=["FairQueue.claim"], **HARM)
    record.note("exchanges", **named()["exchanges"], covers=["FairQueue.claim"], **HARM)
    record.note("run", status=0)
    record.began("runs", tmp_path / "chaos", seed=1, wanted=1000, **RUN)
    record.note("runs", tmp_path / "chaos", kills=1000, faults=2000, **CHAOS)
    return tmp_path


def begin(monkeypatch: pytest.MonkeyPatch, name: str, *, whole: bool = True) -> None:
    monkeypatch.setenv(record.RUN, name)
    record.began("run", whole=whole, **RUN)


def named() -> dict[str, dict[str, str]]:
    return {
        "commands": {"script": "claim", "scenario": "claim"},
        "exchanges": {"operation": "claim", "flavour": "async"},
        "cancelled": {"what": "test_cancelled"},
        "server": {"what": "test_server"},
        "cases": {"case": "A1", "test": f"{CASE}[1]"},
    }


def short() -> list[str]:
    return list(fault_figures.taken([CASE])["short"])


def test_a_whole_run_is_one(run: Path) -> None:
    figures = fault_figures.taken([CASE])
    assert figures["short"] == []
    assert figures["cases"] == {CASE: {"passed": 1}}
    assert (figures["exchanges"]["acts"], figures["exchanges"]["operations"]) == (1, 1)
    assert figures["faults"]["commit"] == "abc1234"
    assert faults_matrix.main() == 0


def test_the_last_line_of_the_table_is_the_sum_of_all(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of five kinds of lines, five faults each; the sync form of one exchange is a line of its own."""
    assert faults_matrix.main() == 0
    *_, cases, everything = capsys.readouterr().out.splitlines()
    assert cases == "1 tests of reported cases: 1 passed"
    assert everything == "faults injected 25, lost 0, wedged 0, run twice without an expired lease 0"


def test_a_case_that_failed_fails_the_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record.note("cases", **named()["cases"], outcome="failed")
    assert faults_matrix.main() == 1
    assert f"{CASE}[1]: failed" in capsys.readouterr().out


def test_the_last_line_about_a_thing_counts(run: Path) -> None:
    record.note("commands", **named()["commands"], **(HARM | {"faults": 7}))
    assert [line["faults"] for line in fault_results.read("commands", run / "faults").ended] == [7]


@pytest.mark.parametrize("kind", list(named()))
def test_what_began_and_never_ended_is_named(
    run: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sums have nothing of it."""
    what = {name: f"{value}-2" for name, value in named()[kind].items()}
    record.began(kind, **what)
    name = " ".join(what[part] for part in fault_results.IDENTITIES[kind])
    assert short() == [f"{name} ({kind}) began and never said how it ended"]
    assert faults_matrix.main() == 1
    assert f"{name}: began and never said how it ended" in capsys.readouterr().out


def test_what_ended_once_and_not_the_next_time_is_named(run: Path) -> None:
    record.began("commands", **named()["commands"])
    assert fault_results.read("commands", run / "faults").unfinished == ["claim claim"]


def test_a_run_that_was_ended_is_none(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, "r1")
    assert short() == ["run r1 did not write down how it ended"]
    assert faults_matrix.main() == 1
    record.note("run", status=2)
    assert short() == ["run r1 was not of all tests under tests/faults, or was ended"]


def test_a_run_of_some_tests_is_no_whole_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, "r1", whole=False)
    record.note("run", status=0)
    assert short() == ["run r1 was not of all tests under tests/faults, or was ended"]


def test_results_of_several_runs_are_no_whole_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, "r2")
    record.note("cases", **named()["cases"], outcome="passed")
    record.note("run", status=0)
    assert short() == ["the results are of 2 runs"]


def test_the_short_form_is_no_whole_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "EVERY", 3)
    record.note("cases", **named()["cases"], outcome="passed")
    assert short() == ["one in 3 of the commands failed, and the cases were a tenth of their size"]


def test_a_case_that_was_not_run_is_named(run: Path) -> None:
    found = fault_figures.taken([CASE, f"{CASE}_more"])["short"]
    assert found == [f"1 tests of cases were not run: {CASE}_more"]


@pytest.mark.parametrize("kind", [kind for kind in named() if kind != "cases"])
@pytest.mark.parametrize(
    "harm", [{"lost": 1}, {"wedged": 1}, {"twice": 1}, {"problems": ["not met"]}, {"faults": 0}]
)
def test_harm_fails_the_table(run: Path, kind: str, harm: dict[str, Any]) -> None:
    for line in fault_results.read(kind, run / "faults").ended:
        record.note(kind, **(line | harm))
    assert faults_matrix.main() == 1


def test_the_last_run_of_chaos_is_told_even_if_it_failed(run: Path) -> None:
    record.began("runs", run / "chaos", seed=2, wanted=1000, **RUN)
    assert short() == [
        "the last run of make chaos did not come to its end: it began and never said how it ended"
    ]
    record.note("runs", run / "chaos", failed="AssertionError('expected all to be back')", problems=1)
    assert short() == [
        "the last run of make chaos did not come to its end: AssertionError('expected all to be back')"
    ]


def test_chaos_of_fewer_kills_is_no_whole_run(run: Path) -> None:
    record.began("runs", run / "chaos", seed=2, wanted=30, **RUN)
    record.note("runs", run / "chaos", kills=30, faults=40, **CHAOS)
    assert short() == ["make chaos was asked for 30 kills, not for 1,000"]


def test_the_page_is_written_from_a_whole_run_unless_one_asks_for_less(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PAGE", "FIGURES"):
        monkeypatch.setattr(reliability, name, run / name)
    assert reliability.main([]) == 1  # nothing is known of the real cases
    assert "tests of cases were not run" in capsys.readouterr().err
    assert not (run / "PAGE").exists()
    assert reliability.main(["--allow-short"]) == 0
    assert "The last run was not whole, or had problems" in (run / "PAGE").read_text()
    assert json.loads((run / "FIGURES").read_text())["cases"] == {CASE: {"passed": 1}}
    capsys.readouterr()
    assert reliability.main(["--check"]) == 0
    assert "of commit abc1234, which is not known here" in capsys.readouterr().err


def test_it_is_said_when_the_engine_is_another_than_the_one_that_was_run() -> None:
    """The page is of a run, and stays right; who reads it should know."""
    git = ["git", "-C", str(reliability.ROOT)]
    head = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not head:
        pytest.skip("no repository: an unpacked source")
    assert reliability.since({"commit": head}) == ""
    words = [*git, "log", "-2", "--format=%H", "--", "src"]
    older = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    if len(older) < 2:
        pytest.skip("a clone without the past")
    assert "src or tests/faults are not those any more" in reliability.since({"commit": older[1]})


def test_a_run_says_what_it_ran() -> None:
    said = record.surroundings()
    assert set(said) == {"commit", "changed", "server", "python"}
    assert said["server"].split()[0] in {"Valkey", "Redis"}
    assert said["server"].split()[1][0].isdigit()


def test_lines_carry_the_run_and_its_form(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "faults" / "cases.jsonl").read_text().splitlines()]
    assert [(line["run"], line["every"]) for line in lines] == [("r1", 1)] * 2


def test_a_run_with_a_problem_is_named_and_not_taken(run: Path) -> None:
    record.note("exchanges", operation="claim", flavour="sync", problems=["not met"], **HARM)
    assert short() == ["exchanges had problems: claim sync"]
    assert reliability.main([]) == 1


def test_a_page_of_nothing_is_never_written(run: Path) -> None:
    for file in [*(run / "faults").iterdir(), *(run / "chaos").iterdir()]:
        file.unlink()
    assert reliability.main(["--allow-short"]) == 1


def test_it_counts_what_the_next_claim_healed(run: Path) -> None:
    record.note("commands", script="claim", scenario="claim", row=". c.c", **HARM)
    commands = fault_figures.taken([CASE])["commands"]
    assert (commands["commands"], commands["healed"]) == (4, 2)
