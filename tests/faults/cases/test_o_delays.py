"""O: delays that block others, or that cannot be computed."""

from __future__ import annotations

import logging
import math
import time
from datetime import timedelta
from typing import Any

import pytest

from fairqueue import FairQueue, Message, RetryPolicy
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import commands, ids, one, put, raw
from tests.support.fixtures import MakeServer
from tests.support.proxy import Proxy
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually
from tests.support.working import working


@pytest.mark.case("O1")
async def test_delayed_messages_block_nobody_and_start_when_they_are_due(make_queue: MakeQueue) -> None:
    queue = await make_queue(clock=None)
    for q in ("first", "second"):
        await put(queue, "T", *(f"{q}{n}" for n in range(100)), queue=q, delay=3600)
        await put(queue, "T", f"ready in {q}", queue=q)
    leases = await queue.claim(10)
    assert sorted(ids(leases)) == ["ready in first", "ready in second"]
    await queue.complete_many(leases)

    watch = Stopwatch()
    await put(queue, "T", "soon", delay=2)
    leases = await queue.claim(wait=10)
    took = watch.seconds
    watch.check(3, "it to be claimed when it is due")
    assert ids(leases) == ["soon"]
    assert took >= 2.0
    await queue.complete_many(leases)


LOOKS = 10
INSIDE = (
    30  # commands a second inside the server that the scripts of an idle worker may send; 19 were measured
)


@pytest.mark.case("O1")
async def test_a_worker_with_nothing_but_far_delayed_messages_asks_for_little(
    make_queue: MakeQueue, make_server: MakeServer
) -> None:
    """Under five requests a second, all that an idle worker sends: it claims and waits for the bell, beats, reclaims, promotes.

    The report asks for five commands, where there are no scripts. What these send inside the server is more than that
    (docs/known-limits.md): under 30.
    """
    own = make_server(appendonly="no")
    queue = await make_queue(url=own.url, clock=None)
    for q in ("first", "second"):
        await put(queue, "T", *(f"{q}{n}" for n in range(100)), queue=q, delay=3600)
    with Proxy(own.url) as proxy:
        async with FairQueue[Any](proxy.url, queue.name) as idle, working(idle, nobody):
            await eventually(lambda: proxy.count("BLPOP") > 0, "the worker to be idle")
            began, inside = time.monotonic(), await commands(queue)
            sent, looks = len(proxy.requests), proxy.count("claim")
            await eventually(lambda: proxy.count("claim") - looks >= LOOKS, f"{LOOKS} looks in vain")
            sent = len(proxy.requests) - sent
            inside, took = await commands(queue) - inside, time.monotonic() - began
    assert sent < 5 * took
    assert inside < INSIDE * took


async def nobody(message: Message[Any]) -> None:
    raise AssertionError(f"{message.id} is not due")


@pytest.mark.case("O2")
@pytest.mark.parametrize("jitter", [False, True])
def test_every_delay_is_finite_and_within_the_cap(jitter: bool) -> None:
    policy = RetryPolicy(max_attempts=3000, initial=1, factor=5, maximum=3600, jitter=jitter)
    delays = [policy.delay_ms(attempt) for attempt in range(1, 2001)]
    assert all(isinstance(delay, int) and 0 < delay <= 3_600_000 for delay in delays)
    assert delays[-1] >= 3_600_000 / (2 if jitter else 1)


@pytest.mark.case("O2")
async def test_the_1501st_failure_waits_for_the_cap(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy(max_attempts=2000, factor=5, maximum=3600, jitter=False))
    await put(queue, "T", "m")
    await has_failed(queue, 1500)
    lease = await one(queue)
    assert lease.message.attempt == 1501
    assert await lease.fail("no") == "retried"
    assert await due_in(queue, clock) == timedelta(hours=1)


async def has_failed(queue: FairQueue[Any], times: int) -> None:
    """The message m's stored attempt."""
    header = await raw(queue, "HGET", "head", args=["T\x1fm"])
    fields = header.split(b"\x1f")
    fields[3] = str(times).encode()
    await faults.overwrite(queue, "header", "T", "m", b"\x1f".join(fields))


async def due_in(queue: FairQueue[Any], clock: ManualClock) -> timedelta:
    info = await queue.get("T", "m")
    assert info is not None
    assert info.due_at is not None
    return info.due_at - clock.now


def _raises(attempt: int, error: BaseException | None) -> float:
    raise KeyError(attempt)


@pytest.mark.case("O2")
@pytest.mark.parametrize(
    "function",
    [_raises, lambda _, __: math.nan, lambda _, __: -1, lambda _, __: math.inf, lambda _, __: "soon"],
    ids=["raises", "NaN", "-1", "infinity", "text"],
)
async def test_a_mistaken_retry_function_loses_nothing_and_is_reported(
    make_queue: MakeQueue, clock: ManualClock, caplog: pytest.LogCaptureFixture, function: Any
) -> None:
    queue = await make_queue(retry=RetryPolicy.custom(function))
    await put(queue, "T", "m")
    with caplog.at_level(logging.ERROR, "fairqueue"):
        assert await (await one(queue)).fail("no") == "retried"
    assert "custom retry policy failed at attempt 1" in caplog.text
    assert timedelta(0) < await due_in(queue, clock) <= timedelta(seconds=1), (
        "the default policy's first wait"
    )
    clock.advance(1)
    assert (await one(queue)).message.attempt == 2
