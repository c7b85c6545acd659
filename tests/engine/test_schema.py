"""Two versions of the library: every script gets the schema number and refuses before it writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairqueue import FairQueue, Limit, Message, SchemaMismatchError, Worker
from fairqueue._engine.keys import SCHEMA
from fairqueue._engine.script import load_all
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.engine.tools import claimed, put, raw, state


@pytest.fixture
async def newer(make_queue: MakeQueue) -> FairQueue[Any]:
    """A client in a namespace that a newer version has taken over, with a message ready and one in flight."""
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await put(queue, "a", "m1", "m2")
    await claimed(queue)
    await raw(queue, "HSET", "settings", args=["schema", "99"])
    return queue


async def every_key(queue: FairQueue[Any]) -> dict[bytes, bytes]:
    names = await queue._engine.command("KEYS", queue._engine.calls.root + "*")
    return {name: await queue._engine.command("DUMP", name) for name in sorted(names)}


async def restore(queue: FairQueue[Any]) -> None:
    await raw(queue, "HSET", "settings", args=["schema", SCHEMA])


async def test_every_call_refuses_and_nothing_is_written(newer: FairQueue[Any]) -> None:
    lease_of = newer.claim
    before = await every_key(newer)
    calls = [
        newer.enqueue(1, tenant="a"),
        lease_of(),
        newer.reclaim(),
        newer.reconcile(),
        newer.audit(fix=True),
        newer.stats(),
        newer.stats("a"),
        newer.get("a", "m1"),
        newer.limits.set("tenant", "a", 3),
        newer.limits.reset("tenant", "a"),
        newer.limits.get("tenant", "a"),
        newer.dead_letters.redrive("a", "m1"),
        newer.dead_letters.purge("a", "m1"),
        promote(newer._engine),
    ]
    for call in calls:
        with pytest.raises(SchemaMismatchError, match="99"):
            await call
    assert await every_key(newer) == before
    await restore(newer)


async def test_a_new_client_refuses_to_connect_and_changes_nothing(
    newer: FairQueue[Any], server: str
) -> None:
    before = await every_key(newer)
    late: FairQueue[Any] = FairQueue(server, newer.name, limits=[Limit("tenant", default=9)])
    with pytest.raises(SchemaMismatchError, match="version"):
        await late.connect()
    await late.close()
    assert await every_key(newer) == before
    await restore(newer)


async def test_a_running_lease_is_not_settled_by_the_old_version(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    (lease,) = await queue.claim()
    await raw(queue, "HSET", "settings", args=["schema", "99"])
    for call in (lease.extend(), lease.complete()):
        with pytest.raises(SchemaMismatchError):
            await call
    await restore(queue)
    assert await lease.complete() == "done"


@pytest.mark.parametrize("name", sorted(load_all()))
async def test_every_script_refuses_before_it_writes(make_queue: MakeQueue, name: str) -> None:
    """Called as it is, with the schema of another version and nonsense for the rest."""
    queue = await make_queue()
    await raw(queue, "HSET", "settings", args=["schema", "99"])
    script = load_all()[name]
    arguments = {argument: {"schema": SCHEMA, "now": 1}.get(argument, 1) for argument in script.argv}
    rows = [tuple(1 for _ in script.rows)] if script.rows else []
    before = await every_key(queue)
    with pytest.raises(SchemaMismatchError):
        await queue._engine.run(_call(script, script.args(*rows, **arguments)))
    assert await every_key(queue) == before
    await restore(queue)


def _call(script: Any, args: list[Any]) -> Any:
    from fairqueue._engine.calls import Call

    return Call(script, args, lambda answer: answer)


async def test_a_running_worker_ends_when_the_number_changes_and_its_message_is_delivered_again(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """What it had in hand keeps its lease until that expires; a worker that speaks the stored number has it then."""
    queue = await make_queue()
    await put(queue, "a", "m")
    started, go_on = asyncio.Event(), asyncio.Event()

    async def handle(_: Message[Any]) -> None:
        started.set()
        await go_on.wait()

    worker: Worker[Any] = Worker(queue, handle, concurrency=2, grace=0)
    running = asyncio.create_task(worker.run(signals=False))
    await started.wait()
    await raw(queue, "HSET", "settings", args=["schema", "99"])
    go_on.set()
    with pytest.raises(SchemaMismatchError, match="99"):
        await asyncio.wait_for(running, 60)
    await restore(queue)
    assert await state(queue, "a", "m") == "in_flight"
    clock.advance(31)
    await queue.reclaim()
    (lease,) = await queue.claim()
    assert (lease.message.attempt, lease.message.crashes) == (2, 1)
    assert await lease.complete() == "done"
