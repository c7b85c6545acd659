"""Rule 6 of slots, among the dead letters: what is in doubt stays so until it was looked at, all of it."""

from __future__ import annotations

import contextlib

from fairqueue import FairQueueError, RetryPolicy
from fairqueue._engine.keys import key
from fairqueue.testing import assert_whole
from tests.conftest import MakeQueue
from tests.engine.tools import put, raw, state
from tests.guards.mutate import without
from tests.guards.proof import guard
from tests.guards.scenario import Queue, told
from tests.support.cuts import Cut, cut

PLACES = "includes/places.lua"


async def buried(make_queue: MakeQueue, *ids: str) -> Queue:
    """A queue whose messages die of their first failure, and these letters of tenant a."""
    queue = await make_queue(retry=RetryPolicy.none())
    await put(queue, "a", *ids)
    await queue.fail_many(await queue.claim(1000), "no")
    return queue


async def marks(queue: Queue) -> set[bytes]:
    return set(await queue._engine.command("SMEMBERS", key(queue._engine.calls.root, "doubtful")))


@guard(
    "slots 6",
    "lists that are to be written again are, whoever is cut on the way",
    without(
        "the sign as long as it is not done",
        "audit_heads.lua",
        "local checks = {}\n",
        "local checks = {}\ncall('HDEL', k.settings, 'to_rebuild')\n",
    ),
    without(
        "the sign before a list is taken away",
        "tidy.lua",
        "    to_be_rebuilt() -- first: letters that are on no list are found by their headers alone\n",
        "",
    ),
)
async def test_a_walk_that_was_cut_is_made_again(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue, "1", "2")
    await put(queue, "b", "3")
    for k in range(1, 14):
        for script in ("tidy", "audit_dead"):
            await raw(queue, "SET", "dead", "a", args=("not what it was",))
            await reconciled_again(queue, script, k)
        assert await told(queue.dead_letters.count("a")) == 2
        await raw(queue, "SET", "ring", "t", "default", "b", args=("not what it was",))
        assert await queue.claim() == []
        await reconciled_again(queue, "audit_heads", k)
        leases = await queue.claim()
        assert [lease.message.id for lease in leases] == ["3"]
        await leases[0].release()
        await assert_whole(queue)


async def reconciled_again(queue: Queue, script: str, k: int) -> None:
    """After a pass that ended before the k-th command of this script."""
    with cut(queue, Cut(script, k, ends=True)), contextlib.suppress(FairQueueError):
        await queue.reconcile()
    await queue.reconcile()


@guard(
    "slots 6",
    "letters whose list refused one command are those that are dead again after a reconcile",
    without(
        "the doubt",
        PLACES,
        "    if failed(try('ZREM', k.dead(tenant), unpack(these))) then to_be_rebuilt() end\n",
        "    try('ZREM', k.dead(tenant), unpack(these))\n",
    ),
)
async def test_letters_are_those_that_are_dead_whatever_their_list_refused(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue, *map(str, range(60)))
    ids = list(map(str, range(60)))
    for script, act in (("redrive", queue.dead_letters.redrive), ("purge_dead", queue.dead_letters.purge)):
        reached, k = True, 0
        while reached:
            k += 1
            fault = Cut(script, k)
            with cut(queue, fault), contextlib.suppress(FairQueueError):
                await act("a", ids.pop())
            reached = await fault.reached(queue)
            await queue.reconcile()
            dead = [id_ for id_ in map(str, range(60)) if await state(queue, "a", id_) == "dead"]
            assert await queue.dead_letters.count("a") == len(dead), f"{script}, command {k}"
    await queue.complete_many(await queue.claim(1000))
