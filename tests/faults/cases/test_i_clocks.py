"""I: processes that trust their own clock."""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import FairQueue
from tests.conftest import MakeQueue
from tests.engine.tools import put, raw
from tests.faults.cases.actors import Actor, Cast
from tests.support.processes import ENDED, STARTED, Log
from tests.support.stopwatch import Stopwatch
from tests.support.waiting import eventually, watched_until

WRONG = 120.0
VISIBILITY = 1.0
SLACK = 2.0


async def server_now(queue: FairQueue[Any]) -> float:
    seconds, microseconds = await queue._engine.command("TIME")
    return float(seconds + microseconds / 1e6)


async def instants(queue: FairQueue[Any], index: str) -> dict[str, float]:
    """What is stored in ``deadlines`` or ``delayed`` for each message, in seconds of the server's clock."""
    flat = await raw(queue, "ZRANGE", index, args=[0, -1, "WITHSCORES"])
    ids = [mid.decode().partition("\x1f")[2] for mid in flat[::2]]
    return dict(zip(ids, [float(score) / 1000 for score in flat[1::2]], strict=True))


@pytest.mark.case("I1")
async def test_clocks_that_are_wrong_by_two_minutes_change_nothing(
    make_queue: MakeQueue, cast: Cast, log: Log
) -> None:
    """Wall clock and monotonic clock of A and C are ahead, those of B behind. Visibility 1 s, for 30."""
    queue = await make_queue(clock=None)
    options: dict[str, Any] = {"visibility_timeout": VISIBILITY, "reclaim_interval": 0.1}

    async def worker(wrong: float, name: str) -> Actor:
        return await cast.actor(
            "worker", wrong_clock=wrong, worker={"name": name, "pools": [name]}, **options
        )

    for name in "ab":
        await queue.enqueue({"sleep": 2.5 * VISIBILITY, "once": True}, tenant="T", id=f"of {name}", pool=name)
    a = await worker(+WRONG, "a")
    await worker(-WRONG, "b")
    await eventually(lambda: log.count(STARTED) == 2, "both to start")
    await worker(+WRONG, "c")
    reclaimer = await cast.actor(wrong_clock=WRONG, visibility_timeout=VISIBILITY)

    async def nothing_expires() -> None:
        now = await server_now(queue)
        held = await instants(queue, "deadlines")
        assert all(now - 0.5 < deadline <= now + VISIBILITY + 0.5 for deadline in held.values())
        assert await reclaimer.ask("reclaim") == []

    await watched_until(lambda: log.count(ENDED) == 2, nothing_expires, "both to end")
    assert [event.attempt for event in log.events(STARTED)] == [1, 1]

    await queue.enqueue({"sleep": 60, "once": True}, tenant="T", id="lost", pool="a")
    await eventually(lambda: log.count(STARTED) == 3, "A to start the next one")
    await eventually(lambda: a_deadline(queue, "lost"), "its lease")
    a.kill()
    watch = Stopwatch()

    async def back() -> bool:
        info = await queue.get("T", "lost")
        return info is not None and info.state == "ready"

    await eventually(back, "A's message to be back")
    took = watch.seconds
    assert took > 0.5 * VISIBILITY
    watch.check(VISIBILITY + SLACK, "the message to be back")
    await worker(-WRONG, "a")
    await eventually(lambda: log.count(ENDED) == 3, "it to be handled")


async def a_deadline(queue: FairQueue[Any], id_: str) -> bool:
    return id_ in await instants(queue, "deadlines")


@pytest.mark.case("I1")
@pytest.mark.parametrize("wrong", [+WRONG, -WRONG])
async def test_a_delay_asked_for_by_a_wrong_clock_runs_by_the_servers(
    make_queue: MakeQueue, cast: Cast, wrong: float
) -> None:
    """0.5 s, for 3. All stored instants are the server's."""
    queue = await make_queue(clock=None)
    actor = await cast.actor(wrong_clock=wrong)
    asked = await server_now(queue)
    assert await actor.ask("enqueue", tenant="T", ids=["m"], delay=0.5) == 1
    asked_by = await server_now(queue)
    due = (await instants(queue, "delayed"))["m"]
    assert asked + 0.499 <= due <= asked_by + 0.5
    assert (await actor.ask("claim", wait=5))["ids"] == ["m"]
    claimed = await server_now(queue)
    assert due <= claimed < due + SLACK
    info = await queue.get("T", "m")
    assert info is not None
    assert info.lease is not None
    stored = [info.message.enqueued_at, info.lease.claimed_at, info.lease.deadline]
    lower = [asked, due, due + 30]
    assert all(low - 0.01 <= at.timestamp() <= low + SLACK for low, at in zip(lower, stored, strict=True))
    assert await actor.ask("complete") == ["done"]
    await put(queue, "T", "end")
    assert (await actor.ask("claim"))["ids"] == ["end"]
