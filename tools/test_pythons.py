"""Runs the unit tests and a smoke test on every Python at hand that fairqueue supports.

Each interpreter gets an environment of its own (`.venv-3.12`) with the package as users get it: built as
a wheel and installed, so a script or a marker file missing from the wheel is found here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MINORS = (11, 12, 13, 14)
PROBE = "import sys; print('%d.%d' % sys.version_info[:2])"


def main() -> int:
    """Tests them all; 0 when every one passed and there was at least one."""
    pythons = at_hand()
    if not pythons:
        print("expected a Python 3.11 or newer, found none", file=sys.stderr)
        return 1
    failed = [version for version, python in pythons.items() if not passes(version, python)]
    print(f"tested on Python {', '.join(pythons)}" + (f"; failed on {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def at_hand() -> dict[str, str]:
    """One interpreter for each supported version, by version."""
    found = {}
    for minor in MINORS:
        version = f"3.{minor}"
        python = next((path for path in candidates(version) if runs_as(path, version)), None)
        if python:
            found[version] = python
    return found


def candidates(version: str) -> list[str]:
    """Where a Python of this version may be: on PATH, or among the versions of a pyenv."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenvs = [folder.parent for folder in folders if folder.name == "shims"]
    pyenvs += [Path(os.environ[name]) for name in ("PYENV_ROOT",) if name in os.environ]
    pyenvs.append(Path.home() / ".pyenv")
    paths = [folder / f"python{version}" for folder in folders]
    for pyenv in pyenvs:
        paths += sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    return [str(path) for path in paths if os.access(path, os.X_OK)]


def runs_as(python: str, version: str) -> bool:
    """Whether this really is that version: names on PATH may lead nowhere, or elsewhere."""
    done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def passes(version: str, python: str) -> bool:
    """Installs into `.venv-VERSION` and runs the tests there."""
    venv = ROOT / f".venv-{version}"
    own = str(venv / "bin" / "python")
    pip = [own, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    print(f"--- Python {version} ({python})", flush=True)
    steps = [
        [python, "-m", "venv", str(venv)],
        [*pip, ".[test]"],
        [*pip, "--force-reinstall", "--no-deps", "."],  # pip takes an equal version number for equal code
        [own, "-P", "tools/smoke.py"],
        [own, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit"],
    ]
    built = os.environ | {
        "FAIRQUEUE_TEST_BUILT": "1"
    }  # else the suite refuses what is not the source beside it
    return all(subprocess.run(step, cwd=ROOT, env=built, check=False).returncode == 0 for step in steps)


if __name__ == "__main__":
    sys.exit(main())
