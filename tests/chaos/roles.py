"""The processes, from the fork to the end."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fairqueue import (
    DeadLetterNow,
    FairQueue,
    Message,
    NewMessage,
    Release,
    Retry,
    SyncFairQueue,
    Worker,
    current_lease,
)
from fairqueue.inside import engine_of
from fairqueue.maintenance.service import Maintenance
from fairqueue.runner import WorkerSettings, run_worker
from fairqueue.signals import stop_signals
from tests.chaos import journal as lines
from tests.chaos import load
from tests.chaos.board import Board
from tests.chaos.claims import Asked, note_claims
from tests.chaos.journal import Journal
from tests.chaos.operating import Operator
from tests.chaos.plan import CLAIMING, DRAINING, IDLE, MAINTAINER, OPERATOR, OWNER, WORKER

_log = logging.getLogger("chaos")
AUDITOR = "auditor"
MOST_WAITING, BATCH = 70, 12
_RECENT, _CANCELS = 40, 0.3
_PULSE, _LATE = 0.1, 0.15
_SHORT_GRACE, _LONG_GRACE = 0.4, 15.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a process is to be: ``number`` is its own in this run, ``name`` that of its place, kept by its successors."""

    number: int
    role: str
    name: str
    url: str
    seed: int
    odd: bool
    """A worker with a plain function, a producer without an event loop."""


def live(order: Order, board: Board, path: Path, log: Path) -> None:
    """Is the process; never returns."""
    status = 1
    try:
        _settle_in(log)
        journal = Journal(path, order.number)
        _note_exit(journal)
        threading.Thread(target=_pulse, args=[journal], daemon=True).start()
        status = _ROLES[order.role](order, board, journal)
    except SystemExit:
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it is told and the process ends
        _log.exception("%s %s ends", order.role, order.name)
    finally:
        sys.stderr.flush()
        os._exit(status)


def _settle_in(log: Path) -> None:
    """Ends with its parent, hears signals as any process does, and writes what it says to the log."""
    kill_me_with_my_parent = 1
    ctypes.CDLL(None).prctl(kill_me_with_my_parent, ctypes.c_ulong(signal.SIGKILL))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    logging.basicConfig(level=logging.ERROR, format=f"%(asctime)s {os.getpid()} %(message)s", force=True)


def _note_exit(journal: Journal) -> None:
    """However it ends, but for a kill: the last thing it does is to say so."""
    leave = os._exit

    def say_and_leave(status: int) -> NoReturn:
        journal.write(lines.LEFT)
        leave(status)

    os._exit = say_and_leave


def _pulse(journal: Journal) -> None:
    """Notes when this process did not run: frozen, or on a machine that had no time for it."""
    last = time.monotonic()
    while True:
        time.sleep(_PULSE)
        now = time.monotonic()
        if now - last > _PULSE + _LATE:
            journal.write(lines.STARVED, since=last)
        last = now


# --- worker ------------------------------------------------------------------------------------------------------


def _worker(order: Order, board: Board, journal: Journal) -> int:
    _show_phases(order.number, board)
    asked: Asked = {}
    note_claims(asked, journal)
    pools = load.POOLS[::-1] if order.odd else load.POOLS
    queue: FairQueue[Any] = FairQueue(order.url, **load.options())
    settings = WorkerSettings(
        concurrency=4, pools=pools, grace=_LONG_GRACE if order.odd else _SHORT_GRACE, name=order.name
    )
    return run_worker(queue, _handler(board, journal, asked, plain=order.odd), settings)


def _show_phases(number: int, board: Board) -> None:
    """What the worker is doing, by what it calls."""

    def shown(name: str, during: str, afterwards: str | None) -> None:
        plain = getattr(Worker, name)

        async def call(self: Worker[Any], *args: Any) -> Any:
            if not (during == CLAIMING and self._stopping):
                board.show(number, during)
            try:
                return await plain(self, *args)
            finally:
                if afterwards and not self._stopping:
                    board.show(number, afterwards)

        setattr(Worker, name, call)

    shown("_exchange", CLAIMING, IDLE)
    shown("_drain", DRAINING, None)


def _handler(board: Board, journal: Journal, asked: Asked, plain: bool) -> Any:
    @contextmanager
    def noted(message: Message[Any]) -> Iterator[str]:
        token = current_lease().token
        journal.write(
            lines.START, message.id, token=token, asked=asked.pop((message.id, token)),
            attempt=message.attempt, crashes=message.crashes,
        )  # fmt: skip
        board.handlers(journal.process, +1)
        outcome = lines.COMPLETED
        try:
            yield token
        except BaseException as error:
            outcome = _named(error)
            raise
        finally:
            board.handlers(journal.process, -1)
            journal.write(lines.END, message.id, token=token, outcome=outcome)

    async def in_loop(message: Message[Any]) -> None:
        with noted(message) as token:
            load.hold_up(message)
            await asyncio.sleep(load.seconds(message))
            load.decide(message, token)

    def in_thread(message: Message[Any]) -> None:
        with noted(message) as token:
            time.sleep(load.seconds(message))
            if current_lease().cancelled.is_set():
                raise RuntimeError("cancelled")
            load.decide(message, token)

    return in_thread if plain else in_loop


