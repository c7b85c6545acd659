"""The reference names everything that is public, with the defaults that the code has."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fairqueue
from fairqueue import testing
from fairqueue.dead_letters import DeadLetters
from fairqueue.limits_control import LimitsControl
from fairqueue.queue_controls import QueueControls
from fairqueue.queue_views import QueueViews
from fairqueue.tenants import Tenants
from fairqueue.testing import faults
from tests.guide.pages import DOCS

API = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")


def named(name: str) -> bool:
    return re.search(rf"(?<![\w]){re.escape(name)}(?!\w)", API) is not None


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", API, re.MULTILINE | re.DOTALL)
    assert found, title
    return found.group(1)


def rows(title: str) -> dict[str, str]:
    """First and second cell of the section's tables."""
    return dict(re.findall(r"^\| `(\w+)` \|(.*?)\|", section(title), re.MULTILINE))


def public(of: type) -> Iterator[str]:
    return (name for name in vars(of) if not name.startswith("_"))


@pytest.mark.parametrize("name", [*fairqueue.__all__, *testing.__all__])
def test_every_public_name_is_there(name: str) -> None:
    assert named(name)


@pytest.mark.parametrize(
    "of",
    [
        fairqueue.FairQueue,
        QueueViews,
        QueueControls,
        fairqueue.Lease,
        fairqueue.Worker,
        fairqueue.SyncLease,
        LimitsControl,
        Tenants,
        DeadLetters,
    ],
)
def test_every_public_method_is_there(of: type) -> None:
    assert [name for name in public(of) if not named(name)] == []


@pytest.mark.parametrize(
    "of",
    [
        value
        for name in fairqueue.__all__
        if dataclasses.is_dataclass(value := getattr(fairqueue, name))
        and name not in ("NewMessage", "RetryPolicy")
    ],
)
def test_every_field_of_what_is_answered_is_there(of: Any) -> None:
    shown = [field.name for field in dataclasses.fields(of) if not field.name.startswith("_")]
    assert [name for name in shown if not named(name)] == []


@pytest.mark.parametrize("name", ["leak_slot", "wrong_type", "delete", "overwrite"])
def test_faults_have_the_arguments_of_the_code(name: str) -> None:
    call = re.search(rf"faults\.{name}\((.*?)\)", section("Testing"))
    assert call
    written = [word.partition("=")[0].strip(" *") for word in call.group(1).split(",")]
    assert written == list(inspect.signature(getattr(faults, name)).parameters)


@pytest.mark.parametrize(
    ("title", "of"),
    [
        ("FairQueue", fairqueue.FairQueue),
        ("Producing", fairqueue.NewMessage),
        ("Producing", fairqueue.FairQueue.enqueue),
        ("Worker", fairqueue.Worker),
    ],
)
def test_options_and_defaults_are_those_of_the_code(title: str, of: Callable[..., Any]) -> None:
    found = rows(title)
    options = [
        one for one in inspect.signature(of).parameters.values() if one.name not in ("self", "handler")
    ]
    if title == "Worker":
        options = [one for one in options if one.name != "queue"]
    assert [one.name for one in options] == list(found)
    for one in options:
        default = "" if one.default is one.empty else f"`{one.default!r}`"
        assert found[one.name].strip() == default, one.name


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("claim", fairqueue.FairQueue.claim),
        ("RetryPolicy", fairqueue.RetryPolicy),
        ("drain", testing.drain),
    ],
)
def test_signatures_are_those_of_the_code(name: str, of: Callable[..., Any]) -> None:
    written = re.search(rf"`(?:await )?{name}\(((?:[^()]|\([^()]*\))*=(?:[^()]|\([^()]*\))*)\)` ", API)
    assert written, name
    for one in inspect.signature(of).parameters.values():
        if one.name in ("self", "kind", "function", "queue"):
            continue
        default = repr(one.default).replace("'", '"')
        assert re.search(
            rf"\b{one.name}={re.escape(default)}(?:,|$)", written.group(1).replace("_000", "000")
        ), one
