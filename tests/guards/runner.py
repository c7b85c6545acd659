"""Runs every proof on the code as it is and under each of its mutations, and judges the pairs."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.guards.mutate import Mutation
from tests.guards.proof import Proof, proof_of

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 60  # seconds for one test: a mutation may make it wait for what never comes
PASSES, FAILS = "passes", "fails"
ERRS = "fails on an error"  # a call said so, and nothing shows that it did harm
_REFUSED = "FairQueueError('the server"


@dataclass(slots=True)
class Verdict:
    """What one run of a test came to: it passes, fails by an assertion of its own, or breaks in another way."""

    word: str = "not run"
    details: str = ""
    why: str = ""  # the assertion of the test that failed, and with what


@dataclass(slots=True)
class Pair:
    """A test with its guard and without."""

    test: str
    proof: Proof
    mutation: Mutation
    intact: Verdict
    mutated: Verdict


def is_proven(pair: Pair) -> bool:
    """The test passes on the code as it is and fails, by an assertion of its own, without the guard."""
    return pair.intact.word == PASSES and pair.mutated.word == FAILS


@dataclass(slots=True)
class Collected:
    """All verdicts of a run, by test and mutation."""

    pairs: list[Pair] = field(default_factory=list)
    plain: dict[str, Verdict] = field(default_factory=dict)
    status: int = 0
    output: str = ""

    @property
    def proven(self) -> bool:
        """Every pair passes with its guard and fails without; every test without a proof passes."""
        return (
            self.status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            and bool(self.pairs)
            and all(map(is_proven, self.pairs))
            and all(verdict.word == PASSES for verdict in self.plain.values())
        )


class _Plugin:
    """Gives each proof one run on the code as it is and one for each mutation, and notes how they end."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected
        self._intact: dict[str, Verdict] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._progress = os.dup(1)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        proof = proof_of(metafunc.function)
        if proof is None:
            return
        variants = [None, *proof.mutations]
        ids = ["intact", *(f"without {mutation.name}" for mutation in proof.mutations)]
        metafunc.parametrize("variant", variants, ids=ids, indirect=True)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if not isinstance(item, pytest.Function):
                continue
            verdict, proof, mutation = Verdict(), proof_of(item.function), _mutation_of(item)
            self._verdicts[item.nodeid] = verdict
            test = item.nodeid.partition("[")[0]
            if proof is None:
                self._collected.plain[item.nodeid] = verdict
            elif mutation is None:
                self._intact[test] = verdict
            else:
                self._collected.pairs.append(
                    Pair(test, proof, mutation, self._intact.get(test, Verdict()), verdict)
                )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if item.nodeid in self._verdicts:
            mutated = isinstance(item, pytest.Function) and _mutation_of(item) is not None
            _note(self._verdicts[item.nodeid], report, call, mutated)
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        word = self._verdicts[nodeid].word if nodeid in self._verdicts else "?"
        os.write(self._progress, {PASSES: b".", FAILS: b"x"}.get(word, b"!"))

    def pytest_unconfigure(self) -> None:
        os.write(self._progress, b"\n")
        os.close(self._progress)


def _mutation_of(item: pytest.Function) -> Mutation | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("variant")


def _note(verdict: Verdict, report: Any, call: pytest.CallInfo[None], mutated: bool) -> None:
    """Without its guard a test must fail itself; what the checks after it say then does not matter any more."""
    if report.when == "call" and report.passed:
        verdict.word = PASSES
    elif report.failed and not (mutated and report.when == "teardown"):
        own = (
            report.when == "call" and call.excinfo is not None and call.excinfo.errisinstance(AssertionError)
        )
        verdict.word = FAILS if own else f"breaks ({call.excinfo.typename if call.excinfo else report.when})"
        verdict.details = report.longreprtext
        verdict.why = _why(call.excinfo)
        if own and mutated and _REFUSED in verdict.why:
            verdict.word = ERRS


def _why(excinfo: pytest.ExceptionInfo[BaseException] | None) -> str:
    """Where the test itself stood, and the first line of what was wrong."""
    if excinfo is None:
        return ""
    own = [entry for entry in excinfo.traceback if entry.path.name.startswith("test_")]
    said = str(excinfo.value).strip().partition("\n")[0]
    if not own:
        return said
    return f"{own[0].path.name}:{own[0].lineno + 1}: {' '.join(str(own[0].statement).split())} -> {said}"


def run(paths: list[str]) -> Collected:
    """All proofs found under the paths; pytest's own output is kept for the case that something is wrong."""
    collected, output = Collected(), io.StringIO()
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", f"--timeout={TIMEOUT}"]
    with contextlib.redirect_stdout(output):
        collected.status = pytest.main([*options, *paths], plugins=[_Plugin(collected)])
    collected.output = output.getvalue()
    return collected
