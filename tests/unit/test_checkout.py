"""What is tested is the source of this checkout, not a copy that `pip install .` put in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import BUILT, ROOT


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A directory with a package of our name, that goes before ours."""
    (tmp_path / "fairqueue").mkdir()
    (tmp_path / "fairqueue" / "__init__.py").touch()
    return tmp_path


def suite(found_in: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != BUILT}
    return subprocess.run(
        [sys.executable, "-c", "import tests"],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(found_in)} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_copy_is_refused_with_what_to_do(copy: Path) -> None:
    done = suite(copy)
    assert done.returncode == 1
    assert f"got the copy {copy.resolve() / 'fairqueue'}: put the source in its place with" in done.stderr
    assert "-m pip install --editable '.[dev]'" in done.stderr


def test_the_source_is_taken_and_what_was_built_on_purpose(copy: Path) -> None:
    assert suite(ROOT / "src").returncode == 0
    assert suite(copy, **{BUILT: "1"}).returncode == 0


def test_make_puts_the_source_back_whatever_its_stamps_say(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    for stamp in (".stamp-run", ".stamp-dev"):
        (tmp_path / stamp).touch()
        assert f"'{tmp_path}/{stamp}' is up to date" in planned(tmp_path, stamp)
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "fairqueue"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for stamp in (".stamp-run", ".stamp-dev"):
        assert "tools/setup.sh" in planned(tmp_path, stamp)


def planned(venv: Path, stamp: str) -> str:
    """What make would do for the stamp; as if it were called by hand, also from a run of make."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        ["make", "-n", f"VENV={venv}", f"{venv}/{stamp}"],
        cwd=ROOT,
        env=environment | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout
