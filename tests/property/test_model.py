"""Any sequence of operations: the engine does what the model says, and the audit finds nothing after any step."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.exchanges import public_operations
from tests.property import machine
from tests.property.conftest import Stage
from tests.property.machine.breaking import Breaking
from tests.property.machine.looking import Looking
from tests.property.machine.operating import Operating

RECEIVERS = {
    "queue": "FairQueue",
    "queues": "FairQueue",
    "limits": "LimitsControl",
    "tenants": "Tenants",
    "dead_letters": "DeadLetters",
    "lease": "Lease",
    "worker": "Worker",
}
"""What the machine calls an object of each class, or a list of them; what others do (the model, say) is not counted."""
LEFT_OUT = {"Worker.run_sync": "Worker.run in an event loop of its own; the machine's runs already"}


class Machine(Operating, Looking, Breaking):
    """All rules: those who break things use the rules of those who produce and consume."""


def named_in(source: str) -> set[str]:
    """Every ``receiver.method`` in the text, by class and method."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            inner = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            receiver = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")
            if kind := RECEIVERS.get(receiver):
                found.add(f"{kind}.{node.attr}")
    return found


def test_what_the_model_does_is_not_taken_for_a_queue() -> None:
    source = (
        "self.model.enqueue(x); {}.get(x); self.queues[0].claim(); queue.limits.set(x); self.lease.extend()"
    )
    assert named_in(source) & public_operations() == {"FairQueue.claim", "LimitsControl.set", "Lease.extend"}


def test_every_public_operation_is_used_by_the_machine_or_left_out_for_a_reason() -> None:
    files = list(Path(machine.__path__[0]).glob("*.py"))
    used = set().union(*(named_in(path.read_text()) for path in files))
    assert public_operations() - used == set(LEFT_OUT)


@pytest.mark.timeout(300)
def test_any_sequence_of_operations_agrees_with_the_model(stage: Stage) -> None:
    played = type("StagedMachine", (Machine,), {"stage": stage})
    run_state_machine_as_test(played, settings=settings(max_examples=30, stateful_step_count=40))
