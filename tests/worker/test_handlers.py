"""What a handler may be, and what its end means for the message."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import sys
import threading
from collections import Counter
from typing import Any

import pytest

from fairqueue import (
    ConfigurationError,
    DeadLetterNow,
    FairQueue,
    Lease,
    Limit,
    Message,
    NewMessage,
    Release,
    Retry,
    RetryPolicy,
    Worker,
    current_lease,
)
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.support.waiting import eventually, eventually_sync
from tests.worker.running import all_done, running

KINDS = ["async function", "plain function", "async object", "plain object", "partial", "returns a coroutine"]


def made(kind: str, work: Any) -> Any:
    """A handler of that kind which calls ``work(message)``."""

    async def in_loop(message: Message[Any]) -> None:
        work(message)

    def in_thread(message: Message[Any]) -> None:
        work(message)

    class Async:
        async def __call__(self, message: Message[Any]) -> None:
            work(message)

    class Plain:
        def __call__(self, message: Message[Any]) -> None:
            work(message)

    def takes_more(_: int, message: Message[Any]) -> None:
        work(message)

    def returns_a_coroutine(message: Message[Any]) -> Any:
        return in_loop(message)

    partial = functools.partial(takes_more, 1)
    handlers = [in_loop, in_thread, Async(), Plain(), partial, returns_a_coroutine]
    return dict(zip(KINDS, handlers, strict=True))[kind]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_returning_completes(make_queue: MakeQueue, kind: str) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=2)])
    seen: list[Any] = []
    await queue.enqueue_many([NewMessage(n, tenant="a", metadata={"n": n}) for n in range(5)])
    async with running(queue, made(kind, lambda m: seen.append((m.payload, m.metadata["n"], m.attempt)))):
        await all_done(queue)
    assert sorted(seen) == [(n, n, 1) for n in range(5)]
    assert (await queue.stats()).totals.completed == 5


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        TimeoutError(),
        asyncio.CancelledError(),
        StopIteration(1),
        GeneratorExit(),
        SystemExit(3),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_raising_fails_whatever_is_raised(
    make_queue: MakeQueue, kind: str, error: BaseException
) -> None:
    """The worker goes on, and the next message is not disturbed."""
    queue = await make_queue(retry=RetryPolicy(max_attempts=1))

    def work(message: Message[Any]) -> None:
        if message.id == "bad":
            raise error

    await queue.enqueue_many([NewMessage(0, tenant="a", id="bad"), NewMessage(1, tenant="a", id="good")])
    async with running(queue, made(kind, work), concurrency=1):
        await all_done(queue)
    ((dead,), _) = await queue.dead_letters.list("a")
    assert (dead.message.id, dead.reason, dead.attempts) == ("bad", "failed", 1)
    assert (await queue.stats()).totals.completed == 1


async def test_an_error_is_logged_and_kept(
    make_queue: MakeQueue, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=1))

    def work(message: Message[Any]) -> None:
        raise ValueError("the API is busy")

    await queue.enqueue(1, tenant="a", id="m")
    with caplog.at_level(logging.WARNING, "fairqueue"):
        async with running(queue, made(kind, work)):
            await all_done(queue)
    ((dead,), _) = await queue.dead_letters.list("a")
    assert dead.error == "ValueError: the API is busy"
    assert "'m' of tenant 'a'" in caplog.text
    assert "Traceback" in caplog.text


def last_words(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """Text and fields of what was logged as an error."""
    return [
        (
            record.getMessage(),
            {name: getattr(record, name) for name in ("tenant", "message_id", "attempt")},
        )
        for record in caplog.records
        if record.levelno == logging.ERROR
    ]


async def test_it_is_logged_which_message_became_a_dead_letter_and_why(
    make_queue: MakeQueue, clock: ManualClock, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, at the last attempt, however it ended."""
    queue = await make_queue(retry=RetryPolicy.fixed(1, max_attempts=2))

    def work(message: Message[Any]) -> None:
        if message.id == "hopeless":
            raise DeadLetterNow("the account was deleted")
        raise ValueError("the API is busy")

    async def waits() -> bool:
        return (await queue.stats()).delayed == 1

    await queue.enqueue(1, tenant="a", id="failing")
    async with running(queue, made(kind, work)):
        await eventually(waits, "the first attempt to have failed")
        assert last_words(caplog) == []
        clock.advance(1)
        await all_done(queue)
        await queue.enqueue(1, tenant="b", id="hopeless")
        await all_done(queue)
    failing, hopeless = last_words(caplog)
    assert failing == (
        "message 'failing' of tenant 'a' is a dead letter now: ValueError: the API is busy",
        {"tenant": "a", "message_id": "failing", "attempt": 2},
    )
    assert hopeless == (
        "message 'hopeless' of tenant 'b' is a dead letter now: the account was deleted",
        {"tenant": "b", "message_id": "hopeless", "attempt": 1},
    )


