"""``SyncFairQueue``: the same promises without ``await``, from any number of threads."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fairqueue import (
    ConfigurationError,
    InvalidMessageError,
    LeaseLostError,
    Limit,
    MessageNotFoundError,
    NewMessage,
    QueueClosedError,
    SyncFairQueue,
)
from fairqueue.testing import ManualClock
from tests.support.processes import free_port
from tests.support.waiting import eventually_sync

MakeSync = Callable[..., SyncFairQueue[Any]]


@pytest.fixture
def make_sync(server: str, namespace: str, clock: ManualClock) -> Iterator[MakeSync]:
    """Makes clients of this test's namespace; afterwards it must be whole."""
    made: list[SyncFairQueue[Any]] = []

    def make(**options: Any) -> SyncFairQueue[Any]:
        queue: SyncFairQueue[Any] = SyncFairQueue(
            **({"url": server, "name": namespace, "clock": clock} | options)
        )
        made.append(queue)
        return queue

    yield make
    try:
        if made:
            made[0].connect()  # the test may have closed it
            assert made[0].audit().findings == []
    finally:
        for queue in made:
            queue.close()


def test_the_life_of_a_message(make_sync: MakeSync, clock: ManualClock) -> None:
    queue = make_sync(limits=[Limit("tenant", default=2)])
    assert queue.enqueue(1, tenant="a", id="m").created
    (lease,) = queue.claim()
    assert (lease.message.id, lease.lost.is_set()) == ("m", False)
    clock.advance(10)
    assert lease.extend() == lease.deadline
    assert queue.limits.get("tenant", "a").held == 1
    assert lease.fail("no") == "retried"
    assert queue.stats().delayed == 1
    clock.advance(10)
    (lease,) = queue.claim()
    assert lease.dead_letter("no use") == "dead"
    assert list(queue.dead_letters.tenants()) == ["a"]
    assert queue.dead_letters.redrive("a", "m") == 1
    (lease,) = queue.claim()
    assert lease.complete() == lease.complete() == "done"
    with pytest.raises(LeaseLostError):
        lease.release()
    with pytest.raises(MessageNotFoundError):
        queue.dead_letters.redrive("a", "m")


def test_batches(make_sync: MakeSync) -> None:
    queue = make_sync()
    assert len(queue.enqueue_many(NewMessage(n, tenant="a") for n in range(4))) == 4
    one, two, three, four = queue.claim(4)
    assert queue.extend_many([one, two, three, four]) == ["extended"] * 4
    assert queue.complete_many([one, two]) == ["done", "done"]
    assert queue.fail_many([three]) == ["retried"]
    assert queue.release_many([four]) == ["released"]


def test_from_many_threads_each_message_is_taken_once(make_sync: MakeSync) -> None:
    queue = make_sync(limits=[Limit("tenant", default=4)])
    start = threading.Barrier(16)

    def work(number: int) -> list[str]:
        start.wait(60)
        for n in range(10):
            queue.enqueue(n, tenant=f"t{number % 4}", id=f"{number}-{n}")
        done = []
        while leases := queue.claim(2):
            done += [lease.message.id for lease in leases]
            assert set(queue.complete_many(leases)) == {"done"}
        return done

    with ThreadPoolExecutor(16) as threads:
        taken = Counter(id for done in threads.map(work, range(16)) for id in done)
    rest = Counter(lease.message.id for lease in queue.claim(200))
    assert max(taken.values()) == 1
    assert sum(taken.values()) + sum(rest.values()) == 160
    assert queue.stats().totals.released == 0


def test_a_thread_that_waits_is_woken_by_another(make_sync: MakeSync) -> None:
    queue = make_sync()
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(queue.claim, 1, 20) for _ in range(4)]
        for n in range(4):
            queue.enqueue(n, tenant="a")
        leases = [lease for future in waiting for lease in future.result(15)]
    assert sorted(lease.message.payload for lease in leases) == [0, 1, 2, 3]
    assert queue.complete_many(leases) == ["done"] * 4


def test_a_lease_is_settled_from_another_thread_than_it_was_claimed_in(make_sync: MakeSync) -> None:
    queue = make_sync()
    queue.enqueue(1, tenant="a")
    (lease,) = queue.claim()
    with ThreadPoolExecutor(8) as threads:
        assert {future.result() for future in [threads.submit(lease.complete) for _ in range(8)]} == {"done"}
    assert queue.stats().totals.completed == 1


def test_keep_alive_keeps_the_lease_while_the_thread_works(make_sync: MakeSync) -> None:
    queue = make_sync(clock=None, visibility_timeout=2)
    queue.enqueue(1, tenant="a")
    (lease,) = queue.claim()
    first = lease.deadline
    with lease.keep_alive():
        eventually_sync(
            lambda: (lease.deadline - first).total_seconds() > 0.8, "the lease to be extended twice"
        )
        assert queue.reclaim().reclaimed == []
    assert lease.complete() == "done"


