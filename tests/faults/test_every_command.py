"""The k-th server command of every script fails, for every k: nothing is lost, wedged, or run twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairqueue import FairQueue, FairQueueError, Lease, Limit, NewMessage
from fairqueue.testing import ManualClock, assert_whole, drain, faults
from tests.conftest import MakeQueue
from tests.faults.record import note
from tests.support.cuts import ERRORS, Cut, cut

LIMITS = [Limit("tenant", default=2), Limit("org", default=3, key="org")]
MOST_COMMANDS = 400


@dataclass
class Scene:
    """A queue with work in every state, and what is known of it."""

    queue: FairQueue[Any]
    clock: ManualClock
    leases: list[Lease[Any]] = field(default_factory=list)
    accepted: set[tuple[str, str]] = field(default_factory=set)
    maybe: set[tuple[str, str]] = field(default_factory=set)  # an enqueue that raised may have stored it
    ended: set[tuple[str, str]] = field(default_factory=set)

    async def add(self, tenant: str, *ids: str, **options: Any) -> None:
        messages = [NewMessage(id, tenant=tenant, id=id, metadata={"org": "o"}, **options) for id in ids]
        named = {(tenant, id) for id in ids}
        self.maybe |= named
        await self.queue.enqueue_many(messages)
        self.accepted |= named

    def end(self, *leases: Lease[Any]) -> None:
        self.ended |= {(lease.message.tenant, lease.message.id) for lease in leases}


async def prepared(queue: FairQueue[Any], clock: ManualClock) -> Scene:
    scene = Scene(queue, clock)
    await scene.add("a", "a1", "a2", "a3", "a4")
    await scene.add("b", "b1", "b2", queue="other")
    await scene.add("b", "b3")
    await scene.add("c", "later", delay=5)
    scene.leases = await queue.claim(3)
    return scene


Act = Callable[[Scene], Awaitable[Any]]


async def enqueue(scene: Scene) -> None:
    await scene.add("d", "d1", "d2", queue="new")
    await scene.add("a", "a5", delay=3)


async def claim(scene: Scene) -> None:
    await scene.leases[0].complete()
    scene.end(scene.leases[0])
    scene.clock.advance(6)
    await scene.queue.claim(3)


async def complete(scene: Scene) -> None:
    scene.accepted -= {
        (lease.message.tenant, lease.message.id) for lease in scene.leases
    }  # may be gone, may be not
    await scene.queue.complete_many(scene.leases)


async def fail(scene: Scene) -> None:
    await scene.queue.fail_many(scene.leases, "no")


async def release(scene: Scene) -> None:
    await scene.queue.release_many(scene.leases)


async def dead_letter(scene: Scene) -> None:
    for lease in scene.leases:
        await lease.dead_letter("no")


async def extend(scene: Scene) -> None:
    await scene.queue.extend_many(scene.leases)


async def promote(scene: Scene) -> None:
    scene.clock.advance(6)
    await scene.queue._engine.run(scene.queue._engine.calls.promote(100))


async def reclaim(scene: Scene) -> None:
    scene.clock.advance(31)
    await scene.queue.reclaim()


async def reconcile(scene: Scene) -> None:
    await faults.leak_slot(scene.queue, "org", "o", "ghost")
    lost = scene.leases[0].message
    await faults.delete(scene.queue, "slot", lost.tenant, lost.id)
    await faults.delete(scene.queue, "deadline", lost.tenant, lost.id)
    await faults.wrong_type(scene.queue, "slots", "tenant", "b")
    await scene.queue.reconcile()


async def redrive(scene: Scene) -> None:
    for lease in scene.leases:
        await lease.dead_letter("no")
    for tenant in ("a", "b"):
        await scene.queue.dead_letters.redrive_all(tenant)


async def purge(scene: Scene) -> None:
    for lease in scene.leases:
        await lease.dead_letter("no")
    scene.maybe |= scene.accepted
    scene.accepted -= {(lease.message.tenant, lease.message.id) for lease in scene.leases}
    for tenant in ("a", "b"):
        await scene.queue.dead_letters.purge(tenant)


async def set_limit(scene: Scene) -> None:
    await scene.queue.limits.set("org", "o", 10)


SCENARIOS: list[tuple[str, Act]] = [
    ("enqueue", enqueue),
    ("claim", claim),
    ("settle", complete),
    ("settle", fail),
    ("settle", release),
    ("settle", dead_letter),
    ("extend", extend),
    ("promote", promote),
    ("reclaim", reclaim),
    ("reconcile_group", reconcile),
    ("reconcile_leases", reconcile),
    ("reconcile_open", reconcile),
    ("redrive", redrive),
    ("purge_dead", purge),
    ("set_limit", set_limit),
]


async def recovered(scene: Scene) -> None:
    """The maintenance passes, then everything that is left is worked off."""
    await scene.queue.reconcile()
    scene.clock.advance(60)
    await scene.queue.reclaim()
    await scene.queue.reconcile()
    for _ in range(6):  # retries come due one after another
        for message in await drain(scene.queue):
            assert (message.tenant, message.id) not in scene.ended, (
                f"{message.id} ran again after it was done"
            )
            scene.ended.add((message.tenant, message.id))
        scene.clock.advance(4000)
    for tenant in ("a", "b", "c", "d"):
        items, _ = await scene.queue.dead_letters.list(tenant)
        scene.ended |= {(tenant, item.message.id) for item in items}
        await scene.queue.dead_letters.purge(tenant)


async def outcome_of(scene: Scene, act: Act, fault: Cut) -> str:
    with cut(scene.queue, fault):
        try:
            await act(scene)
        except FairQueueError as error:
            return f"raised {error}"
    return "went on"


@pytest.mark.parametrize(("script", "act"), SCENARIOS, ids=lambda value: getattr(value, "__name__", value))
async def test_no_cut_loses_wedges_or_doubles(
    make_queue: MakeQueue, clock: ManualClock, namespace: str, script: str, act: Act
) -> None:
    problems = []
    for k in range(1, MOST_COMMANDS):
        queue = await make_queue(limits=LIMITS, name=f"{namespace}-{k}")
        scene = await prepared(queue, clock)
        fault = Cut(script, k, ERRORS[k % len(ERRORS)])
        outcome = await outcome_of(scene, act, fault)
        assert fault.called
        if not await fault.reached(queue):
            break
        scene.end(
            *(lease for lease in scene.leases if (made := lease._held.settlement) and made.outcome == "done")
        )
        try:
            await recovered(scene)
            lost = scene.accepted - scene.ended
            assert not lost, f"lost: {sorted(lost)}"
            await assert_whole(queue)
        except AssertionError as problem:
            problems.append(f"{script} cut at command {k} ({outcome}): {problem}")
    assert k > 2, "the script was never cut"
    note("commands", script=script, scenario=act.__name__, faults=k - 1, problems=len(problems))
    assert not problems, f"{len(problems)} of {k - 1} cuts:\n" + "\n".join(problems)
