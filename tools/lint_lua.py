"""Lints the engine's Lua scripts as the server gets them: assembled, then read by luacheck.

Writes each assembled script to `build/lua/`, so that a line number in a finding, or in an error of the
server, can be looked up there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from fairqueue._engine.script import load_all

ROOT = Path(__file__).resolve().parent.parent
ASSEMBLED = ROOT / "build" / "lua"


def main() -> int:
    """Assembles, then lints; the status of luacheck, 1 when it is missing."""
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        print("expected luacheck on PATH: install the package lua-check", file=sys.stderr)
        return 1
    files = assemble()
    if not files:
        print("expected Lua scripts in the package, found none", file=sys.stderr)
        return 1
    return subprocess.run([luacheck, "--no-color", "--quiet", *files], cwd=ROOT, check=False).returncode


def assemble() -> list[str]:
    """Writes every script of the package, whole, to `build/lua/`; their paths."""
    shutil.rmtree(ASSEMBLED, ignore_errors=True)
    ASSEMBLED.mkdir(parents=True)
    paths = []
    for name, script in load_all().items():
        path = ASSEMBLED / f"{name}.lua"
        path.write_text(script.source, encoding="utf-8")
        paths.append(str(path.relative_to(ROOT)))
    return paths


if __name__ == "__main__":
    sys.exit(main())
