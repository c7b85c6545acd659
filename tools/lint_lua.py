"""Lints the engine's Lua scripts as the server gets them: assembled, then read by luacheck.

Writes each assembled script to `build/lua/`, so that a line number in a finding, or in an error of the
server, can be looked up there; findings name the line of the source as well.

An include offers more than one script may want, so a local that one script leaves unused is a finding only
when every script that contains it does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from fairqueue._engine.script import load_all

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "fairqueue" / "_engine" / "scripts"
ASSEMBLED = ROOT / "build" / "lua"

LINE = re.compile(r"(?P<path>[^:]+):(?P<line>\d+):\d+: \((?P<code>[EW]\d+)\) (?P<text>.*)")
UNUSED = re.compile(r"unused (?:function|variable) '(?P<name>\w+)'")


class Finding(NamedTuple):
    """One line of luacheck."""

    path: str
    line: int
    code: str
    text: str

    @property
    def unused(self) -> str | None:
        """The local that is unused here, if that is what was found."""
        match = UNUSED.match(self.text)
        return match["name"] if match else None


def main() -> int:
    """Assembles, lints and prints the findings; 1 when there are any, or luacheck is missing."""
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        print("expected luacheck on PATH: install the package lua-check", file=sys.stderr)
        return 1
    scripts = assemble()
    if not scripts:
        print("expected Lua scripts in the package, found none", file=sys.stderr)
        return 1
    findings = worth_telling(lint(luacheck, scripts), scripts)
    for found in findings:
        print(f"{found.path}:{found.line}: {found.code} {found.text}{source_of(found, scripts)}")
    print(f"{len(findings)} findings in {len(scripts)} scripts")
    return 1 if findings else 0


def assemble() -> dict[str, str]:
    """Writes every script of the package, whole, to `build/lua/`; path -> text."""
    shutil.rmtree(ASSEMBLED, ignore_errors=True)
    ASSEMBLED.mkdir(parents=True)
    scripts = {}
    for name, script in load_all().items():
        path = ASSEMBLED / f"{name}.lua"
        path.write_text(script.source, encoding="utf-8")
        scripts[str(path.relative_to(ROOT))] = script.source
    return scripts


def lint(luacheck: str, scripts: dict[str, str]) -> list[Finding]:
    """What luacheck finds in the assembled scripts."""
    command = [luacheck, "--formatter", "plain", "--codes", *scripts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    matches = [LINE.fullmatch(line) for line in done.stdout.splitlines() if line]
    if done.stderr or not all(matches):
        raise SystemExit(f"expected findings of luacheck, got\n{done.stdout}{done.stderr}")
    return [Finding(m["path"], int(m["line"]), m["code"], m["text"]) for m in matches if m]


def worth_telling(findings: list[Finding], scripts: dict[str, str]) -> list[Finding]:
    """All but locals that some other script uses; one finding for a local that none does."""
    unused_in: dict[str, set[str]] = defaultdict(set)
    for found in findings:
        if found.unused:
            unused_in[found.unused].add(found.path)
    dead = {name: min(paths) for name, paths in unused_in.items() if paths == defining(name, scripts)}
    return [found for found in findings if not found.unused or dead.get(found.unused) == found.path]


def defining(name: str, scripts: dict[str, str]) -> set[str]:
    """The scripts that have a local of this name."""
    local = re.compile(rf"^\s*local (?:function )?(?:\w+, )*{name}\b", re.MULTILINE)
    return {path for path, text in scripts.items() if local.search(text)}


def source_of(found: Finding, scripts: dict[str, str]) -> str:
    """Where the line of a finding was written, when only one line of the sources reads so."""
    wanted = scripts[found.path].splitlines()[found.line - 1]
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted(SOURCES.rglob("*.lua"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if line == wanted
    ]
    return f" ({places[0]})" if len(places) == 1 else ""


if __name__ == "__main__":
    sys.exit(main())
