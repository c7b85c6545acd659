"""The README's examples, run as scripts on a server of their own, and what the README says of them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import eventually_sync
from tests.support.watch import WATCH

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks() -> list[str]:
    text = README.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(script: str, folder: Path) -> list[str]:
    """The lines that the script prints, on the server of the folder; fails with its errors."""
    WATCH.use_directory(folder / "queue")
    path = folder / "example.py"
    path.write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "default", str(path)],
        cwd=folder,
        env={**os.environ, "FAIRQUEUE_URL": f"embedded://{folder}/queue"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("number", range(len(blocks())))
def test_every_example_runs_without_a_word_of_complaint(number: int, tmp_path: Path) -> None:
    assert run(blocks()[number], tmp_path) != []


def test_a_late_message_of_a_small_tenant_is_handled_among_the_first(tmp_path: Path) -> None:
    lines = run(blocks()[0], tmp_path)
    assert sorted(lines) == sorted([*(f"big {n}" for n in range(1, 101)), "small 1"])
    assert lines.index("small 1") < 4


def test_the_first_example_is_as_short_as_promised() -> None:
    code = [line for line in blocks()[0].splitlines() if line.strip()]
    assert len(code) <= 20


def test_the_example_by_hand_gets_what_is_due_and_keeps_what_is_not(tmp_path: Path) -> None:
    claimed, stats, dead = run(blocks()[1], tmp_path)
    assert claimed.startswith("{'invoice': 7} until ")
    assert "delayed=1" in stats
    assert dead == "0 dead letters"


def test_what_is_typed_in_the_shell_works_as_it_stands(tmp_path: Path) -> None:
    """The handler's file, and each command in its turn; the worker until it has handled the message."""
    text = README.read_text(encoding="utf-8")
    (handler,) = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in re.findall(r"^fairqueue .*", text, re.MULTILINE)]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mail.py").write_text(handler, encoding="utf-8")
    WATCH.use_directory(tmp_path / ".fairqueue")
    # Nothing makes Python flush: what the handler prints has to show while the worker runs.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("FAIRQUEUE_URL", "PYTHONUNBUFFERED")
    }
    said = {}
    for _, name, *words in commands:
        if name == "bench":  # takes longer than a test may, and has tests of its own
            continue
        with (tmp_path / "out").open("w+", encoding="utf-8") as out:
            running = subprocess.Popen(
                [sys.executable, "-m", "fairqueue", name, *words],
                cwd=tmp_path,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            try:
                if name == "worker":
                    eventually_sync(lambda out=out: "acme 7" in Path(out.name).read_text(), "the message")  # type: ignore[misc]
                    running.send_signal(signal.SIGINT)
                assert running.wait(60) == 0, Path(out.name).read_text()
            finally:
                running.kill()
        said[name] = (tmp_path / "out").read_text(encoding="utf-8")
    assert list(said) == ["enqueue", "worker", "stats", "doctor"]
    assert "total completed\t1\n" in said["stats"]
    assert "nothing found" in said["doctor"]


def test_the_examples_get_along_in_one_directory(tmp_path: Path) -> None:
    """Neither replaces what the other declared: that would be a warning."""
    for block in [*blocks(), *blocks()]:
        run(block, tmp_path)
