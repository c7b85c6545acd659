"""The test suite; a package, so that no other installed `tests` can be taken for it."""

from __future__ import annotations

from tests.support.checkout import must_be_tested_here

must_be_tested_here()  # here: tests.guards and tests.chaos are run without pytest
