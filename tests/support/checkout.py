"""Which fairqueue the tests are about: the source beside them, or a built one on purpose."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fairqueue

ROOT = Path(__file__).resolve().parents[2]
BUILT = "FAIRQUEUE_TEST_BUILT"
"""Set by tools/test_pythons.py, whose environments have the package as users get it."""


def must_be_tested_here() -> None:
    """Ends the program unless the fairqueue that it imported is the one of this checkout.

    ``pip install .`` in an environment that had it in editable form puts a copy there: from then on every change of the
    source would be tested by a run that never sees it.
    """
    found = Path(fairqueue.__file__).resolve()
    if os.environ.get(BUILT) or found.is_relative_to(ROOT / "src"):
        return
    raise SystemExit(
        f"expected to test {ROOT / 'src' / 'fairqueue'}, got the copy {found.parent}: "
        f"put the source in its place with {sys.executable} -m pip install --editable '.[dev]'"
    )
