"""Every case has its test, every test its case, and the page names them all."""

from __future__ import annotations

import subprocess
import sys

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
