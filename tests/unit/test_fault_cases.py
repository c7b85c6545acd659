"""Every case has its test, every test its case, and the page names them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.cases.catalogue import CASES, KINDS
from tests.support.processes import ROOT
from tools import reliability


def test_there_are_fifty_cases_of_eighteen_kinds() -> None:
    assert (len(KINDS), len(CASES)) == (18, 50)
    assert {case[0] for case in CASES} == set(KINDS)


def test_every_case_has_a_test_and_every_test_a_case() -> None:
    carried = [test.case for test in reliability.tests()]
    assert set(carried) == set(CASES)
    assert all(f"test_{test.case[0].lower()}_" in test.path for test in reliability.tests())


def test_the_page_names_every_test() -> None:
    checked = subprocess.run([sys.executable, "tools/reliability.py", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0, "run: python tools/reliability.py"


def written(folder: Path, kind: str, *lines: dict[str, object]) -> None:
    (folder / f"{kind}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("every", "said"), [(1, "at every server command"), (3, "at one in 3 of the server commands")]
)
def test_the_page_tells_of_how_many_commands_each_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, said: str
) -> None:
    harm = {"faults": 5, "lost": 0, "wedged": 0, "twice": 0}
    written(tmp_path, "commands", {"script": "claim", "scenario": "claim", "every": every, **harm})
    monkeypatch.setattr(reliability, "RESULTS", tmp_path)
    assert said in reliability.page()


def test_the_page_tells_of_the_last_run_of_chaos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = dict.fromkeys(("messages", "deliveries", "repeated", "lost", "wedged", "doubled", "exceeded"), 0)
    run |= {"seed": 1, "wanted": 40, "problems": 2}
    long, short = [run | {"kills": kills, "faults": kills, "at": kills == 30} for kills in (1000, 30)]
    written(tmp_path, "chaos", short, long)
    monkeypatch.setattr(reliability, "RESULTS", tmp_path)
    told = " ".join(reliability.page().split())
    assert "killed processes 30 times under load (of 40 that were asked for)" in told
    assert "it found 2 problems" in told
