"""dedupe_for: an id that was accepted is not accepted again for a time, though the message be done and gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fairqueue import FairQueue, InvalidMessageError, NewMessage
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import one, put, raw


async def sent(queue: FairQueue[Any], id_: str = "m", **options: Any) -> tuple[bool, str]:
    found = await queue.enqueue(1, tenant="a", id=id_, **options)
    return found.created, str(found.state)


@pytest.mark.parametrize("dedupe_for", [60, timedelta(minutes=1)])
async def test_not_again_within_its_time_although_it_is_gone(
    make_queue: MakeQueue, clock: ManualClock, dedupe_for: Any
) -> None:
    queue = await make_queue()
    assert await sent(queue, dedupe_for=dedupe_for) == (True, "ready")
    assert await sent(queue, dedupe_for=dedupe_for) == (False, "ready")
    await (await one(queue)).complete()
    clock.advance(59.999)
    assert await sent(queue, dedupe_for=dedupe_for) == (False, "gone")
    clock.advance(0.001)
    assert await sent(queue, dedupe_for=dedupe_for) == (True, "ready")


async def test_the_time_is_that_of_the_first(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue()
    await sent(queue, dedupe_for=60)
    await (await one(queue)).complete()
    clock.advance(30)
    assert await sent(queue, dedupe_for=600) == (False, "gone")
    clock.advance(30)
    assert await sent(queue, dedupe_for=600) == (True, "ready")


async def test_an_enqueue_that_does_not_ask_for_it_is_accepted(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await sent(queue, dedupe_for=60)
    await (await one(queue)).complete()
    assert await sent(queue) == (True, "ready")


async def test_ids_are_those_of_a_tenant(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await sent(queue, dedupe_for=60)
    await (await one(queue)).complete()
    again = [NewMessage(1, tenant=tenant, id="m", dedupe_for=60) for tenant in ("a", "b", "b")]
    assert [each.created for each in await queue.enqueue_many(again)] == [False, True, False]


async def test_what_is_gone_takes_no_room_of_a_backlog(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await sent(queue, dedupe_for=60)
    await (await one(queue)).complete()
    await queue.limits.set_backlog("a", 0)
    assert await sent(queue, dedupe_for=60) == (False, "gone")


async def test_the_record_expires_by_itself(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m", dedupe_for=60)
    left = await raw(queue, "PTTL", "seen", "a", "m")
    assert 0 < left <= 60_000
    await (await one(queue)).complete()
    assert (await queue.audit()).ok


@pytest.mark.parametrize("wrong", [0, -1, "a day", True])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidMessageError):
        NewMessage(1, tenant="a", dedupe_for=wrong)
