"""The import contracts speak of every module: a new one cannot slip past them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fairqueue"

# What the commands and the demo may import besides ``fairqueue`` itself: what it is made of, and what users of a
# command line need on top (processes, signals, the embedded server).
OPEN = {"__main__", "bench", "cli", "clock", "codec", "config", "dead_letters", "demo", "embedded", "errors"}
OPEN |= {
    "exits",
    "entitlement",
    "explanation",
    "fairness",
    "fairness_report",
    "generics",
    "ids",
    "lease",
    "lifeline",
    "limits",
    "limits_control",
    "maintenance",
    "message",
}
OPEN |= {
    "new_message",
    "outcomes",
    "queue",
    "retry",
    "runner",
    "signals",
    "simulate",
    "states",
    "supervisor",
    "sync",
}
OPEN |= {"sync_controls", "sync_lease", "tenants", "testing", "url", "validation", "worker"}


def contracts() -> dict[str, Any]:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    return {contract["id"]: contract for contract in linter["contracts"]}


def modules() -> set[str]:
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def test_every_module_has_its_layer() -> None:
    layers = contracts()["layers"]
    assert layers["exhaustive"]
    assert set(re.findall(r"\w+", " ".join(layers["layers"]))) == modules()


def test_every_module_is_open_to_the_commands_or_forbidden_to_them() -> None:
    forbidden = {name.removeprefix("fairqueue.") for name in contracts()["public-only"]["forbidden_modules"]}
    assert forbidden | OPEN == modules()
    assert forbidden & OPEN == set()


def test_every_exception_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for exception in contracts()["public-only"]["ignore_imports"]:
        assert re.search(rf'"{re.escape(exception)}",\s+# \w', text), exception