async def test_what_is_dropped_for_want_of_dead_letters_is_logged_too(
    make_queue: MakeQueue, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(retry=RetryPolicy.none(), dead_letters=False)

    def work(message: Message[Any]) -> None:
        raise ValueError("the API is busy")

    await queue.enqueue(1, tenant="a", id="m")
    async with running(queue, made(kind, work)):
        await all_done(queue)
    ((text, _),) = last_words(caplog)
    assert text == "message 'm' of tenant 'a' is out of tries and dropped now: ValueError: the API is busy"


async def test_retry_counts_and_waits_as_it_says(
    make_queue: MakeQueue, kind: str, clock: ManualClock
) -> None:
    queue = await make_queue()
    attempts: list[int] = []

    def work(message: Message[Any]) -> None:
        attempts.append(message.attempt)
        if len(attempts) == 1:
            raise Retry(delay=90, reason="busy")

    await queue.enqueue(1, tenant="a", id="m")
    async with running(queue, made(kind, work)):

        async def delayed() -> bool:
            return (await queue.stats()).delayed == 1

        await eventually(delayed, "the retry to wait")
        info = await queue.get("a", "m")
        assert info is not None
        clock.advance(89)
        await queue._engine.run(queue._engine.calls.promote(10))
        assert await delayed()
        clock.advance(1)
        await all_done(queue)
    assert attempts == [1, 2]


async def test_a_retry_is_one_line_in_the_log_with_its_reason(
    make_queue: MakeQueue, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=1))

    def work(message: Message[Any]) -> None:
        raise Retry(reason="busy\nuntil noon")

    await queue.enqueue(1, tenant="a", id="m")
    with caplog.at_level(logging.INFO, "fairqueue"):
        async with running(queue, made(kind, work)):
            await all_done(queue)
    (record,) = [record for record in caplog.records if "retry" in record.getMessage()]
    assert record.getMessage() == (
        "handler asked for a retry of message 'm' of tenant 'a' (attempt 1): busy until noon"
    )
    assert (record.levelno, record.exc_info) == (logging.INFO, None)
    assert (record.tenant, record.message_id, record.attempt) == ("a", "m", 1)


async def test_retry_out_of_tries_is_dead(make_queue: MakeQueue, kind: str) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=1))

    def work(message: Message[Any]) -> None:
        raise Retry(reason="busy")

    await queue.enqueue(1, tenant="a")
    async with running(queue, made(kind, work)):
        await all_done(queue)
    ((dead,), _) = await queue.dead_letters.list("a")
    assert "busy" in dead.error


async def test_release_counts_nothing(make_queue: MakeQueue, kind: str) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=1))
    attempts: list[int] = []

    def work(message: Message[Any]) -> None:
        attempts.append(message.attempt)
        if len(attempts) < 5:
            raise Release

    await queue.enqueue(1, tenant="a")
    async with running(queue, made(kind, work)):
        await all_done(queue)
    assert attempts == [1] * 5
    assert (await queue.stats()).dead == 0


async def test_dead_letter_now_is_dead_at_once(make_queue: MakeQueue, kind: str) -> None:
    queue = await make_queue()

    def work(message: Message[Any]) -> None:
        raise DeadLetterNow("the account was deleted")

    await queue.enqueue(1, tenant="a")
    async with running(queue, made(kind, work)):
        await all_done(queue)
    ((dead,), _) = await queue.dead_letters.list("a")
    assert (dead.reason, dead.attempts) == ("the account was deleted", 1)


