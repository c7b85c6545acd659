"""The repository's own tools: budgets end what they must, the Lua lint tells what is dead."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.waiting import eventually_sync

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def budget(seconds: float, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOLS / "budget.py"), "make it", "IT_BUDGET", str(seconds), *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_budget_passes_the_status_on() -> None:
    assert budget(60, sys.executable, "-c", "raise SystemExit(7)").returncode == 7


def test_a_budget_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, pathlib, signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"pathlib.Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "signal.pause()\n"
    )
    done = budget(5, sys.executable, "-c", code)
    assert done.returncode == 124
    assert "make it: over its budget of 5 s" in done.stderr
    assert "make it IT_BUDGET=15" in done.stderr
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    eventually_sync(lambda: not any(map(runs, started)), "the command and its child to be gone")


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    # An orphan stays listed until somebody collects it; it runs no more.
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def lint_lua() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lint_lua", TOOLS / "lint_lua.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_local_that_one_script_uses_is_no_finding_and_one_that_none_uses_is_one() -> None:
    lint = lint_lua()
    helpers = "local function used() end\nlocal function dead() end\n"
    scripts = {"a.lua": helpers, "b.lua": helpers + "used()\n"}
    findings = [
        lint.Finding("a.lua", 1, "W211", "unused function 'used'"),
        lint.Finding("a.lua", 2, "W211", "unused function 'dead'"),
        lint.Finding("b.lua", 2, "W211", "unused function 'dead'"),
        lint.Finding("b.lua", 3, "W111", "setting undefined variable 'x'"),
    ]
    told = [(found.path, found.line) for found in lint.worth_telling(findings, scripts)]
    assert told == [("a.lua", 2), ("b.lua", 3)]


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_failing_test_is_named_when_it_fails(tmp_path: Path, workers: list[str]) -> None:
    """Before the run has ended: the last test never does."""
    code = "import signal\ndef test_wrong(): assert 1 == 2\ndef test_hangs(): signal.pause()\n"
    (tmp_path / "conftest.py").write_text(
        "from tests.support.told_at_once import tell_at_once\n"
        "import pytest\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_configure(config): tell_at_once(config)\n"
    )
    (tmp_path / "test_it.py").write_text(code)
    out = tmp_path / "out"
    with out.open("w") as file:
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, str(tmp_path)],
            stdout=file,
            stderr=file,
            cwd=tmp_path,
            process_group=0,
            env=os.environ | {"PYTHONPATH": str(TOOLS.parent)},
        )
    try:
        eventually_sync(lambda: "assert 1 == 2" in out.read_text(), "the failure to be told")
        assert "FAILED test_it.py::test_wrong (call): " in out.read_text()
        assert run.poll() is None
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait(60)
