"""Guarantees that add up to more than a shared group's limit: refused where somebody asks for it, found where it came to be."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from fairqueue import ConfigurationError, FairQueue, Limit, NewMessage
from fairqueue.maintenance.service import Maintenance
from fairqueue.testing import ManualClock, drain, faults
from tests.conftest import MakeQueue
from tests.engine.tools import commands, found, raw

LIMITS = [Limit("tenant"), Limit("org", default=4, key="org")]
ORG = {"org": "o"}
OVERBOOKED = ("SLOTS", "org/o")


async def use(queue: FairQueue[Any], *tenants: str, org: str = "o", **options: Any) -> None:
    await queue.enqueue_many(
        NewMessage(None, tenant=tenant, metadata={"org": org}, **options) for tenant in tenants
    )


async def guarantee(queue: FairQueue[Any], **slots: int) -> None:
    for tenant, number in slots.items():
        await queue.limits.set("tenant", tenant, None, guaranteed=number)


async def refused(queue: FairQueue[Any], got: str, **slots: int) -> None:
    with pytest.raises(ConfigurationError, match=f"use org o to be at most its limit of {got}"):
        await guarantee(queue, **slots)


# --- a guarantee -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"delay": 60}, {"delay": timedelta(days=90)}, {"priority": 3}])
async def test_messages_that_are_there_tell_who_uses_a_group(
    make_queue: MakeQueue, how: dict[str, Any]
) -> None:
    queue = await make_queue(limits=LIMITS)
    await use(queue, "a", "b", **how)
    await guarantee(queue, a=3)
    await refused(queue, "4, got 5 with 2 for 'b'", b=2)
    state = await queue.limits.get("tenant", "b")
    assert (state.limit, state.guaranteed) == (None, None)
    await guarantee(queue, b=1, c=9)  # nobody knows that c uses it


async def test_what_comes_later_is_known_too(make_queue: MakeQueue, clock: ManualClock) -> None:
    """Set before there are messages, and gone when the next is set."""
    queue = await make_queue(limits=LIMITS)
    await guarantee(queue, a=3)
    await use(queue, "a")
    await drain(queue)
    await use(queue, "b")
    await refused(queue, "4, got 6 with 3 for 'b'", b=3)
    clock.advance(timedelta(days=31).total_seconds())
    await guarantee(queue, b=3)  # the last message of a came a month ago
    await drain(queue)


async def test_each_of_many_counts(make_queue: MakeQueue) -> None:
    """However many guarantees there are beside."""
    queue = await make_queue(limits=LIMITS)
    names = [f"t{n:04}" for n in range(300)]
    for name in names:
        await use(queue, name, org=name)
    await guarantee(queue, **dict.fromkeys(names, 4))
    await use(queue, "a", "b")
    await guarantee(queue, a=4)
    await refused(queue, "4, got 5 with 1 for 'b'", b=1)
    await refused(queue, "4, got 8 with 4 for 'b'", b=4)
    await drain(queue)


async def test_what_makes_it_no_worse_is_not_refused(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await guarantee(queue, a=4, b=4)
    await use(queue, "a", "b")
    await guarantee(queue, a=4)
    await guarantee(queue, a=3)
    await refused(queue, "4, got 8 with 4 for 'a'", a=4)
    await queue.limits.set("tenant", "b", 1)
    await guarantee(queue, a=4)
    assert found(await queue.audit()) == []
    await drain(queue)


async def test_a_redriven_letter_tells(make_queue: MakeQueue, clock: ManualClock) -> None:
    queue = await make_queue(limits=LIMITS)
    await guarantee(queue, a=4)
    await use(queue, "a")
    (lease,) = await queue.claim()
    await lease.dead_letter("no")
    clock.advance(timedelta(days=31).total_seconds())
    await guarantee(queue, b=4)
    await use(queue, "b")
    assert found(await queue.audit()) == []
    await queue.dead_letters.redrive_all("a")
    assert found(await queue.audit()) == [OVERBOOKED]
    await queue.limits.reset("tenant", "a")
    await drain(queue)


async def test_a_tenant_with_a_name_like_a_pattern(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await use(queue, "*", "[a]", "a")
    await guarantee(queue, **{"*": 3, "[a]": 1})
    await refused(queue, "4, got 5 with 1 for 'a'", a=1)
    assert await raw(queue, "ZCARD", "users", "org", "o") == 2 + 1  # a was looked for, and has none
    await drain(queue)


# --- the limit of the group ------------------------------------------------------------------------------------------


async def test_a_limit_below_is_refused(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await queue.limits.set("org", "o", 8)
    await guarantee(queue, a=4, b=3)
    await use(queue, "a", "b")
    await queue.limits.set("org", "o", 7)
    for lower in (6, 1):
        with pytest.raises(ConfigurationError, match=f"use org o to be at most its limit of {lower}, got 7$"):
            await queue.limits.set("org", "o", lower)
    with pytest.raises(ConfigurationError, match=r"at most its limit of 4, got 7$"):
        await queue.limits.reset("org", "o")
    assert (await queue.limits.get("org", "o")).limit == 7
    await queue.limits.set("org", "o", 0)  # stopped: nothing is kept, and on purpose
    assert found(await queue.audit()) == []
    with pytest.raises(ConfigurationError, match=r"at most its limit of 6, got 7$"):
        await queue.limits.set("org", "o", 6)
    await queue.limits.set("org", "o", None)
    await drain(queue)


# --- where it comes to be --------------------------------------------------------------------------------------------


async def test_a_message_that_makes_it_so_is_accepted(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by the audit, told once by maintenance, and in force as far as it goes: by turns."""
    queue = await make_queue(limits=LIMITS)
    await guarantee(queue, a=3, b=3)
    await use(queue, *"aaaabbbbcccc")
    report = await queue.audit()
    assert found(report) == [OVERBOOKED]
    assert (
        "are guaranteed 6 slots, and its limit is 4: raise it, or guarantee less"
        in report.findings[0].evidence
    )
    leases = await queue.claim(10)
    assert "".join(lease.message.tenant for lease in leases) == "abab"
    maintenance = Maintenance(queue._engine)
    with caplog.at_level(logging.WARNING, "fairqueue"):
        for _ in range(3):
            await maintenance._reconcile()
            await raw(queue, "DEL", "lock", "reconcile")
    assert [record.message for record in caplog.records] == [
        "org o: those who use the group are guaranteed 6 slots, and its limit is 4: raise it, or guarantee less"
    ]
    assert (await queue.reconcile()).overbooked.keys() == {("org", "o")}
    await queue.limits.set("org", "o", 5)  # better, and not refused
    await queue.limits.set("org", "o", 6)
    assert found(await queue.audit()) == []
    assert (await queue.reconcile()).overbooked == {}
    await queue.complete_many(leases)
    await drain(queue)


