"""A long search is one: whatever settings a test makes for itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

SAID = """
from hypothesis import settings
from tests.property import conftest
own = settings(max_examples=5, stateful_step_count=40)
print(own.max_examples, settings(own, deadline=None).max_examples, settings().max_examples, own.derandomize)
"""


@pytest.mark.parametrize(("times", "said"), [("1", "5 5 100 True"), ("20", "100 100 2000 False")])
def test_so_many_times_as_many_examples_are_tried_and_new_ones(times: str, said: str) -> None:
    environment = os.environ | {"PROPERTY_TIMES": times, "CI": "true"}
    ran = subprocess.run(
        [sys.executable, "-c", SAID], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == said
