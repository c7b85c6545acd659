"""The acts of maintenance, of settings, and of reads."""

from __future__ import annotations

from typing import Any

from fairqueue import Limit
from fairqueue._engine.keys import join
from fairqueue._engine.settings import defaults
from fairqueue.limits import to_settings
from fairqueue.testing import faults
from tests.engine.tools import lane, raw
from tests.faults.acts import act
from tests.faults.acts_settle import dead_letter
from tests.faults.crowds import and_then, woken, wrong_numbers
from tests.faults.scenes import Scene, Step, prepared

# --- settings ------------------------------------------------------------------------------------------------------


@act("configure")
async def configure(scene: Scene) -> None:
    declared, engine = {"scheduler": "fifo", "quantum": "5.0", "max_crashes": "7"}, scene.queue._engine
    stream = engine.settle_streams.take()
    await scene.run(engine.calls.configure(stream, "me", declared, [("tenant", 3), ("org", None)]))


async def _declare_limits(scene: Scene) -> None:
    limits = [
        Limit("tenant", default=4),
        Limit("org", default=5, key="org"),
        Limit("room", default=1, key="room"),
    ]
    engine = scene.queue._engine
    call = engine.calls.configure(
        engine.settle_streams.take(), "me", {"limits": to_settings(limits)}, defaults(limits)
    )
    await scene.run(call)


async def _settings_lost(scene: Scene) -> None:
    await prepared(scene)
    await raw(scene.queue, "DEL", "settings")
    await raw(scene.queue, "DEL", "counters")


@act("configure", given=_settings_lost, again=_declare_limits)
async def configure_what_was_lost(scene: Scene) -> None:
    """A client that is refused declares again."""
    await _declare_limits(scene)


async def _settings_of_another_type(scene: Scene) -> None:
    await prepared(scene)
    await faults.wrong_type(scene.queue, "settings")


@act("configure", given=_settings_of_another_type, again=_declare_limits)
async def configure_what_cannot_be_read(scene: Scene) -> None:
    await _declare_limits(scene)


@act("mend_settings")
async def mend_settings(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.mend_settings([("scheduler", "fair", "fifo")]))
    await scene.run(scene.queue._engine.calls.mend_settings([("scheduler", "fifo", "fair")]))


@act("retag")
async def retag(scene: Scene) -> None:
    for cursor in ("ring0", "blocked0", "groups0", "pool0"):
        await scene.run(scene.queue._engine.calls.retag("default", cursor))


@act("configure", again=_declare_limits)
async def configure_limits(scene: Scene) -> None:
    """Other limits than before: whoever waits and fits is to be woken. A client that is refused declares them again."""
    await _declare_limits(scene)


def retags(cursor: str) -> None:
    """Each page of it is a call."""

    async def retag_page(scene: Scene) -> None:
        await scene.run(scene.queue._engine.calls.retag("default", cursor))

    retag_page.__name__ = f"retag_{cursor}"
    act("retag")(retag_page)


for page in ("blocked0", "groups0", "pool0"):
    retags(page)


# --- maintenance ---------------------------------------------------------------------------------------------------


async def damaged(scene: Scene) -> None:
    await faults.leak_slot(scene.queue, "org", "o", "ghost")
    lost = scene.leases[0].message
    await faults.delete(scene.queue, "slot", lost.tenant, lost.id)
    await faults.delete(scene.queue, "deadline", lost.tenant, lost.id)
    await faults.wrong_type(scene.queue, "slots", "tenant", "b")
    await raw(
        scene.queue, "HSET", "stopped", args=(join("a", "default", "default", "tenant", "a", "org", "o"), 1)
    )
    await raw(scene.queue, "SADD", "dead_tenants", args=("nobody",))
    await raw(scene.queue, "HSET", "vtime", args=(join("p", "nowhere"), 5))


async def _damaged(scene: Scene) -> None:
    await prepared(scene)
    await damaged(scene)


@act("reconcile_group", "reconcile_leases", "reconcile_open", "tidy", "recount", given=_damaged)
async def reconcile(scene: Scene) -> None:
    await scene.queue.reconcile()


async def _damaged_all_over(scene: Scene) -> None:
    await prepared(scene)
    await dead_letter(scene)
    await scene.take(1)
    await damaged(scene)
    await raw(scene.queue, "HSET", "body", args=(join("a", "none"), "0:1"))
    await raw(scene.queue, "ZADD", "dead", "a", args=(99, "none"))
    await raw(scene.queue, "SADD", "doubtful", args=(join("a", "1"),))
    await raw(scene.queue, "HINCRBY", "totals", args=("r", 3))


