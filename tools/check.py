"""Runs every static check and prints one line for each; the output of those that fail follows theirs.

All of them run, whatever the first one says: one round shows everything there is to mend.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sysconfig.get_path("scripts"))

CHECKS: dict[str, list[str]] = {
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "lint": [str(BIN / "ruff"), "check", "."],
    "types": [str(BIN / "mypy")],
    "layers": [str(BIN / "lint-imports")],
    "lua": [sys.executable, "tools/lint_lua.py"],
}


def main(names: list[str]) -> int:
    """Runs the checks of these names, or all; 0 when every one passed."""
    unknown = set(names) - set(CHECKS)
    if unknown:
        print(f"expected some of {', '.join(CHECKS)}, got {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    results = [run(name) for name in names or CHECKS]
    return 0 if all(results) else 1


def run(name: str) -> bool:
    """Runs one check; true when it passed."""
    started = time.monotonic()
    done = subprocess.run(
        CHECKS[name], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    passed = done.returncode == 0
    print(f"{name:8}{'ok' if passed else 'FAILED':8}{time.monotonic() - started:5.1f} s", flush=True)
    if not passed:
        print(done.stdout, flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
