"""The real command in processes of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairqueue import FairQueue, SyncFairQueue
from fairqueue.cli import main
from tests.support.waiting import eventually_sync
from tests.support.watch import WATCH

COMMAND = [sys.executable, "-m", "fairqueue"]
PATIENCE = 60


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended and what it said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on standard output."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """Plain output: the cells of each line."""
        return [line.split("\t") for line in self.out.splitlines()]

    @property
    def error(self) -> str:
        """The one line on standard error; nothing may be on standard output beside it."""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("fairqueue: ")
        assert self.out == ""
        return self.err.removeprefix("fairqueue: ").rstrip("\n")


class Place:
    """A directory to run commands in, a server, and a namespace of its own."""

    def __init__(self, directory: Path, url: str, name: str) -> None:
        self.directory, self.url, self.name = directory, url, name
        self._environment = os.environ | {"FAIRQUEUE_URL": url}
        self._running: list[Running] = []
        WATCH.use(url, name)

    def run(self, command: str, *arguments: str, stdin: str = "", name: str | None = None) -> Done:
        """Runs a command of this namespace to its end."""
        WATCH.use(self.url, name or self.name)
        words = [*COMMAND, command, *arguments, f"--name={name or self.name}"]
        done = subprocess.run(
            words,
            input=stdin.encode(),
            capture_output=True,
            cwd=self.directory,
            env=self._environment,
            timeout=PATIENCE,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def call(self, command: str, *arguments: str, stdin: str = "") -> Done:
        """The same within this process, for tables of many cases: a process a case would take minutes."""
        words = [*command.split(), f"--url={self.url}", f"--name={self.name}", *arguments]
        return self.call_bare(*words, stdin=stdin)

    def call_bare(self, *words: str, stdin: str = "") -> Done:
        """The same with these words alone."""
        out, err, given = io.StringIO(), io.StringIO(), sys.stdin
        sys.stdin = io.StringIO(stdin)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main(words)
        finally:
            sys.stdin = given
        return Done(status, out.getvalue(), err.getvalue())

    def start(self, command: str, *arguments: str) -> Running:
        """Starts a command that runs on; it is ended with the test."""
        words = [*COMMAND, command, *arguments, f"--name={self.name}"]
        running = Running(words, self.directory, self._environment, len(self._running))
        self._running.append(running)
        return running

    def queue(self, **options: Any) -> SyncFairQueue[Any]:
        """A client of the namespace."""
        return SyncFairQueue(self.url, self.name, **options)

    def async_queue(self, **options: Any) -> FairQueue[Any]:
        """The same for coroutines."""
        return FairQueue(self.url, self.name, **options)

    def write(self, module: str, text: str) -> None:
        """A module of handlers, in the directory where commands run."""
        (self.directory / f"{module}.py").write_text(text, encoding="utf-8")

    def log(self) -> list[str]:
        """The lines that handlers wrote to the file ``log``."""
        path = self.directory / "log"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def close(self) -> None:
        for running in self._running:
            running.kill()


class Running:
    """A command that has been started. What it prints goes to files: a full pipe would stop it."""

    def __init__(self, words: list[str], directory: Path, environment: dict[str, str], number: int) -> None:
        self._out, self._err = directory / f"out-{number}", directory / f"err-{number}"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=directory, env=environment
            )

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def until(self, text: str) -> None:
        """Waits until it has said that."""
        eventually_sync(lambda: text in self.out + self.err or self._ended(), f"the command to say {text!r}")
        assert text in self.out + self.err, self.err

    def _ended(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Waits for its end; the exit status."""
        return self.process.wait(PATIENCE)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.signal()
        return self.ends()

    def kill(self) -> None:
        if not self._ended():
            self.process.kill()
        self.process.wait(PATIENCE)