@act("audit_types", "audit_numbers", "audit_heads", "audit_leases", "audit_orphans", given=_damaged_all_over)
@act("audit_group", "audit_pool", "audit_lane", "audit_dead", "pool_lanes", given=_damaged_all_over)
async def audit(scene: Scene) -> None:
    await scene.queue.audit(fix=True)


MARK = join("nobody", "1").encode()


async def _letters_of_another_type(scene: Scene) -> None:
    await prepared(scene)
    await raw(scene.queue, "SADD", "dead_tenants", args=("nobody",))
    await raw(scene.queue, "SADD", "doubtful", args=(MARK,))
    await faults.wrong_type(scene.queue, "dead", "nobody")


@act("audit_dead", "looked_through", given=_letters_of_another_type)
async def read_letters_of_another_type(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.audit("dead", "0", fix=True, of="nobody"))
    await scene.run(scene.queue._engine.calls.looked_through(marks=[MARK]))


async def _lists_destroyed(scene: Scene) -> None:
    """Dead letters and a lane that takes turns are found by their messages alone."""
    await prepared(scene)
    await dead_letter(scene)
    await scene.add("d", "d1", "d2", org=None)
    await faults.wrong_type(scene.queue, "dead", "a")
    await raw(scene.queue, "SET", "ring", "t", "default", "d", args=("not what it was",))
    await scene.queue._engine.run(scene.queue._engine.calls.tidy("s0"))
    await raw(scene.queue, "HSET", "settings", args=("to_rebuild", "1"))


@act("tidy", "audit_dead", "audit_heads", "looked_through", "recount", given=_lists_destroyed)
async def reconcile_what_was_destroyed(scene: Scene) -> None:
    await scene.queue.reconcile()


async def worse(scene: Scene) -> None:
    """All that the passes can mend, each in a place of its own."""
    await damaged(scene)
    await scene.add("d", "d1", "d2", org=None)
    await scene.add("e", "e1", org=None)
    await scene.add("f", "f1", org=None, delay=5)
    one = scene.leases[1].message
    await raw(scene.queue, "HSET", "leases", args=(join(one.tenant, one.id), "rubbish"))
    await raw(scene.queue, "ZADD", "ring", "t", "default", "d", args=(7, lane("x")))
    await raw(scene.queue, "ZADD", "lane", lane("d", ("tenant", "d")), args=(7, join("d", "none")))
    await raw(scene.queue, "ZREM", "lane", lane("d", ("tenant", "d")), args=(join("d", "d2"),))
    await raw(scene.queue, "ZREM", "ring", "t", "default", "e", args=(lane("e", ("tenant", "e")),))
    await raw(scene.queue, "DEL", "delayed")
    await raw(scene.queue, "ZADD", "delayed", args=(5, join("d", "d1")))
    await raw(scene.queue, "ZADD", "deadlines", args=(5, join("d", "d1")))
    await raw(scene.queue, "HSET", "counters", args=("dead", "rubbish", "seq", 1))
    await raw(scene.queue, "HSET", "present", args=("nobody", 3))
    await faults.wrong_type(scene.queue, "tenant", "d")
    await raw(scene.queue, "HSET", "settings", args=("to_rebuild", "1"))


async def worse_yet(scene: Scene) -> None:
    """A lane and dead letters hold another type."""
    await worse(scene)
    await faults.wrong_type(scene.queue, "lane", "e", "default")
    await raw(scene.queue, "HSET", "stopped", args=(lane("e", ("tenant", "e")), 1))


async def nobody_takes_turns(scene: Scene) -> None:
    """The ring of the pool was evicted."""
    await prepared(scene)
    await raw(scene.queue, "DEL", "ring", "p", "default")
    await raw(scene.queue, "DEL", "waiting", "default", "org", "o", "a")


def step(script: str, *args: Any, given: Step = worse) -> None:
    """One call of the script, with these arguments; what the act leaves is mended by the doctor."""

    async def call(scene: Scene) -> None:
        build = getattr(
            scene.queue._engine.calls, script.partition("_")[0] if script.startswith("audit") else script
        )
        await scene.run(build(*args))

    async def doctor(scene: Scene) -> None:
        await scene.queue.audit(fix=True)

    words = [script, *(str(word).replace("\x1f", "_") for word in args), given.__name__]  # type: ignore[attr-defined]
    call.__name__ = "_".join(words)
    act(script, given=and_then(prepared, given) if given in (worse, worse_yet) else given, after=doctor)(call)


