"""A field of the stored settings that cannot be read: clients start, work goes on, the doctor names it and mends it."""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import ConfigurationError, FairQueue, Limit, RetryPolicy
from fairqueue.maintenance.auditor import Finding
from tests.conftest import MakeQueue
from tests.engine.tools import raw

LIMITS = [Limit("tenant", default=1), Limit("org", default=3, key="org")]
DAMAGE = [
    *(("limits", text) for text in ("[1]", "null", "garbage", "{}", '[{"name": 7}]', '{"name": "tenant"}')),
    *(("retry", text) for text in ("garbage", "[]", "[1]", "null", "{}")),
    ("scheduler", "x"),
    *(("quantum", text) for text in ("much", "0", "nan", "inf")),
    ("max_attempts", "many"),
    ("max_crashes", "0"),
    ("dead_letters", "perhaps"),
]


async def settings_of(queue: FairQueue[Any]) -> dict[str, str]:
    stored = await raw(queue, "HGETALL", "settings")
    return {name.decode(): value.decode() for name, value in stored.items()}


@pytest.mark.parametrize(("field", "text"), DAMAGE)
async def test_a_damaged_field_stops_no_client_and_is_mended(
    make_queue: MakeQueue, field: str, text: str
) -> None:
    queue = await make_queue(limits=LIMITS, retry=RetryPolicy.fixed(7))
    for id_ in ("m", "n"):
        await queue.enqueue(1, tenant="a", id=id_, metadata={"org": "o"})
    await raw(queue, "HSET", "settings", args=(field, text))
    newcomer = await make_queue()
    (lease,) = await newcomer.claim(2)
    assert await lease.complete() == "done"
    subjects = [finding.subject for finding in (await newcomer.audit()).findings]
    assert subjects == [f"settings/{field}"]
    await newcomer.audit(fix=True)
    assert (await newcomer.audit()).findings == []
    assert (await newcomer.limits.get("tenant", "a")).limit == 1
    assert (await newcomer.limits.get("org", "o")).limit == 3
    assert len(await newcomer.claim(2)) == 1
    declares = await make_queue(limits=LIMITS, retry=RetryPolicy.fixed(7))
    await declares.enqueue(1, tenant="a", id="later", metadata={"org": "o"})
    assert (await settings_of(declares))["scheduler"] == "fair"


async def test_nothing_is_enqueued_while_nobody_knows_what_counts_it(make_queue: MakeQueue) -> None:
    """Not before it is mended, and then by whoever declares the limits."""
    queue = await make_queue(limits=LIMITS)
    await raw(queue, "HSET", "settings", args=("limits", "garbage"))
    newcomer = await make_queue()
    with pytest.raises(ConfigurationError, match="the limits stored under this name cannot be read"):
        await newcomer.enqueue(1, tenant="a")
    await newcomer.audit(fix=True)
    with pytest.raises(ConfigurationError, match="limit 'org' is computed by a function"):
        await newcomer.enqueue(1, tenant="a")
    declares = await make_queue(limits=LIMITS)
    await declares.enqueue(1, tenant="a", metadata={"org": "o"})
    await newcomer.claim()  # and learns what was declared
    await newcomer.enqueue(2, tenant="a", metadata={"org": "o"})
    assert (await newcomer.stats()).ready == 1


async def test_a_lock_that_never_expires_is_named_and_taken_away(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await raw(queue, "SET", "lock", "reconcile", args=("gone",))
    named = Finding("MOVES", "lock/reconcile", "the lock never expires: whoever holds it may be gone")
    assert (await queue.audit()).findings == [named]
    assert (await queue.audit(fix=True)).findings == [named]
    assert (await queue.audit()).findings == []
