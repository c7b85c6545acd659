"""What each script is made to do while one of its commands fails.

A script is there once for each way that its code can go; test_every_site.py tells which of its commands none of them sends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tests.faults.scenes import Step, prepared


@dataclass(frozen=True)
class Act:
    """What is done while a command of ``script`` fails. ``given`` comes before, on a queue with these options.

    ``again``: what a client that was refused does then. ``after``: what somebody mends by hand when maintenance has done
    what it can: what no maintenance does. ``leaves``: patterns of what is found nevertheless, without any fault.
    """

    script: str
    go: Step
    given: Step = prepared
    after: Step | None = None
    again: Step | None = None
    leaves: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.script}-{self.go.__name__}"  # type: ignore[attr-defined]


ACTS: dict[str, list[Act]] = defaultdict(list)
"""By script."""


def act(
    *scripts: str,
    given: Step = prepared,
    after: Step | None = None,
    again: Step | None = None,
    leaves: tuple[str, ...] = (),
    **options: Any,
) -> Callable[[Step], Step]:
    """The function is what makes these scripts run."""

    def put_down(go: Step) -> Step:
        for script in scripts:
            ACTS[script].append(Act(script, go, given, after, again, leaves, options))
        return go

    return put_down


def all_acts() -> list[Act]:
    """Every act, those of one script together."""
    for duty in (
        "enqueue",
        "settle",
        "return",
        "wake",
        "claim",
        "expiry",
        "rates",
        "maintenance",
        "control",
        "charges",
        "rounds",
        "guarantees",
    ):
        import_module(f"tests.faults.acts_{duty}")
    return [act for acts in ACTS.values() for act in acts]
