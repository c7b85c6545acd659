"""A call without ``await`` is interrupted wherever a signal can be: what was handed to the loop ends, what it brought goes back.

Python looks for signals when a function begins and when a built-in one returns: a profiler is called at just these points, and
raises at each of them in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from fairqueue import Limit, NewMessage, QueueClosedError, SyncFairQueue
from tests.client.test_sync import MakeSync, make_sync  # noqa: F401 - a fixture
from tests.support.waiting import eventually_sync


class Interrupt(BaseException):
    pass


def interrupted(point: int, work: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether the work came to so many points, where it was interrupted, and else its result."""
    met = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal met
        code = frame.f_code
        if code is interrupted.__code__ or code.co_filename.endswith("_weakrefset.py"):
            return  # not of the work; and what is raised for something that is collected reaches nobody
        if event in ("call", "c_return"):
            met += 1
            if met == point:
                raise Interrupt

    sys.setprofile(profile)
    try:
        return False, work()
    except Interrupt:
        return True, None
    finally:
        sys.setprofile(None)


def each_point(work: Callable[[], Any]) -> Iterator[tuple[int, bool, Any]]:
    """The point, whether there is such a one, and the result: of ever later points, until the work comes to its end."""
    for point in range(1, 10_000):
        was_interrupted, result = interrupted(point, work)
        yield point, was_interrupted, result
        if not was_interrupted:
            assert point > 10, "the profiler sees the points"
            return


def at_rest(queue: SyncFairQueue[Any]) -> bool:
    """Nothing is under way for those who were interrupted."""
    return not queue._queue._consumer._tasks and not queue._portal._undoing


def test_an_interrupted_claim_leaves_nothing_leased_to_nobody(make_sync: MakeSync) -> None:  # noqa: F811
    queue = make_sync(limits=[Limit("tenant", default=3)], visibility_timeout=600)
    queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(3)])
    for point, _, leases in each_point(lambda: queue.claim(2)):
        queue.release_many(leases or [])
        eventually_sync(lambda: at_rest(queue), "what was interrupted to have ended")
        assert queue.stats().in_flight == 0, f"interrupted at point {point}"
        assert queue.limits.get("tenant", "a").held == 0
    assert [lease.message.attempt for lease in queue.claim(3)] == [1, 1, 1]
    assert queue.stats().totals.reclaimed == 0


def test_an_interrupted_claim_is_over_when_the_interrupt_is_seen(make_sync: MakeSync) -> None:  # noqa: F811
    """A program may end at once, and its thread with it: nobody would give the messages back later."""
    queue = make_sync(visibility_timeout=600)
    queue.enqueue(1, tenant="a")
    for _, was_interrupted, _ in each_point(lambda: queue.claim(1, wait=60)):
        if was_interrupted:
            assert all(task.done() for task in queue._portal._calls | queue._portal._undoing)


def test_what_was_interrupted_may_be_called_again(make_sync: MakeSync) -> None:  # noqa: F811
    queue = make_sync()
    for point, _, _ in each_point(lambda: queue.enqueue(1, tenant="a", id="m")):
        queue.enqueue(1, tenant="a", id="m")
        assert queue.stats().ready == 1, f"interrupted at point {point}"
    points, was_interrupted = 0, True
    while was_interrupted:
        points += 1
        (lease,) = queue.claim()
        was_interrupted, _ = interrupted(points, lambda lease=lease: lease.complete())  # type: ignore[misc]
        assert lease.complete() == "done"
        assert queue.stats().totals.completed == points
        queue.enqueue(1, tenant="a", id="m")


def test_an_interrupted_keep_alive_is_left(make_sync: MakeSync) -> None:  # noqa: F811
    """Else its lease would be extended for ever, and its message be nobody's."""
    queue = make_sync()
    queue.enqueue(1, tenant="a")
    (lease,) = queue.claim()

    async def keepers() -> int:
        return sum("_keep" in repr(task.get_coro()) for task in asyncio.all_tasks())

    def keep() -> None:
        with lease.keep_alive():
            pass

    assert queue._portal.call(keepers) == 0
    with lease.keep_alive():
        assert queue._portal.call(keepers) == 1
    for point, _, _ in each_point(keep):
        eventually_sync(lambda: at_rest(queue), "what was interrupted to have ended")
        assert queue._portal.call(keepers) == 0, f"interrupted at point {point}"


@pytest.mark.parametrize("opened", [False, True])
def test_a_queue_interrupted_as_it_opens_or_closes_is_used_again(
    make_sync: MakeSync,  # noqa: F811
    opened: bool,
) -> None:
    """And leaves no thread."""
    before = set(threading.enumerate())
    queue = make_sync()
    queue.enqueue(1, tenant="a", id="m")

    def use() -> None:
        if opened:
            queue.connect()
        queue.close()

    for _ in each_point(queue.close if opened else use):
        with contextlib.suppress(QueueClosedError):
            queue.close()
        eventually_sync(lambda: set(threading.enumerate()) <= before, "its thread to end")
        queue.connect()
        assert queue.stats().ready == 1


def test_what_ends_a_program_ends_the_call_alone_where_it_is_raised(make_sync: MakeSync) -> None:  # noqa: F811
    class Exits:
        def encode(self, obj: bytes) -> bytes:
            if obj == b"exit":
                raise SystemExit(3)
            return obj

        def decode(self, data: bytes) -> bytes:
            return data

    queue = make_sync(codec=Exits())
    with pytest.raises(SystemExit):
        queue.enqueue(b"exit", tenant="a")
    queue.enqueue(b"x", tenant="a")
    (lease,) = queue.claim()
    assert lease.complete() == "done"
