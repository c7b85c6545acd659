"""N: ids and payloads that a careless design takes apart or changes."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairqueue import FairQueue, InvalidMessageError, Limit, NewMessage, PayloadTooLargeError, RetryPolicy
from fairqueue._engine.keys import join
from fairqueue.testing import ManualClock, faults
from tests.conftest import MakeQueue
from tests.engine.tools import held, put
from tests.faults.scale import sized
from tests.support.fixtures import MakeServer
from tests.support.processes import Server
from tests.support.waiting import eventually

CAFE = "caf\u00e9"
GOOD = [
    "a:b", ":", "::", "tenant:x:y", "a b", "a|b", "a,b", "日本", CAFE, unicodedata.normalize("NFD", CAFE),
    "x", "x:items", "a", "a:data", "{a}", "%s",
]  # fmt: skip
REFUSED = ["\n", "\x00", "a\x1fb", "", "x" * 4096, "é" * 257, "\ud800"]


# --- N1 ----------------------------------------------------------------------------------------------------------


async def present(queue: FairQueue[Any], state: str) -> dict[str, int]:
    """How many messages each tenant has in that state; all its others must be none."""
    counts = {}
    for tenant in GOOD:
        stats = await queue.stats(tenant)
        others = {"ready", "delayed", "in_flight", "dead"} - {state}
        assert all(getattr(stats, other) == 0 for other in others), (tenant, stats)
        counts[tenant] = getattr(stats, state)
    return counts


@pytest.mark.case("N1")
async def test_ids_with_separators_stay_apart_through_every_state(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    """Every id for a message of every tenant, in a queue that is named by the next one."""
    queue = await make_queue(
        limits=[Limit("tenant", default=100)], retry=RetryPolicy.fixed(1, max_attempts=3)
    )
    everyone = dict.fromkeys(GOOD, len(GOOD))
    identities = {(tenant, id_): GOOD[(GOOD.index(id_) + 1) % len(GOOD)] for tenant in GOOD for id_ in GOOD}
    await queue.enqueue_many(
        [NewMessage([tenant, id_], tenant=tenant, id=id_, queue=q) for (tenant, id_), q in identities.items()]
    )
    for times in (1, 2):
        assert await present(queue, "ready") == everyone
        leases = await queue.claim(1000)
        messages = [lease.message for lease in leases]
        assert all(message.payload == [message.tenant, message.id] for message in messages)
        assert {(message.tenant, message.id): message.queue for message in messages} == identities
        assert [await held(queue, "tenant", tenant) for tenant in GOOD] == [len(GOOD)] * len(GOOD)
        if times == 1:
            assert set(await queue.fail_many(leases, "no")) == {"retried"}
            assert await present(queue, "delayed") == everyone
            clock.advance(1)
            leases = await queue.claim(1000)
            clock.advance(31)
            assert set((await queue.reclaim()).reclaimed) == set(identities)
            assert await present(queue, "ready") == everyone
            leases = await queue.claim(1000)
        assert {await lease.dead_letter("no use") for lease in leases} == {"dead"}
        assert await present(queue, "dead") == everyone
        for tenant in GOOD:
            letters, _ = await queue.dead_letters.list(tenant)
            assert Counter(letter.message.id for letter in letters) == Counter(GOOD)
            assert await queue.dead_letters.redrive_all(tenant) == len(GOOD)
    assert set(await queue.complete_many(await queue.claim(1000))) == {"done"}


@pytest.mark.case("N1")
@pytest.mark.parametrize("text", REFUSED, ids=ascii)
@pytest.mark.parametrize("name", ["tenant", "queue", "id", "pool"])
async def test_ids_that_cannot_be_kept_are_refused_and_nothing_is_stored(
    make_queue: MakeQueue, name: str, text: str
) -> None:
    queue = await make_queue()
    given = {"tenant": "T", name: text}
    with pytest.raises(ValueError, match=name):
        await queue.enqueue(1, **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidMessageError):
        await queue.enqueue_many([NewMessage(0, tenant="good"), NewMessage(1, **given)])  # type: ignore[arg-type]
    assert (await queue.stats()).totals.enqueued == 0


# --- N2 ----------------------------------------------------------------------------------------------------------

GLOBS = ["*", "acme?", "[x]", "a\\b", "acme1", "x", "anything"]


@pytest.mark.case("N2")
def test_a_namespace_has_no_glob_characters() -> None:
    with pytest.raises(ValueError, match="expected name to be 1 to 64"):
        FairQueue("embedded://", "fq[1]*")


@pytest.mark.case("N2")
async def test_glob_characters_match_nobody_else(make_queue: MakeQueue, namespace: str) -> None:
    limits = [Limit("tenant", default=5)]
    queue = await make_queue(name=f"{namespace}1", limits=limits)
    neighbour = await make_queue(name=f"{namespace}1z", limits=limits)
    for at in (queue, neighbour):
        for tenant in GLOBS:
            await put(at, tenant, "m")
            await faults.leak_slot(at, "tenant", tenant, "ghost")
    freed = (await queue.reconcile()).freed
    assert sorted((slot.tenant, slot.id) for slot in freed) == sorted((tenant, "ghost") for tenant in GLOBS)
    assert [await held(queue, "tenant", tenant) for tenant in GLOBS] == [0] * len(GLOBS)
    assert [await held(neighbour, "tenant", tenant) for tenant in GLOBS] == [1] * len(GLOBS)
    assert len((await neighbour.reconcile()).freed) == len(GLOBS)

    leases = await queue.claim(20)
    for tenant in GLOBS:
        (found,), _ = await queue.messages(tenant, state="in_flight")
        assert found.message.tenant == tenant
    for lease in leases:
        await lease.dead_letter("no use")
    assert await queue.dead_letters.purge("*") == 1
    assert [await queue.dead_letters.count(tenant) for tenant in GLOBS] == [0, *[1] * (len(GLOBS) - 1)]
    assert len(await neighbour.claim(20)) == len(GLOBS)


@pytest.mark.case("N2")
async def test_a_purge_of_a_glob_touches_that_tenant_only(make_queue: MakeQueue, namespace: str) -> None:
    queue, neighbour = await make_queue(name=f"{namespace}1"), await make_queue(name=f"{namespace}1z")
    for at in (queue, neighbour):
        for tenant in GLOBS:
            await put(at, tenant, "m")
            await put(at, tenant, "late", delay=5)
    assert await queue.purge("*") == 2
    assert await queue.cancel("acme?", "m") == "cancelled"
    left = [(await queue.stats(tenant)).ready for tenant in GLOBS]
    assert left == [0, 0, *[1] * (len(GLOBS) - 2)]
    assert (await neighbour.stats()).ready == len(GLOBS)


# --- N3 ----------------------------------------------------------------------------------------------------------

PAYLOAD = {"n": 130775545883395173, "f": 0.1, "e": [], "o": {}, "z": None, "s": "é\u0000", "d": [[], {}]}


@pytest.mark.case("N3")
async def test_a_payload_keeps_its_bytes_through_everything(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(1))
    numbers = ["00123", "1e5", "1307755458833951730"]
    await queue.enqueue_many(
        [NewMessage(PAYLOAD, tenant=id_, id=id_, metadata={"m": [1.0]}) for id_ in numbers]
    )
    first = await bodies(queue, numbers)

    async def unchanged() -> None:
        assert await bodies(queue, numbers) == first

    for outcome in ("fail", "reclaim", "dead_letter", "complete"):
        leases = await queue.claim(5)
        assert sorted(lease.message.id for lease in leases) == sorted(numbers)
        assert all(lease.message.payload == PAYLOAD for lease in leases)
        assert all(lease.message.tenant == lease.message.id for lease in leases)
        assert [type(lease.message.payload["n"]) for lease in leases] == [int] * 3
        await unchanged()
        if outcome == "fail":
            await queue.fail_many(leases, "no")
            clock.advance(1)
        elif outcome == "reclaim":
            clock.advance(31)
            await queue.reclaim()
        elif outcome == "dead_letter":
            for lease in leases:
                await lease.dead_letter("no use")
                (letter,), _ = await queue.dead_letters.list(lease.message.tenant)
                assert first[lease.message.id].endswith(letter.raw)
                assert await queue.dead_letters.redrive_all(lease.message.tenant) == 1
        else:
            assert await queue.complete_many(leases) == ["done"] * 3
            return
        await unchanged()


async def bodies(queue: FairQueue[Any], ids: list[str]) -> dict[str, bytes]:
    where = queue._engine.calls.root + "body"
    return {id_: await queue._engine.command("HGET", where, join(id_, id_)) for id_ in ids}


# --- N4 ----------------------------------------------------------------------------------------------------------

MEGABYTE = 1 << 20


@pytest.mark.case("N4")
async def test_large_payloads_are_gone_when_done_and_never_in_the_way(
    make_queue: MakeQueue, make_server: MakeServer, clock: ManualClock
) -> None:
    """200 of them. Before, there is one: what the server keeps for its clients is there already."""
    own = make_server(appendonly="no")

    def used() -> int:
        own.command("MEMORY", "PURGE")
        return int(own.command("INFO", "memory")["used_memory"])

    async def small(act: Callable[[], Awaitable[object]]) -> None:
        """It moves less than a kilobyte, besides what it costs to measure that."""
        measured = [bytes_moved(own), bytes_moved(own)]
        await act()
        assert bytes_moved(own) - measured[1] - (measured[1] - measured[0]) < 1024, act

    async def scenario(messages: int) -> None:
        for n in range(messages):
            await queue.enqueue("x" * (MEGABYTE - 100), tenant="T", id=f"m{n}")
        in_use.append(used())
        lease, *_ = await queue.claim(2)
        for act in (lease.extend, queue.stats, lambda: queue.limits.get("tenant", "T")):
            await small(act)
        clock.advance(31)
        await small(queue.reclaim)
        while leases := await queue.claim():
            await queue.complete_many(leases)

    in_use: list[int] = []
    queue = await make_queue(url=own.url, limits=[Limit("tenant", default=200)])
    await scenario(1)
    before = used()
    await scenario(sized(200))
    assert in_use[1] > before + sized(200) * MEGABYTE
    await eventually(lambda: used() < before * 1.1, "the memory to be free again")


def bytes_moved(own: Server) -> int:
    """To and from the server, all in all."""
    stats = own.command("INFO", "stats")
    return int(stats["total_net_input_bytes"] + stats["total_net_output_bytes"])


@pytest.mark.case("N4")
async def test_a_payload_that_is_too_large_is_refused_before_anything_is_sent(
    make_queue: MakeQueue, make_server: MakeServer
) -> None:
    own = make_server(appendonly="no")
    queue = await make_queue(url=own.url, max_payload_bytes=MEGABYTE)
    keys, received = own.command("DBSIZE"), own.command("INFO", "stats")["total_net_input_bytes"]
    with pytest.raises(PayloadTooLargeError, match="at most 1,048,576 bytes"):
        await queue.enqueue_many([NewMessage(1, tenant="T"), NewMessage("x" * 2 * MEGABYTE, tenant="T")])
    assert own.command("DBSIZE") == keys
    assert own.command("INFO", "stats")["total_net_input_bytes"] - received < 1024
