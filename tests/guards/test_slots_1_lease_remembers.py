"""Rule 1 of slots: the lease remembers what it holds. Freeing never recomputes groups from metadata or settings."""

from __future__ import annotations

from fairqueue import Limit, RetryPolicy
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import held, slots, state, told

ORGS = [Limit("tenant", default=5), Limit("org", default=1, key="org")]
OTHERWISE = [Limit("tenant", default=5), Limit("org", default=1, key="department")]

KNOWS_GROUPS = without(
    "the lease's list of groups: freeing knows only the tenant's",
    "includes/slots.lua",
    "ipairs(lane_of(lane).groups)",
    "ipairs({ 'tenant' .. US .. tenant_of(mid) })",
)
SALVAGE = "elseif not h and lease then\n    h = salvage_header"


@guard("slots 1", "groups made from metadata are freed by a process that never saw the enqueue", KNOWS_GROUPS)
async def test_metadata_groups_are_freed_by_a_process_that_never_saw_the_enqueue(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    producer = await make_queue(limits=ORGS)
    await producer.enqueue(1, tenant="a", id="m", metadata={"org": "x"})
    assert len(await producer.claim()) == 1
    clock.advance(31)
    stranger = await make_queue(limits=OTHERWISE)
    assert (await stranger.reclaim()).reclaimed == [("a", "m")]
    assert await held(stranger, "org", "x") == 0


@guard("slots 1", "a completion frees the groups the lease lists, whatever is declared by now", KNOWS_GROUPS)
async def test_a_completion_frees_what_the_lease_lists(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ORGS)
    await queue.enqueue(1, tenant="a", id="m", metadata={"org": "x"})
    (lease,) = await queue.claim()
    await make_queue(limits=OTHERWISE)
    assert await told(lease.complete()) == "done"
    assert await slots(queue, "org", "x") == {}


@guard(
    "slots 1",
    "the budget of tries is the one in force at the claim",
    without(
        "the lease's budget of tries",
        "settle.lua",
        "lease and lease.max_attempts or tonumber(h.max_attempts) or tonumber(settings.max_attempts)",
        "tonumber(settings.max_attempts)",
    ),
)
async def test_the_budget_of_tries_is_the_leases(make_queue: MakeQueue) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(1, max_attempts=3))
    await queue.enqueue(1, tenant="a", id="m")
    (lease,) = await queue.claim()
    await make_queue(retry=RetryPolicy.fixed(1, max_attempts=1))
    assert await told(lease.fail("oops")) == "retried"


@guard(
    "slots 1",
    "the budget of crashes is the one in force at the claim",
    without(
        "the lease's budget of crashes",
        "reclaim.lua",
        "lease and lease.max_crashes or tonumber(settings.max_crashes)",
        "tonumber(settings.max_crashes)",
    ),
)
async def test_the_budget_of_crashes_is_the_leases(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(retry=RetryPolicy(max_crashes=2))
    await queue.enqueue(1, tenant="a", id="m")
    assert len(await queue.claim()) == 1
    await make_queue(retry=RetryPolicy(max_crashes=1))
    clock.advance(31)
    assert (await queue.reclaim()).reclaimed == [("a", "m")]
    assert await state(queue, "a", "m") == "ready"


@guard(
    "slots 1",
    "a message whose header was destroyed is put back from its lease",
    without(
        "the header made from the lease", "reclaim.lua", SALVAGE, "elseif false then\n    h = salvage_header"
    ),
)
async def test_a_message_without_its_header_comes_back_from_its_lease(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(limits=ORGS)
    await queue.enqueue("payload", tenant="a", id="m", metadata={"org": "x"})
    assert len(await queue.claim()) == 1
    await faults.delete(queue, "header", "a", "m")
    clock.advance(31)
    await queue.reclaim()
    assert await held(queue, "org", "x") == 0
    assert [message.payload for message in await drain(queue)] == ["payload"]


@guard(
    "slots 1",
    "a lease settles although the header was destroyed",
    without(
        "the settling from the lease alone",
        "settle.lua",
        "if lease and lease.token == row.token then",
        "if h and lease and lease.token == row.token then",
    ),
)
async def test_a_lease_settles_without_the_header(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=ORGS)
    await queue.enqueue("payload", tenant="a", id="m", metadata={"org": "x"})
    (lease,) = await queue.claim()
    await faults.delete(queue, "header", "a", "m")
    outcome = await told(lease.release())
    assert [message.payload for message in await drain(queue)] == ["payload"]
    assert await held(queue, "org", "x") == 0
    assert outcome == "released"
