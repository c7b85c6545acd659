"""Waiting for a condition instead of sleeping for a guess.

A test that sleeps is slow when the guess is high and flaky when it is low. These helpers look again and
again until the condition holds, and fail with words when it does not::

    await eventually(lambda: len(seen) == 3, "all three messages to be handled")
    stats = await eventually(queue_is_empty, "the queue to be empty")
    eventually_sync(socket_path.exists, "the server's socket to appear")
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE = 60.0  # seconds; generous on purpose: it is only ever spent by a test that fails
FIRST_PAUSE = 0.001
LONGEST_PAUSE = 0.05


async def eventually(condition: Callable[[], T | Awaitable[T]], what: str, deadline: float = DEADLINE) -> T:
    """Wait until `condition()` is true and return what it returned.

    `condition` is a plain or an async function; an exception it raises ends the wait at once, except
    `AssertionError`, which counts as "not yet" and is shown when the time is up. `what` completes the
    sentence "expected ... within 60 s". `deadline` is in seconds.
    """
    wait = _Wait(what, deadline)
    while True:
        try:
            result = condition()
            value = await result if inspect.isawaitable(result) else result
        except AssertionError as error:
            wait.note_refusal(error)
        else:
            if value:
                return value
            wait.note_value(value)
        await asyncio.sleep(wait.next_pause())


async def watched_until(
    condition: Callable[[], object],
    check: Callable[[], Awaitable[object]],
    what: str,
    deadline: float = DEADLINE,
) -> None:
    """Wait as `eventually` does, and look at each pause whether all is as it should be: `check` raises what is not."""
    wait = _Wait(what, deadline)
    while True:
        value = condition()
        value = await value if inspect.isawaitable(value) else value
        if value:
            return
        await check()
        wait.note_value(value)
        await asyncio.sleep(wait.next_pause())


def eventually_sync(condition: Callable[[], T], what: str, deadline: float = DEADLINE) -> T:
    """Wait as `eventually` does, with a plain function and without an event loop."""
    wait = _Wait(what, deadline)
    while True:
        try:
            value = condition()
        except AssertionError as error:
            wait.note_refusal(error)
        else:
            if value:
                return value
            wait.note_value(value)
        time.sleep(wait.next_pause())


class _Wait:
    """The time left and the last thing seen, shared by both flavours."""

    def __init__(self, what: str, deadline: float) -> None:
        self._what = what
        self._deadline = deadline
        self._ends = time.monotonic() + deadline
        self._pause = FIRST_PAUSE
        self._last_seen = "nothing"
        self._refusal: AssertionError | None = None

    def note_value(self, value: object) -> None:
        self._last_seen, self._refusal = repr(value), None

    def note_refusal(self, error: AssertionError) -> None:
        self._last_seen, self._refusal = f"AssertionError: {error}", error

    def next_pause(self) -> float:
        """How long to sleep before looking again; fails the test when the deadline has passed."""
        left = self._ends - time.monotonic()
        if left <= 0:
            message = f"expected {self._what} within {self._deadline:g} s, last saw {self._last_seen}"
            raise AssertionError(message) from self._refusal
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        return min(pause, left)
