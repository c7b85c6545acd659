"""K: keys of one script in different cluster slots."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
import redis

from fairqueue import ConfigurationError, FairQueue, Limit, NewMessage, RetryPolicy
from fairqueue._engine.engine import Engine
from fairqueue._engine.script import load_all
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import put, raw
from tests.support.fixtures import MakeServer
from tests.support.monitor import ALL_KEYS, NO_KEY, calls_of, monitored, slot
from tests.support.processes import Server, free_port

LIMITS = [Limit("tenant", default=2), Limit("org", default=3, key="org")]
ODD = "a}b{c:{}*"


@pytest.fixture
def node(make_server: MakeServer) -> Server:
    """A cluster of one node that owns every slot."""
    node = make_server(cluster_enabled="yes", cluster_port=str(free_port()), appendonly="no")
    node.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    return node


@pytest.mark.case("K1")
async def test_a_cluster_node_is_refused_in_plain_words(node: Server) -> None:
    with pytest.raises(ConfigurationError, match="expected url to name a single server, got a cluster node"):
        async with FairQueue(node.url):
            pass
    assert node.command("DBSIZE") == 0


async def everything(queue: FairQueue[Any], clock: ManualClock) -> None:
    """Every script of the package, on its usual and its rare paths."""
    for tenant in ("T", ODD):
        await queue.enqueue_many(
            [NewMessage(n, tenant=tenant, id=f"{ODD}{n}", queue=ODD, metadata={"org": "o"}) for n in range(4)]
        )
    await put(queue, "T", "later", delay=5)
    await everything_steered(queue)
    done, failed, released, *_ = await queue.claim(9)
    await done.extend()
    await done.complete()
    await failed.fail("no")
    await released.release(1)
    clock.advance(31)
    await queue._engine.run(queue._engine.calls.promote(10))
    await queue.reclaim()
    await queue.limits.set("tenant", "T", 0)
    await queue.limits.set("tenant", "T", 3)
    await queue.limits.reset("tenant", "T")
    for lease in await queue.claim(3):
        await lease.dead_letter("no use")
    await queue.dead_letters.list("T")
    assert (await queue.audit()).ok
    for tenant in ("T", ODD):
        await queue.dead_letters.redrive_all(tenant)
    for lease in await queue.claim(1):
        await lease.dead_letter("no use")
    async for tenant in queue.dead_letters.tenants():
        await queue.dead_letters.purge(tenant)
    await faults.leak_slot(queue, "org", "o", "ghost")
    await faults.wrong_type(queue, "slots", "tenant", "T")
    await faults.wrong_type(queue, "lane", "T", ODD)
    await queue.claim(5)
    await queue.reconcile()
    await look_at_everything(queue)
    await damaged_settings_are_mended(queue)
    await queue.audit(fix=True)
    await worked_off(queue, clock)


async def everything_steered(queue: FairQueue[Any]) -> None:
    """What operators do; afterwards all is as it was before."""
    await queue.pause(tenant="T", by="ops")
    await queue.resume(tenant="T")
    await queue.tenants.set_weight("T", 2)
    await queue.tenants.set_weight("T", 1)
    await queue.limits.set("tenant", "T", 2, guaranteed=1)
    assert (await queue.audit()).ok
    await queue.limits.reset("tenant", "T")
    for rate, backlog in ((1000, 50), (None, None)):
        await queue.limits.set_rate("org", "o", rate, 1, 500)
        await queue.limits.set_backlog("T", backlog)
    await queue.enqueue_many([NewMessage(n, tenant="gone", id=f"{n}", queue=ODD) for n in range(3)])
    assert await queue.cancel("gone", "0") == "cancelled"
    assert await queue.purge("gone", ODD) == 2


async def damaged_settings_are_mended(queue: FairQueue[Any]) -> None:
    """A field that cannot be read, and the sign that lists are to be written again."""
    await raw(queue, "HSET", "settings", args=("max_crashes", "rubbish"))
    await queue.audit(fix=True)
    await raw(queue, "HSET", "settings", args=("to_rebuild", "1"))
    await queue.reconcile()


async def look_at_everything(queue: FairQueue[Any]) -> None:
    calls = queue._engine.calls
    await queue._engine.run(calls.beat("worker", '{"host": "h"}', 60_000))
    await queue._engine.run(calls.lock("duty", "me", 1000))
    await queue._engine.run(calls.ring_bell(["default"]))
    await queue._engine.run(calls.retag("default", "pool0"))
    await queue.stats()
    await queue.stats(ODD)
    await queue.get("T", "later")
    await queue.explain("T", "later")
    await queue.fairness()
    await queue.messages(ODD)
    _ = [state async for state in queue.queues(ODD)]
    _ = [state async for state in queue.limits.list("tenant")]


async def worked_off(queue: FairQueue[Any], clock: ManualClock) -> None:
    """The lane that was destroyed is mended, and all is done."""
    for _ in range(3):
        clock.advance(60)
        await queue.reclaim()
        await queue.complete_many(await queue.claim(20))
    root = queue._engine.calls.root
    for name in await queue._engine.command("KEYS", root.replace("{", "\\{") + "lane:*"):
        if await queue._engine.command("TYPE", name) == b"string":
            await queue._engine.command("DEL", name)
    clock.advance(60)
    await queue.audit(fix=True)
    while leases := await queue.claim(20):
        await queue.complete_many(leases)


@pytest.mark.case("K1")
async def test_every_key_a_script_touches_has_the_slot_of_its_first(
    make_queue: MakeQueue, clock: ManualClock, make_server: MakeServer, node: Server
) -> None:
    """As MONITOR shows them. Anyone may see: all keys of a namespace share one hash tag, which comes first.

    So it is with every act of test_every_command.py, which looks at them itself.
    """
    own = make_server(appendonly="no")
    async with monitored(own.url) as monitor:
        await scenario(make_queue, clock, own.url)
        seen = await monitor.seen()
    touched: dict[str, set[bytes]] = defaultdict(set)
    for call in calls_of(seen):
        touched[call.script] |= {call.first, *call.keys}
    assert set(touched) == set(load_all()), "not every script was called"
    assert min(len(keys) for keys in touched.values()) > 1
    with redis.Redis(port=node.port, protocol=2) as client:
        slots = {key: client.cluster("KEYSLOT", key) for keys in touched.values() for key in keys}
    assert len(slots) > 50
    assert len(set(slots.values())) == 1
    assert slots == {key: slot(key) for key in slots}, "the acts of the other tests are judged by our own sum"


async def scenario(make_queue: MakeQueue, clock: ManualClock, url: str) -> None:
    queue = await make_queue(url=url, limits=LIMITS, retry=RetryPolicy(max_crashes=2))
    await everything(queue, clock)


@pytest.mark.case("K1")
async def test_a_cluster_finds_no_fault_with_any_script(
    make_queue: MakeQueue, clock: ManualClock, node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusing to start is all that keeps a cluster away: here the check is off, and the server itself objects
    to a key of another slot."""
    monkeypatch.setattr(Engine, "_check_server", accept_any)
    await scenario(make_queue, clock, node.url)
    assert (await (await make_queue(url=node.url)).stats()).totals.completed > 5


async def accept_any(_: Engine) -> None: ...


@pytest.mark.case("K1")
async def test_the_commands_of_the_scripts_have_their_keys_where_this_test_looks(
    make_server: MakeServer,
) -> None:
    own = make_server(appendonly="no")
    used = set()
    for script in load_all().values():
        calls = re.findall(r"\b(?:call|try|redis\.p?call)\('([A-Z]+)'|\bmany\('([A-Z]+)'", script.source)
        used |= {name for pair in calls for name in pair if name}
    assert len(used) > 20
    for name in sorted(used):
        info = own.command("COMMAND", "INFO", name)[name.lower()]
        expected = (0, 0) if name.encode() in NO_KEY else (1, -1) if name.encode() in ALL_KEYS else (1, 1)
        assert (info["first_key_pos"], info["last_key_pos"]) == expected, name
