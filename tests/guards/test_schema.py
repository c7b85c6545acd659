"""Two versions of the library: who speaks another schema than the namespace refuses, before it writes anything."""

from __future__ import annotations

from fairqueue._engine.keys import SCHEMA, key
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, leases_of, state, told

RULE = "schema"
REFUSING = without("the refusal", "includes/begin.lua", "if settings.schema ~= schema then", "if false then")


async def stored_schema(queue: Queue, number: str) -> None:
    await queue._engine.command("HSET", key(queue._engine.calls.root, "settings"), "schema", number)


@guard(RULE, "what another version has taken over is neither added to nor claimed from", REFUSING)
async def test_nothing_is_added_or_claimed(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    await stored_schema(queue, "99")
    await told(queue.enqueue(2, tenant="a", id="new"))
    await told(queue.claim())
    await stored_schema(queue, SCHEMA)
    assert [await state(queue, "a", id_) for id_ in ("m", "new")] == ["ready", "gone"]


@guard(RULE, "a delivery of the version before is not settled by it", REFUSING)
async def test_nothing_is_settled(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    await stored_schema(queue, "99")
    await told(lease.complete())
    await stored_schema(queue, SCHEMA)
    assert await leases_of(queue) == {"a/m": lease.token}
    assert await told(lease.complete()) == "done"
