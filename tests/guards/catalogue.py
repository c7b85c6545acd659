"""All proofs there are, without running them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from tests.guards.proof import Proof, proof_of

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs" / "guards.md"


def all_proofs() -> Iterator[Proof]:
    """In the order of the files and of the tests in them."""
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"tests.guards.{path.stem}")
        for test in vars(module).values():
            if proof := proof_of(test):
                yield proof
