"""Lost answers of calls that are not a plain claim or settle."""

from __future__ import annotations

import pytest

from fairqueue import QueueUnavailableError
from fairqueue.testing import faults
from tests.conftest import MakeQueue
from tests.support.proxy import Proxy, lose_reply, lose_request
from tests.support.waiting import eventually


async def test_what_a_lost_claim_took_never_goes_to_a_claim_on_another_pool(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await queue.enqueue("for the gpu", tenant="t", id="g", pool="gpu")
    await queue.enqueue("for the cpu", tenant="t", id="c", pool="cpu")
    queue._engine.connection._patience = 0.0
    proxy.next("claim", lose_reply())
    with pytest.raises(QueueUnavailableError):
        await queue.claim(1, pools=("gpu",))
    queue._engine.connection._patience = 10.0
    (lease,) = await queue.claim(1, pools=("cpu",))
    assert lease.message.pool == "cpu"

    async def back() -> bool:
        found = await queue.get("t", "g")
        return found is not None and found.state == "ready" and found.message.attempt == 0

    await eventually(back, "the lost message to be given back uncounted")
    assert await lease.complete() == "done"


@pytest.mark.parametrize("script", ["redrive", "purge_dead"])
async def test_a_repeated_call_on_dead_letters_answers_as_the_first(
    make_queue: MakeQueue, proxy: Proxy, script: str
) -> None:
    queue = await make_queue(url=proxy.url)
    await queue.enqueue(1, tenant="t", id="m")
    (lease,) = await queue.claim()
    await lease.dead_letter("no")
    proxy.next(script, lose_reply())
    letters = queue.dead_letters
    assert await (letters.redrive("t", "m") if script == "redrive" else letters.purge("t", "m")) == 1
    assert await letters.count("t") == 0


async def test_an_outage_while_one_is_buried_does_not_take_its_batch_along(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    for id_ in "abc":
        await queue.enqueue(id_, tenant="t", id=id_)
    await faults.overwrite(queue, "body", "t", "b", b"junk")
    proxy.next("settle", lose_request())
    leases = await queue.claim(3)
    assert [lease.message.id for lease in leases] == ["a", "c"]
    await eventually(lambda: _dead(queue), "the unreadable one to be a dead letter")


async def _dead(queue: object) -> bool:
    from fairqueue import FairQueue

    assert isinstance(queue, FairQueue)
    return await queue.dead_letters.count("t") == 1
