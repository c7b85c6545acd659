"""Processes that a test starts by the dozen, and then freezes or kills: forked from one that has all imported.

An actor does what it is told over its socket, one order after another, also those that came while it was frozen::

    one = await cast.actor()                        # a client of this test's namespace in a process of its own
    await one.ask("claim", n=2)                     # {"ids": ["m1", "m2"], "attempts": [1, 1]}
    one.freeze()
    one.tell("complete")                            # it will, when it is thawed
    one.kill()                                      # kill -9, and wait until it is gone

``role="worker"`` runs a ``Worker`` whose handler does what each payload says and writes it to a shared log;
``role="substitute"`` does when it is told anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import queue as queues
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import redis.asyncio  # noqa: F401 - imported once, before the forks

from fairqueue import FairQueue, LeaseLostError, Limit, Message, NewMessage, RetryPolicy, Worker
from fairqueue.errors import FairQueueError
from fairqueue.testing import ManualClock, drain
from tests.support.processes import CANCELLED, ENDED, ROOT, STARTED, Log, _state_of
from tests.support.waiting import eventually, eventually_sync

_LONGEST = 30.0  # seconds that an answer may take


class Actor:
    """The test's end of one process."""

    def __init__(self, pid: int, link: socket.socket, reader: Any) -> None:
        self.pid = pid
        self._link, self._reader = link, reader

    def tell(self, do: str, **how: Any) -> None:
        """Gives an order and does not wait for its answer."""
        self._link.sendall(json.dumps({"do": do, **how}).encode() + b"\n")

    async def hear(self) -> Any:
        """The answer to the oldest order that was not answered yet; None when the process has died."""
        return await asyncio.to_thread(self._hear)

    def _hear(self) -> Any:
        try:
            line = self._reader.readline()
        except TimeoutError:
            raise AssertionError(f"actor {self.pid} did not answer within {_LONGEST:g} s") from None
        except ConnectionResetError:
            line = ""
        return json.loads(line) if line else None

    async def ask(self, do: str, **how: Any) -> Any:
        """Gives an order and waits for its answer."""
        self.tell(do, **how)
        return await self.hear()

    def freeze(self) -> None:
        """SIGSTOP, and wait until it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        eventually_sync(lambda: _state_of(self.pid) == "T", f"process {self.pid} to be stopped")

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Until the process has ended."""
        eventually_sync(lambda: not self.lives, f"process {self.pid} to end")

    @property
    def lives(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> None:
        self.kill()
        self._reader.close()
        self._link.close()


class Stage:
    """The process that actors are forked from; ends with the test run."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=ROOT
            )

    def actor(self, order: dict[str, Any]) -> Actor:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [json.dumps(order).encode()], [theirs.fileno()])
        ours.settimeout(_LONGEST)
        reader = ours.makefile("r", encoding="utf-8")
        return Actor(json.loads(reader.readline())["pid"], ours, reader)

    def close(self) -> None:
        self._control.close()
        self._process.wait(60)


class Cast:
    """Starts the actors of one test, on its namespace and the server's clock; those left are killed at its end."""

    def __init__(self, stage: Stage, url: str, name: str, log: Log) -> None:
        self._stage, self._url, self._name, self._log = stage, url, name, log
        self._actors: list[Actor] = []

    def start(
        self,
        role: str = "hand",
        *,
        url: str | None = None,
        name: str | None = None,
        clock: ManualClock | None = None,
        wrong_clock: float = 0,
        worker: dict[str, Any] | None = None,
        **queue: Any,
    ) -> Actor:
        """Does not wait for it to connect. ``clock``: the instant it shows now, which stands still for the actor.

        ``wrong_clock``: seconds by which all clocks of its machine are wrong. ``queue``: options of FairQueue,
        limits as [name, default, key], retry as the options of RetryPolicy.
        """
        order = {
            "role": role, "url": url or self._url, "name": name or self._name, "log": str(self._log.path), "queue": queue,
            "now": clock and clock.now.timestamp(), "wrong_clock": wrong_clock, "worker": worker or {},
        }  # fmt: skip
        self._actors.append(self._stage.actor(order))
        return self._actors[-1]

    async def actor(self, role: str = "hand", **options: Any) -> Actor:
        """Starts one and waits until it has connected."""
        actor = self.start(role, **options)
        assert await actor.hear() == "connected"
        return actor

    def end(self) -> None:
        for actor in self._actors:
            actor.end()


# --- the forked side -------------------------------------------------------------------------------------------


def serve(control: socket.socket) -> None:
    """Forks an actor for every order, until the test run has closed the socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        order, descriptors, *_ = socket.recv_fds(control, 1 << 16, 1)
        if not order:
            return
        if os.fork():
            os.close(descriptors[0])
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        _act(json.loads(order), Link(socket.socket(fileno=descriptors[0])))


class Link:
    """The actor's end of its socket. When the test's end closes, the process ends too."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._orders: queues.SimpleQueue[Any] = queues.SimpleQueue()
        self.say({"pid": os.getpid()})
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._link.makefile("r", encoding="utf-8"):
            self._orders.put(json.loads(line))
        os._exit(4)

    def say(self, answer: Any) -> None:
        self._link.sendall(json.dumps(answer).encode() + b"\n")

    async def told(self) -> dict[str, Any]:
        order: dict[str, Any] = await asyncio.to_thread(self._orders.get)
        return order


def _act(order: dict[str, Any], link: Link) -> None:
    status = 1
    try:
        if order["wrong_clock"]:
            _set_clocks(order["wrong_clock"])
        asyncio.run(_connected(order, link))
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def _set_clocks(by: float) -> None:
    """All clocks of this process are wrong, the monotonic one too: it starts elsewhere on every machine."""
    for name in ("time", "monotonic"):
        right = getattr(time, name)
        setattr(time, name, lambda right=right: right() + by)
    right_ns = time.time_ns
    time.time_ns = lambda: right_ns() + int(by * 1e9)


async def _connected(order: dict[str, Any], link: Link) -> None:
    options = dict(order["queue"])
    if "limits" in options:
        options["limits"] = [
            Limit(name, default=default, key=key) for name, default, key in options["limits"]
        ]
    if "retry" in options:
        options["retry"] = RetryPolicy(**options["retry"])
    if order["now"]:
        options["clock"] = ManualClock(datetime.fromtimestamp(order["now"], UTC))
    queue: FairQueue[Any] = FairQueue(order["url"], order["name"], **options)
    try:
        await queue.connect()
        link.say("connected")
        if order["role"] == "hand":
            await _hand(queue, link)
        else:
            if order["role"] == "substitute":
                await link.told()
            await _worker(queue, order)
    finally:
        await queue.close()


# --- one that claims and settles by hand -------------------------------------------------------------------------


async def _hand(queue: FairQueue[Any], link: Link) -> None:
    hand = _Hand(queue)
    while True:
        order = await link.told()
        try:
            link.say(await getattr(hand, order.pop("do"))(**order))
        except FairQueueError as error:
            link.say({"error": type(error).__name__})


class _Hand:
    """What an actor can be told; each method is one order."""

    def __init__(self, queue: FairQueue[Any]) -> None:
        self.queue = queue
        self.leases: list[Any] = []

    async def enqueue(self, tenant: str, ids: list[str], **options: Any) -> int:
        messages = [NewMessage(id, tenant=tenant, id=id, **options) for id in ids]
        return sum(sent.created for sent in await self.queue.enqueue_many(messages))

    async def claim(self, **options: Any) -> dict[str, Any]:
        self.leases = await self.queue.claim(**options)
        messages = [lease.message for lease in self.leases]
        return {"ids": [m.id for m in messages], "attempts": [m.attempt for m in messages]}

    async def complete(self) -> list[str]:
        return list(await self.queue.complete_many(self.leases))

    async def complete_one(self) -> str:
        try:
            return str(await self.leases[0].complete())
        except LeaseLostError:
            return "LeaseLostError"

    async def extend(self) -> list[str]:
        return list(await self.queue.extend_many(self.leases))

    async def fail(self) -> list[str]:
        return list(await self.queue.fail_many(self.leases, "no"))

    async def claim_and_complete(self, n: int) -> list[str]:
        await self.claim(n=n)
        return await self.complete()

    async def claim_and_fail(self, n: int) -> list[str]:
        await self.claim(n=n)
        return await self.fail()

    async def claim_and_block(self, **options: Any) -> None:
        """Waits in claims, and completes what comes, until it is killed."""
        while True:
            await self.queue.complete_many(await self.queue.claim(wait=5, **options))

    async def redrive(self, tenant: str, id: str) -> int:
        return await self.queue.dead_letters.redrive(tenant, id)

    async def redrive_all(self, tenant: str) -> int:
        return await self.queue.dead_letters.redrive_all(tenant)

    async def reclaim(self) -> list[tuple[str, str]]:
        return (await self.queue.reclaim()).reclaimed

    async def drain(self) -> list[str]:
        return [message.id for message in await drain(self.queue)]

    async def set_limit(self, group: str, id: str, limit: int | None) -> None:
        await self.queue.limits.set(group, id, limit)


# --- one that runs a worker --------------------------------------------------------------------------------------


async def _worker(queue: FairQueue[Any], order: dict[str, Any]) -> None:
    await Worker(queue, handler(Log(Path(order["log"]))), **order["worker"]).run()


def handler(log: Log) -> Any:
    """Does what the payload says, and writes down when it started and ended."""

    async def handle(message: Message[Any]) -> None:
        log.write(STARTED, message)
        try:
            do = message.payload if isinstance(message.payload, dict) else {}
            if message.attempt == 1 or not do.get("once"):
                _keep_busy(do)
                await _work_a_little(do.get("work", 0))
                await asyncio.sleep(do.get("sleep", 0))
                if "until" in do:
                    await eventually(Path(do["until"]).exists, "the test to let go")
        except asyncio.CancelledError:
            log.write(CANCELLED, message)
            raise
        log.write(ENDED, message)

    return handle


async def _work_a_little(seconds: float) -> None:
    """Takes 1.6 % of a processor for so long: fifty of these take 80."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        _keep_busy({"spin": 0.004})
        await asyncio.sleep(0.246)


def _keep_busy(do: dict[str, Any]) -> None:
    if "exit" in do:
        os._exit(do["exit"])
    if "block" in do:  # the event loop
        time.sleep(do["block"])
    until = time.monotonic() + do.get("spin", 0)
    while time.monotonic() < until:  # the event loop, in Python
        pass
    until = time.monotonic() + do.get("collect", 0)
    while time.monotonic() < until:  # what is not strongly held goes
        gc.collect()
        time.sleep(0.05)  # a collection holds the interpreter: that is another test's subject
    if "hold" in do:  # the interpreter: a C function called without giving up its lock
        ctypes.PyDLL(None).usleep(int(timedelta(seconds=do["hold"]) / timedelta(microseconds=1)))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)