async def lost_list(scene: Scene) -> None:
    """The lists of those who wait were evicted."""
    await prepared(scene)
    await scene.take(3)
    await raw(scene.queue, "DEL", "waiting", "default", "org", "o", "b")
    await raw(scene.queue, "DEL", "waiting", "default", "org", "o", "a")


async def dead_and_bare(scene: Scene) -> None:
    """Dead letters that are not listed, payloads that are gone, a group that is not registered, an old lease record."""
    await prepared(scene)
    await scene.add("d", "d1", "d2", org=None)
    await scene.add("f", "f1", org=None, delay=5)
    scene.may_be_gone(("d", "d1"), ("f", "f1"))
    for tenant, id_ in (("d", "d1"), ("f", "f1")):
        await faults.delete(scene.queue, "body", tenant, id_)
    leases = await raw(scene.queue, "HGETALL", "leases")
    last = scene.leases.pop()
    await last.dead_letter("no")
    await raw(scene.queue, "HSET", "leases", args=[word for pair in leases.items() for word in pair])
    await raw(scene.queue, "ZADD", "deadlines", args=(0, join(last.message.tenant, last.message.id)))
    await faults.wrong_type(scene.queue, "dead", last.message.tenant)
    await raw(scene.queue, "SREM", "groups", args=(join("org", "o"),))


ORG, TENANT = join("org", "o"), join("tenant", "b")
D, E = lane("d", ("tenant", "d")), lane("e", ("tenant", "e"))

step("reconcile_group", ORG, "0")
step("reconcile_group", TENANT, "0")
step("reconcile_group", ORG, "0", given=nobody_takes_turns)
step("reconcile_leases", "0", 30_000)
for cursor in ("s0", "v0", "d0"):
    step("tidy", cursor)
step("tidy", "s0", given=nobody_takes_turns)
step("tidy", "d0", given=dead_and_bare)
step("recount", True, 2000)
for cursor in ("b0", "d0", "t0", "n0", "s0"):
    step("audit_orphans", "orphans", cursor, True, given=worse_yet)
step("audit_heads", "heads", "0", True)
step("audit_heads", "heads", "0", True, given=worse_yet)
step("audit_leases", "leases", "0", True)
step("audit_group", "group", "0", True, ORG)
step("audit_group", "group", "0", True, TENANT)
step("audit_pool", "pool", "0", True, "default")
step("audit_lane", "lane", "0", True, D)
step("audit_lane", "lane", "0", True, E, given=worse_yet)
step("reconcile_group", ORG, "0", given=lost_list)
step("audit_heads", "heads", "0", True, given=dead_and_bare)
step("audit_leases", "leases", "0", True, given=dead_and_bare)
WRONG = and_then(woken, wrong_numbers)
for cursor in ("c0", "t0", "p0", "l0", "w0", "b0", "v0"):
    step("audit_numbers", "numbers", cursor, True, given=WRONG)
step("audit_group", "group", "0", True, join("org", "p"), given=WRONG)
for pool in ("default", "nowhere"):
    step("audit_pool", "pool", "0", True, pool, given=WRONG)
step("pool_lanes", "default", "b0")
step("pool_page", "default", "b0")


async def _doctor(scene: Scene) -> None:
    await scene.queue.audit(fix=True)


@act("audit_types", after=_doctor)
async def audit_wrong_types(scene: Scene) -> None:
    await faults.wrong_type(scene.queue, "groups")
    await scene.queue.audit(fix=True)


async def _all_done(scene: Scene) -> None:
    """All work is done, and a key was left."""
    await prepared(scene)
    scene.clock.advance(6)
    leases = scene.give_up()
    while leases:
        scene.end(*leases)
        await scene.queue.complete_many(leases)
        leases = await scene.queue.claim(10)
    await raw(scene.queue, "HSET", "dirty", args=(join("tenant", "gone"), "dirty"))


async def _idle_pool(scene: Scene) -> None:
    await _all_done(scene)
    await raw(scene.queue, "SADD", "pools", args=("default",))
    await raw(scene.queue, "SADD", "blocked", "default", args=("nobody",))


