"""Servers and workers as processes of their own, to be stopped, frozen and killed by their numbers.

A worker process writes what its handler does to a log that all workers of a test may share: one line an event, with
the machine's monotonic clock, so that lines of several processes can be compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fairqueue import FairQueue, Limit, Message, Worker
from tests.support.programs import server_program
from tests.support.waiting import eventually, eventually_sync

ROOT = Path(__file__).parents[2]
STARTED, ENDED, CANCELLED = "start", "end", "cancelled"
_READY, _GO = b"ready\n", b"go\n"


class Server:
    """A server on a TCP port of loopback, with an append-only file unless told otherwise; ``start()`` it first."""

    def __init__(self, *, port: int | None = None, **options: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="fq-server-"))
        self.port = port or free_port()
        self._options = (
            {
                "port": str(self.port),
                "bind": "127.0.0.1",
                "dir": str(self.directory),
                "appendonly": "yes",
                "appendfsync": "no",  # written at once; "everysec" may put it off, and a kill of the server loses it
                "save": "",
                "loglevel": "warning",
            }
            | {name.replace("_", "-"): value for name, value in options.items()}
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, until_loaded: bool = True) -> Server:
        words = [word for name, value in self._options.items() for word in (f"--{name}", value)]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen([str(server_program()), *words], stdout=log, stderr=log)
        eventually_sync(lambda: self._answers(until_loaded), f"the server on port {self.port} to answer")
        return self

    def _answers(self, loaded: bool) -> bool:
        assert self._process is not None
        assert self._process.poll() is None or not self._process.returncode, (
            self.directory / "log"
        ).read_text()
        try:
            self.command("PING")
        except redis.exceptions.AuthenticationError:
            return True
        except redis.exceptions.BusyLoadingError:
            return not loaded
        except redis.exceptions.ConnectionError:
            return False
        return True

    def command(self, *words: str | int | bytes) -> Any:
        """Runs one command on a connection of its own."""
        with redis.Redis(port=self.port, protocol=2, retry=Retry(NoBackoff(), 0)) as client:
            return client.execute_command(*words)

    def kill(self) -> None:
        """kill -9; what was written to the append-only file stays."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)

    def remove(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a handlers' log: what a handler of process ``pid`` did, and when by the monotonic clock."""

    what: str
    tenant: str
    id: str
    attempt: int
    pid: int
    at: float


class Log:
    """What handlers did, in one file that any number of processes append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def write(self, what: str, message: Message[Any]) -> None:
        line = json.dumps([what, message.tenant, message.id, message.attempt, os.getpid(), time.monotonic()])
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, line.encode() + b"\n")  # one write: lines of several processes never mix
        finally:
            os.close(file)

    def events(self, what: str | None = None) -> list[Event]:
        whole = self.path.read_text().rpartition("\n")[0]
        events = [Event(*json.loads(line)) for line in whole.splitlines()]
        return [event for event in events if what in (None, event.what)]

    def count(self, what: str) -> int:
        return len(self.events(what))

    def most_at_once(self, ids: Iterable[str] | None = None, tenants: Iterable[str] | None = None) -> int:
        """The largest number of handlers that ran at the same time, of these messages or tenants."""
        running = most = 0
        wanted_ids, wanted = set(ids or ()), set(tenants or ())
        for event in sorted(self.events(), key=lambda event: event.at):
            if (ids is not None and event.id not in wanted_ids) or (
                tenants is not None and event.tenant not in wanted
            ):
                continue
            running += 1 if event.what == STARTED else -1
            most = max(most, running)
        return most


class WorkerProcess:
    """``python -m tests.support.processes``: one worker, whose handler does what each message's payload says.

    Payload: ``{"sleep": seconds}`` in the event loop (``"first"`` at the first attempt), ``{"until": path}`` until
    that file exists (looked at when it has slept), ``{"block": seconds}`` without
    giving it up, ``{"exit": code}``, ``{"fail": True}`` at the first attempt. ``queue`` and ``worker`` are options of FairQueue and Worker; limits are given as
    [name, default, key]. ``copies``: as many processes, forked before they do anything; signals go to all.
    ``wrong_clock``: seconds by which its wall clock is wrong (see wrong_clock.py).
    """

    def __init__(
        self,
        url: str,
        name: str,
        log: Log,
        *,
        threads: bool = False,
        copies: int = 1,
        wrong_clock: float | None = None,
        queue: dict[str, Any] | None = None,
        **worker: Any,
    ) -> None:
        order = {"url": url, "name": name, "log": str(log.path), "threads": threads, "copies": copies}
        self._copies = copies
        clocked = [] if wrong_clock is None else ["tests.support.wrong_clock", str(wrong_clock)]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                *clocked,
                "tests.support.processes",
                json.dumps(order | {"queue": queue or {}, "worker": worker}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> WorkerProcess:
        """Waits until it has connected; then it waits for ``go``."""
        for _ in range(self._copies):
            said = self._out.readline()
            assert said == _READY, f"{said!r} instead of being ready (exit code {self._process.poll()})"
        return self

    def go(self) -> WorkerProcess:
        assert self._process.stdin is not None
        self._process.stdin.write(_GO * self._copies)
        self._process.stdin.flush()
        return self

    @property
    def _out(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)

    def freeze(self) -> None:
        """SIGSTOP, and wait until it has stopped."""
        self.signal(signal.SIGSTOP)
        eventually_sync(lambda: _state_of(self.pid) == "T", f"process {self.pid} to be stopped")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, seconds: float = 60) -> int:
        """Its exit code; of copies, the first that is not 0."""
        code = self._process.wait(seconds)
        self._close_pipes()
        return code

    def kill(self) -> None:
        """kill -9."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._process.wait(60)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# --- inside a worker process ---------------------------------------------------------------------------------


def _say_ready_and_wait() -> None:
    os.write(
        1, _READY
    )  # one write: print() makes two of it when Python is unbuffered, and copies share the pipe
    if os.read(0, len(_GO)) != _GO:
        os._exit(3)  # the test has gone


def _handlers(log: Log) -> tuple[Any, Any]:
    async def in_loop(message: Message[Any]) -> None:
        log.write(STARTED, message)
        try:
            _do_at_once(message.payload)
            if message.attempt == 1 and message.payload.get("fail"):
                raise RuntimeError("as ordered")
            await asyncio.sleep(_seconds(message))
            if "until" in message.payload:
                await eventually(Path(message.payload["until"]).exists, "the test to let go")
        except asyncio.CancelledError:
            log.write(CANCELLED, message)
            raise
        log.write(ENDED, message)

    def in_thread(message: Message[Any]) -> None:
        log.write(STARTED, message)
        _do_at_once(message.payload)
        time.sleep(_seconds(message))
        log.write(ENDED, message)

    return in_loop, in_thread


def _seconds(message: Message[Any]) -> float:
    first = message.payload.get("first") if message.attempt == 1 else None
    seconds: float = message.payload.get("sleep", 0) if first is None else first
    return seconds


def _do_at_once(payload: dict[str, Any]) -> None:
    if "exit" in payload:
        os._exit(payload["exit"])
    time.sleep(payload.get("block", 0))


async def _work(order: dict[str, Any]) -> None:
    options = dict(order["queue"])
    if "limits" in options:
        options["limits"] = [
            Limit(name, default=default, key=key) for name, default, key in options["limits"]
        ]
    queue: FairQueue[Any] = FairQueue(order["url"], order["name"], **options)
    in_loop, in_thread = _handlers(Log(Path(order["log"])))
    await queue.connect()
    await asyncio.to_thread(_say_ready_and_wait)
    try:
        await Worker(queue, in_thread if order["threads"] else in_loop, **order["worker"]).run()
    finally:
        await queue.close()


def _fork(copies: int) -> None:
    """Returns in each copy; the process itself waits for all of them."""
    pids = []
    for _ in range(copies):
        pid = os.fork()
        if not pid:
            return
        pids.append(pid)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # they got it too
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    sys.exit(next((code for code in codes if code), 0))


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    if order["copies"] > 1:
        _fork(order["copies"])
    asyncio.run(_work(order))
