"""``@guard``: says which rule a test proves, and without what it must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.guards.mutate import Mutation

Test = TypeVar("Test", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Proof:
    """A rule, its test in words, and the mutations under each of which the test fails."""

    rule: str
    promise: str
    mutations: tuple[Mutation, ...]


def guard(rule: str, promise: str, *mutations: Mutation) -> Callable[[Test], Test]:
    """Marks a test as the proof of a guard.

    The test passes, and fails by an assertion of its own under each of the mutations: one about what is promised (a
    state, a count, who runs again), not about an error that a call raises. ``python -m tests.guards --why`` shows it.

    Example:
        >>> @guard("slots 5", "a slot without a lease is removed", without("the removal", ...))
        ... async def test_reconcile_removes_ghosts(make_queue): ...
    """
    if not mutations:
        raise ValueError(f"expected at least one mutation for {promise!r}")

    def mark(test: Test) -> Test:
        test.proof = Proof(rule, promise, mutations)  # type: ignore[attr-defined]
        return test

    return mark


def proof_of(test: object) -> Proof | None:
    """The proof a test function carries."""
    proof = getattr(test, "proof", None)
    return proof if isinstance(proof, Proof) else None
