"""A process that uses a queue, forks, and uses it on both sides. Each scenario prints what it saw as JSON."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import redis

from fairqueue import FairQueue, SyncFairQueue
from tests.support.waiting import eventually, eventually_sync

PATIENCE = (
    40  # seconds after which each side says where it hangs, and ends: nobody else would end a forked child
)

SCENARIOS: dict[str, Callable[[str, str], dict[str, Any]]] = {}


def scenario(run: Callable[[str, str], dict[str, Any]]) -> Callable[[str, str], dict[str, Any]]:
    SCENARIOS[run.__name__] = run
    return run


def in_child(work: Callable[[], Any]) -> Callable[[], Any]:
    """Forks; the child does the work, and what it returns is what the returned function waits for."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE)
        try:
            answer = json.dumps(work())
        except BaseException:  # noqa: BLE001 - told to the parent
            answer = json.dumps({"raised": traceback.format_exc()})
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)

    def result() -> Any:
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        assert text, "the child said nothing"
        return json.loads(text)

    return result


@scenario
def sync_on_both_sides(url: str, name: str) -> dict[str, Any]:
    """Both sides send and take, at the same time, with the object made and used before the fork."""
    queue: SyncFairQueue[Any] = SyncFairQueue(url, name)
    queue.enqueue("before", tenant="parent")

    def use(tenant: str) -> list[str]:
        handled = []
        for n in range(30):
            queue.enqueue(n, tenant=tenant)
            for lease in queue.claim(1):
                handled.append(lease.message.id)
                lease.complete()
        return handled

    child = in_child(lambda: use("child"))
    parents = use("parent")
    return {"parent": parents, "child": child()}


def _blocked(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        return bool(client.info("clients")["blocked_clients"])


@scenario
def parent_waits_in_a_claim(url: str, name: str) -> dict[str, Any]:
    """The fork happens while a thread of the parent waits for work; the child drops all that it inherited."""
    queue: SyncFairQueue[Any] = SyncFairQueue(url, name)
    queue.connect()
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.extend(queue.claim(1, wait=20)))
    waiting.start()
    eventually_sync(lambda: _blocked(url), "the claim to wait at the server")

    def use() -> bool:
        created = queue.enqueue("from the child", tenant="child").created
        gc.collect()
        time.sleep(0.2)
        return created

    created = in_child(use)()
    began = time.monotonic()
    waiting.join(15)
    queue.enqueue("from the parent", tenant="parent")
    leases = queue.claim(1)
    return {
        "created": created,
        "got": [lease.message.payload for lease in got],
        "then": [lease.message.payload for lease in leases],
        "outcomes": [lease.complete() for lease in got + leases],
        "span": [began, time.monotonic()],
    }


@scenario
def async_on_both_sides(url: str, name: str) -> dict[str, Any]:
    """The fork happens in the middle of an event loop, which goes on in the parent with the same connections."""

    async def use(queue: FairQueue[Any], tenant: str, rounds: int) -> list[str]:
        handled = []
        for n in range(rounds):
            await queue.enqueue(n, tenant=tenant)
            for lease in await queue.claim(1):
                handled.append(lease.message.id)
                await lease.complete()
        gc.collect()
        return handled

    async def child_work(queue: FairQueue[Any]) -> list[str]:
        handled = await use(queue, "child", 20)
        await queue.close()
        return handled

    async def main() -> dict[str, Any]:
        queue: FairQueue[Any] = FairQueue(url, name)
        await queue.connect()
        waiting = asyncio.ensure_future(queue.claim(1, wait=20, pools=["other"]))
        await asyncio.gather(*(queue.stats() for _ in range(8)))
        child = in_child(lambda: asyncio.run(child_work(queue)))
        began = time.monotonic()
        parents = await use(queue, "parent", 20)
        childs = await asyncio.to_thread(child)
        parents += await use(queue, "parent", 5)
        await queue.enqueue("woken", tenant="parent", pool="other")
        (lease,) = await waiting
        span = [began, time.monotonic()]
        await lease.complete()
        await queue.close()
        return {"parent": parents, "child": childs, "woken": lease.message.payload, "span": span}

    return asyncio.run(main())


@scenario
def child_closes_at_once(url: str, name: str) -> dict[str, Any]:
    """A child that closes what it inherited, without having used it, ends nothing of the parent's."""

    async def main() -> dict[str, Any]:
        queue: FairQueue[Any] = FairQueue(url, name)
        waiting = asyncio.ensure_future(queue.claim(1, wait=20))
        await eventually(lambda: queue._engine._bells, "the claim to wait")
        child = in_child(lambda: asyncio.run(queue.close()))
        closed = await asyncio.to_thread(child)
        began = time.monotonic()
        await queue.enqueue("still here", tenant="parent")
        (lease,) = await waiting
        span = [began, time.monotonic()]
        await lease.complete()
        await queue.close()
        return {"closed": closed, "got": lease.message.payload, "span": span}

    return asyncio.run(main())


@scenario
def child_ends_in_the_ordinary_way(url: str, name: str) -> dict[str, Any]:
    """Prefork servers end their children with sys.exit: what the interpreter then tidies up is not the parent's."""
    queue: SyncFairQueue[Any] = SyncFairQueue(url, name)
    queue.connect()
    pid = os.fork()
    if pid == 0:
        queue.enqueue("from the child", tenant="child")
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    began = time.monotonic()
    (lease,) = queue.claim(1)
    outcome = lease.complete()
    return {"status": status, "outcome": outcome, "span": [began, time.monotonic()]}


@scenario
def leases_stay_with_their_side(url: str, name: str) -> dict[str, Any]:
    """A child never gets what a claim of the parent took, and its own claims do not replay the parent's."""
    queue: SyncFairQueue[Any] = SyncFairQueue(url, name)
    for n in range(4):
        queue.enqueue(n, tenant="a", id=f"m{n}")
    parents = [lease.message.id for lease in queue.claim(2)]
    child = in_child(lambda: [lease.message.id for lease in queue.claim(4)])
    return {"parent": parents, "child": child(), "again": [lease.message.id for lease in queue.claim(4)]}


@scenario
def embedded_server_stays_for_the_child(url: str, name: str) -> dict[str, Any]:
    """The server of a path lives as long as any process uses it: the child's claim on it is its own."""
    queue: SyncFairQueue[Any] = SyncFairQueue(url, name)
    queue.enqueue(0, tenant="a")
    told_reading, told_writing = os.pipe()

    def use() -> dict[str, Any]:
        queue.enqueue(1, tenant="a")
        os.read(told_reading, 1)  # the parent has closed
        server = queue._queue._engine._server
        held = server is not None and server._claim.held
        payloads = [lease.message.payload for lease in queue.claim(2)]
        queue.close()
        return {"held": held, "payloads": payloads}

    child = in_child(use)
    queue.close()
    os.write(told_writing, b".")
    return {"child": child()}


if __name__ == "__main__":
    faulthandler.register(
        signal.SIGALRM, chain=True
    )  # on both sides of a fork: a watchdog thread would be on one
    signal.alarm(PATIENCE + 10)
    print(json.dumps(SCENARIOS[sys.argv[1]](sys.argv[2], sys.argv[3])))
