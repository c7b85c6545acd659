"""K: keys of one script in different cluster slots."""

from __future__ import annotations

import asyncio
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
from tests.engine.tools import put
from tests.support.fixtures import MakeServer
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
    await queue.audit(fix=True)
    await worked_off(queue, clock)


async def look_at_everything(queue: FairQueue[Any]) -> None:
    calls = queue._engine.calls
    await queue._engine.run(calls.beat("worker", '{"host": "h"}', 60_000))
    await queue._engine.run(calls.lock("duty", "me", 1000))
    await queue._engine.run(calls.ring_bell(["default"]))
    await queue._engine.run(calls.retag("default", "pool0"))
    await queue.stats()
    await queue.stats(ODD)
    await queue.get("T", "later")
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
    """As MONITOR shows them. Anyone may see: all keys of a namespace share one hash tag, which comes first."""
    own = make_server(appendonly="no")
    watched = await watch(own, lambda: scenario(make_queue, clock, own.url))
    touched: dict[str, set[bytes]] = defaultdict(set)
    script, first = "", b""
    by_sha = {script.sha.encode(): name for name, script in load_all().items()}
    by_source = {script.source.encode(): name for name, script in load_all().items()}
    for in_script, words in watched:
        if words[0].upper() in (b"EVALSHA", b"EVAL"):
            script, first = by_sha.get(words[1], "") or by_source.get(words[1], "?"), words[3]
            touched[script].add(first)
        elif in_script:
            touched[script] |= keys_of(words)
    assert set(touched) == set(load_all()), "not every script was called"
    assert min(len(keys) for keys in touched.values()) > 1
    with redis.Redis(port=node.port, protocol=2) as client:
        slots = {key: client.cluster("KEYSLOT", key) for keys in touched.values() for key in keys}
    assert len(slots) > 50
    assert set(slots.values()) == {slots[first]}


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


# --- what MONITOR tells --------------------------------------------------------------------------------------------

_LINE = re.compile(rb'^\d+\.\d+ \[\d+ (lua|[^\]]*)\] (".*")$', re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


async def watch(own: Server, work: Any) -> list[tuple[bool, list[bytes]]]:
    """All commands the server executed during the work, and whether a script did."""
    reader, writer = await asyncio.open_connection("127.0.0.1", own.port, limit=1 << 24)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    await work()
    own.command("ECHO", "that was all")
    seen: list[tuple[bool, list[bytes]]] = []
    while not seen or seen[-1][1] != [b"ECHO", b"that was all"]:
        match = _LINE.match((await asyncio.wait_for(reader.readline(), 60))[1:].rstrip(b"\r\n"))
        assert match
        seen.append((match[1] == b"lua", [unescaped(word) for word in _WORD.findall(match[2])]))
    writer.close()
    await writer.wait_closed()
    return seen


def unescaped(word: bytes) -> bytes:
    def one(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code[1:], 16)]) if code[:1] == b"x" else _ESCAPES.get(code, code)

    return re.sub(rb"\\(x[0-9a-f]{2}|.)", one, word, flags=re.DOTALL)


_ALL_KEYS = {b"EXISTS", b"DEL", b"UNLINK"}
_NO_KEY = {b"TIME", b"INFO"}


def keys_of(words: list[bytes]) -> set[bytes]:
    """The keys of a command as scripts use it: the first argument, or all of them."""
    name = words[0].upper()
    if name in _NO_KEY:
        return set()
    return set(words[1:]) if name in _ALL_KEYS else {words[1]}


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
        expected = (0, 0) if name.encode() in _NO_KEY else (1, -1) if name.encode() in _ALL_KEYS else (1, 1)
        assert (info["first_key_pos"], info["last_key_pos"]) == expected, name
