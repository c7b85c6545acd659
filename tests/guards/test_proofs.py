"""Rule 7 of slots: every guard is proven. Here: that a proof which proves nothing is found out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fairqueue._engine import script
from fairqueue._engine.keys import join
from tests.guards.catalogue import DOCS, all_proofs
from tests.guards.mutate import Edit, MutationError, changed_scripts, without
from tests.guards.proof import Proof, guard
from tests.guards.runner import ERRS, FAILS, PASSES, ROOT, Collected, Pair, Verdict, is_proven
from tests.guards.table import RULES, catalogue, printed

SETTLE = without("freeing", "settle.lua", "free_slots(row.mid, lane, not lease and row.token or nil)", "")


@guard(
    "slots 7",
    "a mutation whose text is not found exactly once is an error",
    without("the count", "tests.guards.mutate:Edit.applied", "if found != 1:", "if False:"),
)
def test_a_mutation_that_does_not_apply_is_an_error() -> None:
    edit = Edit("settle.lua", "guard", "nothing")
    assert edit.applied("one guard") == "one nothing"
    for text in ("no such thing", "a guard and a guard"):
        try:
            changed = edit.applied(text)
        except MutationError:
            continue
        raise AssertionError(f"{text!r} became {changed!r}")


@guard(
    "slots 7",
    "a guard whose removal its test does not notice is not proven, nor is one whose test fails anyway",
    without(
        "asking how the test ends without the guard",
        "tests.guards.runner:is_proven",
        " and pair.mutated.word == FAILS",
        "",
    ),
    without(
        "asking how the test ends with the guard",
        "tests.guards.runner:is_proven",
        "pair.intact.word == PASSES and ",
        "",
    ),
)
def test_only_passes_with_and_fails_without_is_a_proof() -> None:
    outcomes = {
        (intact, mutated): is_proven(
            Pair("test", Proof("rule", "promise", (SETTLE,)), SETTLE, Verdict(intact), Verdict(mutated))
        )
        for intact in (PASSES, FAILS, "breaks")
        for mutated in (PASSES, FAILS, ERRS, "breaks", "not run")
    }
    assert [pair for pair, proven in outcomes.items() if proven] == [(PASSES, FAILS)]


def test_every_mutation_applies_to_the_code_as_it_is() -> None:
    """Found here in a second; the proofs themselves are run by ``make guards``."""
    wrong = []
    for proof in all_proofs():
        for mutation in proof.mutations:
            try:
                with mutation.installed():
                    pass
            except MutationError as error:
                wrong.append(f"{proof.promise}: {error}")
    assert wrong == []


def test_every_rule_has_proofs_and_every_proof_a_rule() -> None:
    assert {proof.rule for proof in all_proofs()} == set(RULES)


def test_the_catalogue_is_in_step() -> None:
    assert DOCS.read_text(encoding="utf-8") == catalogue(all_proofs()), "run: python -m tests.guards --docs"


def test_a_changed_script_is_put_back() -> None:
    before = script.load("settle").sha
    with SETTLE.installed():
        assert [changed.name for changed in changed_scripts()] == ["settle"]
    assert script.load("settle").sha == before
    assert changed_scripts() == []


def test_a_changed_function_is_put_back() -> None:
    changed = without("the tenant", "fairqueue._engine.keys:join", "US.join(parts)", "US.join(parts[1:])")
    with changed.installed():
        assert join("acme", "1") == "1"
    assert join("acme", "1") == "acme\x1f1"


def test_a_guard_without_a_mutation_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one mutation"):
        guard("slots 7", "nothing is taken out")


def test_a_run_without_proofs_is_no_proof() -> None:
    collected = Collected(status=0)
    assert not collected.proven
    assert "NOT PROVEN" in printed(collected)


PROOFS = """
from fairqueue import FairQueueError
from fairqueue.validation import shown
from tests.conftest import server
from tests.guards.conftest import variant
from tests.guards.mutate import without
from tests.guards.proof import guard

TARGET = "tests.guards.scenario:ids"


@guard("rule", "good", without("ids", TARGET, "lease.message.id", "None"))
def test_good():
    assert taken() == ["m"]


@guard("rule", "unnoticed", without("nothing", TARGET, "lease.message.id", "lease.message.id or 0"))
def test_unnoticed():
    assert taken() == ["m"]


@guard("rule", "gone", without("what is not there", TARGET, "no such text", ""))
def test_gone():
    assert taken() == ["m"]


@guard("rule", "crashes", without("a name", TARGET, "lease.message.id", "unknown"))
def test_crashes():
    assert taken() == ["m"]


@guard("rule", "errs", without("ids", TARGET, "lease.message.id", "None"))
def test_errs():
    answer = ["m"] if taken() == ["m"] else FairQueueError("the server refused a command")
    assert answer == ["m"]


def taken():
    from types import SimpleNamespace
    from tests.guards.scenario import ids
    return ids([SimpleNamespace(message=SimpleNamespace(id="m"))])
"""


def test_the_runner_tells_proofs_from_others(tmp_path: Path) -> None:
    (tmp_path / "test_made_up.py").write_text(PROOFS, encoding="utf-8")
    command = [sys.executable, "-m", "tests.guards", "--why", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    rows = {row.split()[1]: row.split()[-2:] for row in done.stdout.splitlines() if row.startswith("rule ")}
    assert rows["good"] == ["passes", "fails"]
    assert rows["unnoticed"] == ["passes", "passes"]
    assert rows["gone"] == ["breaks", "(MutationError)"]
    assert rows["crashes"] == ["breaks", "(NameError)"]
    assert ": assert taken() == [\"m\"] -> assert [None] == ['m']" in done.stdout
    assert rows["errs"] == ["an", "error"]
    assert done.returncode == 1
    assert "5 guards, 5 counter-proofs, 4 NOT PROVEN" in done.stdout