def test_closed_in_one_thread_while_another_waits(make_sync: MakeSync) -> None:
    queue = make_sync()
    queue.connect()
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(queue.claim, 1, 60)
        eventually_sync(lambda: queue._queue._engine._bells, "the claim to wait")
        queue.close()
        with pytest.raises(QueueClosedError, match="closed in another thread"):
            waiting.result(15)
    queue.connect()
    assert queue.enqueue(1, tenant="a").created
    (lease,) = queue.claim()
    assert lease.message.attempt == 1


def test_closed_again_and_again_while_others_work(make_sync: MakeSync) -> None:
    queue = make_sync()
    stop = threading.Event()
    sent: list[str] = []

    def work(number: int) -> None:
        for n in itertools.count():
            if stop.is_set():
                return
            with contextlib.suppress(QueueClosedError):  # it may be stored all the same
                sent.append(queue.enqueue(n, tenant="a", id=f"{number}-{n}").id)

    with ThreadPoolExecutor(3) as threads:
        working = [threads.submit(work, number) for number in range(3)]
        try:
            for _ in range(20):
                before = len(sent)
                queue.connect()
                eventually_sync(lambda before=before: len(sent) > before, "the others to work")  # type: ignore[misc]
                queue.close()
        finally:
            stop.set()
        for future in working:
            future.result(15)
    queue.connect()
    assert queue.stats().ready >= len(sent) == len(set(sent))


def test_what_is_wrong_is_said_in_the_callers_thread(make_sync: MakeSync) -> None:
    queue = make_sync()
    with pytest.raises(ConfigurationError, match="expected n to be"):
        queue.claim(0)
    with pytest.raises(ConfigurationError, match="positive duration"):
        make_sync(visibility_timeout=-3)
    broken = (NewMessage(n, tenant="a" if n else "") for n in range(2))
    with pytest.raises(ValueError, match="tenant"):
        queue.enqueue_many(broken)
    assert queue.stats().ready == 0


def test_called_from_its_own_thread_it_says_so_instead_of_waiting_for_itself(make_sync: MakeSync) -> None:
    def busiest(message: NewMessage[Any]) -> str:
        return "busy" if queue.stats().ready else "idle"

    queue = make_sync(limits=[Limit("load", default=1, key=busiest)])
    with pytest.raises(InvalidMessageError, match="queue's own"):
        queue.enqueue(1, tenant="a")
    assert queue.stats().ready == 0


def test_an_interrupt_ends_the_wait_and_gives_back(make_sync: MakeSync) -> None:
    queue = make_sync()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def send() -> None:
        eventually_sync(lambda: queue._queue._engine._bells, "the claim to wait")
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(send)
            with pytest.raises(KeyboardInterrupt):
                queue.claim(1, wait=60)
    finally:
        signal.signal(signal.SIGUSR1, before)
    queue.enqueue(1, tenant="a")
    (lease,) = queue.claim()
    assert lease.complete() == "done"


def test_entering_without_a_server_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairqueue._engine.engine.FIRST_PATIENCE", 0.1)
    before = set(threading.enumerate())
    with pytest.raises(ConnectionError), SyncFairQueue(f"redis://127.0.0.1:{free_port()}"):
        pass
    assert set(threading.enumerate()) <= before


def test_a_closed_queue_says_so_and_starts_nothing_until_it_is_opened(make_sync: MakeSync) -> None:
    before = set(threading.enumerate())
    queue = make_sync()
    queue.enqueue(1, tenant="a")
    (lease,) = queue.claim()
    queue.close()
    queue.close()
    uses: list[Callable[[], Any]] = [
        queue.claim,
        queue.stats,
        lease.complete,
        queue.dead_letters.tenants().__next__,
        lambda: queue.enqueue(2, tenant="a"),
        lambda: queue.limits.get("tenant", "a"),
    ]
    for use in uses:
        with pytest.raises(QueueClosedError, match="the queue is closed"):
            use()
    assert set(threading.enumerate()) <= before
    with queue:
        assert lease.complete() == "done"
    never_used = make_sync()
    never_used.close()
    with pytest.raises(QueueClosedError):
        never_used.stats()


def test_closing_leaves_no_thread(server: str, namespace: str) -> None:
    before = set(threading.enumerate())
    with SyncFairQueue(server, namespace) as queue:
        queue.enqueue(1, tenant="a")
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) <= before


def test_iterators_are_plain(make_sync: MakeSync) -> None:
    queue = make_sync(limits=[Limit("tenant", default=1)])
    queue.enqueue_many([NewMessage(n, tenant=f"t{n % 3}", queue=f"q{n % 2}") for n in range(6)])
    assert sorted(state.tenant for state in queue.tenants.list()) == ["t0", "t1", "t2"]
    assert sorted(state.queue for state in queue.queues("t0")) == ["q0", "q1"]
    assert list(queue.workers()) == []
    queue.claim(3)
    assert {state.held for state in queue.limits.list("tenant")} == {1}