async def test_the_current_lease_is_the_messages_own(make_queue: MakeQueue, kind: str) -> None:
    queue = await make_queue()
    seen: list[tuple[str, str]] = []

    def work(message: Message[Any]) -> None:
        seen.append((message.id, current_lease().message.id))

    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(20)])
    async with running(queue, made(kind, work), concurrency=7):
        await all_done(queue)
    assert len(seen) == 20
    assert all(own == current for own, current in seen)
    with pytest.raises(LookupError):
        current_lease()


async def test_the_context_of_the_worker_reaches_its_handlers(make_queue: MakeQueue, kind: str) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    queue = await make_queue()
    seen: list[str] = []
    await queue.enqueue(1, tenant="a")
    variable.set("set by the application")
    async with running(queue, made(kind, lambda _: seen.append(variable.get()))):
        await all_done(queue)
    assert seen == ["set by the application"]


@pytest.mark.parametrize("way", ["complete", "release", "fail", "dead_letter"])
async def test_a_handler_may_settle_its_lease_itself(
    make_queue: MakeQueue, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker does not settle it a second time, nor does it call that a lost lease."""
    queue = await make_queue()
    outcomes: list[str] = []

    async def handle(message: Message[Any]) -> None:
        if not outcomes:
            lease: Lease[Any] = current_lease()
            outcomes.append(
                await (lease.dead_letter("no use") if way == "dead_letter" else getattr(lease, way)())
            )

    await queue.enqueue(1, tenant="a", id="m")
    async with running(queue, handle, concurrency=1):
        await eventually(lambda: outcomes, "the handler to settle")
        if way == "release":
            await all_done(queue)
    expected = {"complete": "done", "release": "released", "fail": "retried", "dead_letter": "dead"}
    assert outcomes == [expected[way]]
    assert "lost" not in caplog.text


async def test_plain_handlers_run_side_by_side_in_threads(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    together = threading.Barrier(5)
    names: set[str] = set()

    def work(message: Message[Any]) -> None:
        together.wait(60)
        names.add(threading.current_thread().name)
        assert threading.current_thread() is not threading.main_thread()

    await queue.enqueue_many([NewMessage(n, tenant="a") for n in range(5)])
    async with running(queue, work, concurrency=5):
        await all_done(queue)
    assert (await queue.stats()).totals.completed == 5
    assert names


async def test_threads_are_used_again(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    threads: set[int] = set()
    await queue.enqueue_many([NewMessage(n, tenant="a") for n in range(50)])
    async with running(queue, lambda _: threads.add(threading.get_ident()), concurrency=3):
        await all_done(queue)
    assert len(threads) <= 3


class ThreadLimit:
    """The system has no more than so many threads for handlers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.most, self.refused, self._started = most, 0, 0
        self._start = threading.Thread.start
        limit = self

        def start(thread: threading.Thread) -> None:  # a function, or it would not be bound to the thread
            limit.start(thread)

        monkeypatch.setattr(threading.Thread, "start", start)

    def start(self, thread: threading.Thread) -> None:
        if thread.name == "fairqueue-handler":
            if self._started >= self.most:
                self.refused += 1
                raise RuntimeError("can't start new thread")
            self._started += 1
        self._start(thread)


async def test_short_of_threads_messages_wait_for_one_and_none_fails(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(0, max_attempts=1))
    limit = ThreadLimit(monkeypatch, 2)
    ran: Counter[int] = Counter()

    def work(message: Message[Any]) -> None:
        eventually_sync(lambda: limit.refused > 0, "the limit to be met")
        ran[message.payload] += 1

    await queue.enqueue_many([NewMessage(n, tenant="a") for n in range(20)])
    async with running(queue, work, concurrency=5, handler_timeout=30):
        await all_done(queue)
    assert ran == Counter(range(20))
    totals = (await queue.stats()).totals
    assert (totals.completed, totals.failed, totals.dead_lettered) == (20, 0, 0)


async def test_without_any_thread_messages_are_given_back_and_none_fails(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue(clock=None, retry=RetryPolicy.fixed(0, max_attempts=1))
    limit = ThreadLimit(monkeypatch, 0)
    attempts: list[int] = []

    async def released() -> int:
        return (await queue.stats()).totals.released

    await queue.enqueue(1, tenant="a")
    async with running(queue, lambda message: attempts.append(message.attempt)):
        await eventually(released, "it to be given back")
        limit.most = 1
        await all_done(queue)
    assert attempts == [1]
    totals = (await queue.stats()).totals
    assert (totals.completed, totals.failed, totals.dead_lettered) == (1, 0, 0)


async def test_an_undecodable_payload_goes_to_the_dead_letters_and_the_others_run(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=3)])
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(3)])
    await faults.overwrite(queue, "body", "a", "m1", b"{bad\xff")
    seen: list[str] = []
    async with running(queue, lambda message: seen.append(message.id), concurrency=10):
        await all_done(queue)
    assert sorted(seen) == ["m0", "m2"]
    ((dead,), _) = await queue.dead_letters.list("a")
    assert (dead.message.id, dead.reason, dead.raw) == ("m1", "undecodable", b"{bad\xff")
    assert (await queue.limits.get("tenant", "a")).held == 0