async def test_a_lower_default_is_found(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await guarantee(queue, a=2, b=2)
    await use(queue, "a", "b")
    assert found(await queue.audit()) == []
    other = await make_queue(limits=[Limit("tenant"), Limit("org", default=3, key="org")])
    assert found(await other.audit()) == [OVERBOOKED]
    await other.limits.set("org", "o", 4)
    await drain(other)


# --- what was lost -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "wrong type"])
@pytest.mark.parametrize("kind", ["uses", "users"])
async def test_what_was_lost_is_found_again(make_queue: MakeQueue, kind: str, how: str) -> None:
    queue = await make_queue(limits=LIMITS)
    await guarantee(queue, a=3)
    await use(queue, "a", "b")
    of = ("a",) if kind == "uses" else ("org", "o")
    await raw(queue, "DEL", kind, *of)
    if kind == "uses":
        await raw(queue, "DEL", "users", "org", "o")
    if how == "wrong type":
        await faults.wrong_type(queue, kind, *of)
    assert found(await queue.audit()) != []
    await queue.reconcile()
    assert found(await queue.audit()) == []
    await refused(queue, "4, got 5 with 2 for 'b'", b=2)
    await drain(queue)


async def test_a_guarantee_that_was_taken_away_leaves_nothing(make_queue: MakeQueue) -> None:
    queue = await make_queue(limits=LIMITS)
    await use(queue, "a", "b")
    await guarantee(queue, a=3)
    await refused(queue, "4, got 5 with 2 for 'b'", b=2)
    await queue.limits.reset("tenant", "a")
    assert await raw(queue, "EXISTS", "guarantees") == 0
    assert await raw(queue, "EXISTS", "uses", "a") + await raw(queue, "EXISTS", "uses", "b") == 0
    assert await raw(queue, "PTTL", "users", "org", "o") > 0
    await guarantee(queue, b=4)
    await drain(queue)


# --- what it costs -----------------------------------------------------------------------------------------------------


async def spent(queue: FairQueue[Any]) -> int:
    before = await commands(queue)
    await use(queue, *"abab")
    return await commands(queue) - before


async def test_an_enqueue_pays_a_command_a_group(make_queue: MakeQueue) -> None:
    """Of a tenant with a guarantee; nothing where nobody has one."""
    queue = await make_queue(limits=LIMITS)
    await use(queue, "a", "b")
    without = await spent(queue)
    await guarantee(queue, a=2)
    await use(queue, "a")
    beside = await spent(queue)
    assert beside - without <= 6, (without, beside)
    await drain(queue)