step("tidy", "s0", given=_idle_pool)


async def _empty_lane_waits(scene: Scene) -> None:
    """Of a tenant that has no messages: a script was cut as its last one left."""
    await prepared(scene)
    await raw(scene.queue, "HSET", "parked", "default", "x", args=(lane("x", ("tenant", "x")), ORG))
    await raw(scene.queue, "SADD", "blocked", "default", args=("x",))


step("tidy", "s0", given=_empty_lane_waits)


async def _moved_to_later(scene: Scene) -> None:
    await prepared(scene)
    (late, *_) = await raw(scene.queue, "ZRANGE", "delayed", args=(0, 0))
    await raw(scene.queue, "ZADD", "delayed", args=("inf", late))


@act("tidy", given=_moved_to_later)
async def mend_due_times(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.tidy("s0"))


async def _names_out_of_order(scene: Scene) -> None:
    """One of a message that is not delayed; one that is has none."""
    await prepared(scene)
    await scene.add("d", "d1", "d2", delay=5)
    await raw(scene.queue, "ZADD", "delayed_names", args=(0, join("a", "a1")))
    await raw(scene.queue, "ZREM", "delayed_names", args=(join("d", "d1"), join("d", "d2")))


@act("tidy", given=_names_out_of_order)
async def strike_names(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.tidy("s0"))


step("audit_heads", "heads", "0", True, given=_names_out_of_order)
step("audit_orphans", "orphans", "a0", True, given=_names_out_of_order)


@act("audit_clean", given=_all_done)
async def audit_when_empty(scene: Scene) -> None:
    await scene.queue.audit(fix=True)


async def _alive(scene: Scene) -> None:
    calls = scene.queue._engine.calls
    await scene.run(calls.beat("worker", '{"host": "h"}', 60_000))
    await scene.run(calls.lock("duty", "me", 1000))


async def _locked_for_ever(scene: Scene) -> None:
    await raw(scene.queue, "SET", "lock", "duty", args=("gone",))


@act("lock", given=_locked_for_ever)
async def lock_of_nobody(scene: Scene) -> None:
    assert await scene.run(scene.queue._engine.calls.lock("duty", "me", 1000))
    await scene.run(scene.queue._engine.calls.lock("duty", "me", 0))


@act("beat", "lock", given=_alive)
async def last_signs_of_life(scene: Scene) -> None:
    calls = scene.queue._engine.calls
    await scene.run(calls.lock("duty", "me", 0))
    await scene.run(calls.beat("worker", "", 60_000))


@act("beat", "lock", "ring_bell")
async def signs_of_life(scene: Scene) -> None:
    calls = scene.queue._engine.calls
    await scene.run(calls.beat("worker", '{"host": "h"}', 60_000))
    await scene.run(calls.lock("duty", "me", 1000))
    await scene.run(calls.ring_bell(["default"]))
    await scene.run(calls.lock("duty", "me", 0))
    await scene.run(calls.beat("worker", "", 60_000))


# --- reads ---------------------------------------------------------------------------------------------------------


@act("get", "group_state", "tenant_state", "totals", "lanes", "pool_page")
async def look(scene: Scene) -> None:
    await scene.run(scene.queue._engine.calls.get([("a", "a1"), ("a", "a4"), ("c", "later")]))
    await scene.queue.limits.get("tenant", "a")
    await scene.queue.stats("a")
    await scene.queue.stats()
    _ = [state async for state in scene.queue.queues("a")]


async def _promised(scene: Scene) -> None:
    """A slot that came free is promised to one of two that wait for it; others have turns before them."""
    await prepared(scene)
    await scene.add("p", "p1", org=None, room="only")
    (holder,) = await scene.take(1)
    await scene.add("q", "q1", "q2", org=None, room="only")
    await scene.add("r", "r1", org=None, room="only")
    await scene.add("s", "s1", org=None, room="only")
    await scene.take(9)
    await scene.done(holder)


def explains(tenant: str, id_: str) -> None:
    """An act for one message: of each state, and of each side of a promise."""

    async def explain(scene: Scene) -> None:
        await scene.run(scene.queue._engine.calls.explain(tenant, id_))

    explain.__name__ = f"explain_{id_}"
    act("explain", given=_promised)(explain)


for named in (("a", "a1"), ("a", "a4"), ("c", "later"), ("q", "q2"), ("s", "s1")):
    explains(*named)
