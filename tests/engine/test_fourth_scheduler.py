"""A fourth scheduler, made as its guide says: in a copy of the package, used by a program of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import fairqueue
from tests.guide.pages import DOCS
from tests.support.watch import WATCH

PROGRAM = Path(__file__).with_name("fourth_scheduler_main.py")
PACKAGE = Path(fairqueue.__file__).parent
GUIDE = (DOCS / "guides" / "schedulers.md").read_text(encoding="utf-8").partition("## A fourth one")[2]
LARGEST = 3  # what its dearest message costs


def edit(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in pairs:
        assert text.count(old) == 1, f"{path.name}: {old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def with_a_fourth(tmp_path: Path) -> Path:
    """Where the package lies that has it."""
    (written,) = re.findall(r"^```lua\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    copied = tmp_path / "fairqueue"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    includes = copied / "_engine" / "scripts" / "includes"
    (includes / "policy_patient.lua").write_text(written, encoding="utf-8")
    edit(
        includes / "policy.lua",
        ("-- @include policy_drr\n", "-- @include policy_drr\n-- @include policy_patient\n"),
    )
    edit(
        copied / "config.py",
        ('["fair", "drr", "fifo"]', '["fair", "drr", "fifo", "patient"]'),
        ('("fair", "drr", "fifo")', '("fair", "drr", "fifo", "patient")'),
    )
    return tmp_path


async def ran(server: str, namespace: str, package: Path) -> dict[str, Any]:
    WATCH.checked_elsewhere(namespace)  # by the program: this process does not know the scheduler
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), server, namespace,
        env=os.environ | {"PYTHONPATH": str(package)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await program.communicate()
    assert program.returncode == 0, err.decode()
    found: dict[str, Any] = json.loads(out)
    return found


async def test_it_shares_and_lets_newcomers_wait(server: str, namespace: str, with_a_fourth: Path) -> None:
    found = await ran(server, namespace, with_a_fourth)
    shares = found["shares"]
    assert max(shares.values()) - min(shares.values()) <= 2 * LARGEST
    assert min(shares.values()) > 10 * LARGEST  # it is the weights that are seen, not the first few turns
    before, _, after = found["newcomer"].partition("n")
    assert {"a", "b", "c"} <= set(before), "it came before one of those who stood there"
    assert after.count("n") == 2
    assert abs(found["full group"]["x"] - found["full group"]["y"]) <= 2


def test_the_guide_names_all_that_the_engine_asks_a_scheduler() -> None:
    scripts = (PACKAGE / "_engine" / "scripts").rglob("*.lua")
    asked = {
        name for path in scripts for name in re.findall(r"\bpolicy\.(\w+)", path.read_text(encoding="utf-8"))
    }
    named = set(re.findall(r"^\| `(\w+)", GUIDE, re.MULTILINE))
    assert named == asked