def _named(error: BaseException) -> str:
    names: dict[type[BaseException], str] = {
        asyncio.CancelledError: lines.CANCELLED,
        Retry: lines.RETRIED,
        Release: lines.RELEASED,
        DeadLetterNow: lines.DEAD,
    }
    return names.get(type(error), lines.FAILED)


# --- owner of the embedded server, and producer ------------------------------------------------------------------


class _Production:
    """What one producer asks for, batch after batch, as long as not too much waits."""

    def __init__(self, order: Order, journal: Journal) -> None:
        self._name = f"{order.name}-{order.number}"
        self._rng = random.Random(f"{order.seed} {self._name}")
        self._journal = journal
        self._made = 0
        self._recent: deque[NewMessage[Any]] = deque(maxlen=_RECENT)

    def next(self, waiting: int) -> list[NewMessage[Any]]:
        messages = []
        for _ in range(self._rng.randint(1, BATCH) if waiting < MOST_WAITING else 0):
            self._made += 1
            messages.append(load.draw(self._rng, self._name, self._made))
        if messages:
            self._journal.write(lines.ASKED, ids=[message.id for message in messages])
        return messages

    def accepted(self, messages: list[NewMessage[Any]]) -> None:
        self._journal.write(lines.ACCEPTED, ids=[message.id for message in messages])
        self._recent += messages

    def to_cancel(self) -> tuple[str, str] | None:
        """One of those that were accepted of late, now and then: wherever it is by now, or gone."""
        if not self._recent or self._rng.random() >= _CANCELS:
            return None
        message = self._rng.choice(self._recent)
        assert message.id is not None
        self._journal.write(lines.CANCELLING, message.id)
        return message.tenant, message.id

    def cancelled(self, id_: str, outcome: str) -> None:
        self._journal.write(lines.CANCEL_DONE, id_, outcome=outcome)

    def pause(self) -> float:
        return self._rng.uniform(0.02, 0.25)


def _owner(order: Order, board: Board, journal: Journal) -> int:
    production = _Production(order, journal)
    if order.odd:
        _produce_sync(order, board, production)
    else:
        asyncio.run(_produce(order, board, production))
    return 0


async def _produce(order: Order, board: Board, production: _Production) -> None:
    stop = asyncio.Event()
    with stop_signals(stop.set):
        async with FairQueue[Any](order.url, **load.options()) as queue:
            board.show(order.number, IDLE)
            while not stop.is_set():
                stats = await queue.stats()
                if messages := production.next(stats.ready + stats.delayed):
                    await queue.enqueue_many(messages)
                    production.accepted(messages)
                if named := production.to_cancel():
                    production.cancelled(named[1], await queue.cancel(*named))
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), production.pause())


def _produce_sync(order: Order, board: Board, production: _Production) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with SyncFairQueue[Any](order.url, **load.options()) as queue:
        board.show(order.number, IDLE)
        while not stop.is_set():
            stats = queue.stats()
            if messages := production.next(stats.ready + stats.delayed):
                queue.enqueue_many(messages)
                production.accepted(messages)
            if named := production.to_cancel():
                production.cancelled(named[1], queue.cancel(*named))
            stop.wait(production.pause())


# --- maintainer, operator, auditor -----------------------------------------------------------------------------------------


def _maintainer(order: Order, board: Board, _journal: Journal) -> int:
    async def maintain() -> None:
        stop = asyncio.Event()
        with stop_signals(stop.set):
            async with FairQueue[Any](order.url, **load.options()) as queue:
                maintenance = Maintenance(engine_of(queue))
                await maintenance.start()
                board.show(order.number, IDLE)
                await stop.wait()
                await maintenance.stop()

    asyncio.run(maintain())
    return 0


def _operator(order: Order, board: Board, journal: Journal) -> int:
    async def operate() -> None:
        stop = asyncio.Event()
        with stop_signals(stop.set):
            async with FairQueue[Any](order.url, **load.options()) as queue:
                board.show(order.number, IDLE)
                rng = random.Random(f"{order.seed} {order.name}-{order.number}")
                await Operator(queue, journal, rng).operate(stop)

    asyncio.run(operate())
    return 0


def _auditor(order: Order, _board: Board, _journal: Journal) -> int:
    """Looks once, while all is under way; 3: it found something."""

    async def audit() -> int:
        async with FairQueue[Any](order.url, **load.options()) as queue:
            findings = (await queue.audit()).findings
            for finding in findings:
                _log.error("under load: %s %r: %s", finding.check, finding.subject, finding.evidence)
            return FOUND if findings else 0

    return asyncio.run(audit())


FOUND = 3
_ROLES: dict[str, Callable[[Order, Board, Journal], int]] = {
    WORKER: _worker,
    OWNER: _owner,
    MAINTAINER: _maintainer,
    OPERATOR: _operator,
    AUDITOR: _auditor,
}