async def test_a_codec_that_raises_stops_only_what_it_cannot_read(make_queue: MakeQueue) -> None:
    class Picky:
        def encode(self, obj: Any) -> bytes:
            return str(obj).encode()

        def decode(self, data: bytes) -> Any:
            if data == b"1":
                raise RecursionError("too deep")
            return int(data)

    queue = await make_queue(codec=Picky())
    await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(3)])
    seen: list[int] = []
    async with running(queue, lambda message: seen.append(message.payload)):
        await all_done(queue)
    assert sorted(seen) == [0, 2]
    assert await queue.dead_letters.count("a") == 1
    await queue.dead_letters.purge("a")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"pools": []}, "pools"),
        ({"pools": "default"}, "pools"),
        ({"handler_timeout": 0}, "handler_timeout"),
        ({"handler_timeout": -1}, "handler_timeout"),
        ({"grace": -1}, "grace"),
        ({"grace": float("nan")}, "grace"),
        ({"name": ""}, "name"),
        ({"handler": "not callable"}, "handler"),
        ({"queue": "not a queue"}, "queue"),
    ],
)
async def test_wrong_options_are_named(make_queue: MakeQueue, options: dict[str, Any], says: str) -> None:
    queue: FairQueue[Any] = await make_queue()

    async def handle(message: Message[Any]) -> None: ...

    with pytest.raises(ConfigurationError, match=f"expected {says}"):
        Worker(**({"queue": queue, "handler": handle} | options))


async def test_a_handler_that_recurses_too_deep_fails_alone(make_queue: MakeQueue, kind: str) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=1))

    def deeper(n: int) -> int:
        return deeper(n + 1) + 1

    await queue.enqueue(1, tenant="a")
    limit = sys.getrecursionlimit()
    async with running(queue, made(kind, lambda _: deeper(0))):
        await all_done(queue)
    assert sys.getrecursionlimit() == limit
    assert await queue.dead_letters.count("a") == 1


async def with_two(message: Message[Any], more: int) -> None:
    raise AssertionError("never called")


def with_none() -> None:
    raise AssertionError("never called")


def with_a_named_one(message: Message[Any], *, more: int) -> None:
    raise AssertionError("never called")


class NeedsTwo:
    def __call__(self, message: Message[Any], more: int) -> None:
        raise AssertionError("never called")


@pytest.mark.parametrize(
    "handler", [with_two, with_none, with_a_named_one, NeedsTwo(), functools.partial(with_none), lambda: None]
)
def test_a_handler_that_cannot_be_called_with_a_message_is_refused_when_the_worker_is_made(
    server: str, handler: Any
) -> None:
    with pytest.raises(ConfigurationError, match="expected handler to take one message, got"):
        Worker(FairQueue(server), handler)


@pytest.mark.parametrize(
    "handler",
    [
        print,
        lambda *all: None,
        lambda message, more=1: None,
        functools.partial(with_two, more=1),
        contextvars.ContextVar("any").set,
        type("Unreadable", (), {"__call__": lambda *all: None, "__signature__": "no signature"})(),
    ],
)
def test_one_that_can_or_whose_signature_cannot_be_read_is_taken(server: str, handler: Any) -> None:
    Worker(FairQueue(server), handler)
