"""What a script that was cut, or a hand, leaves among the dead letters: reconcile makes them those that are dead again."""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import FairQueue, MessageNotFoundError, RetryPolicy
from fairqueue._engine.keys import join, key
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import ManualClock, assert_whole
from tests.conftest import MakeQueue
from tests.engine.tools import one, put, raw, state
from tests.support.cuts import Cut, cut


async def buried(make_queue: MakeQueue, *ids: str) -> FairQueue[Any]:
    """A queue whose messages die of their first failure, and these letters of tenant a."""
    queue = await make_queue(retry=RetryPolicy.none())
    if ids:
        await put(queue, "a", *ids)
        assert await queue.fail_many(await queue.claim(1000), "no") == ["dead"] * len(ids)
    return queue


async def marks(queue: FairQueue[Any]) -> set[bytes]:
    return set(await queue._engine.command("SMEMBERS", key(queue._engine.calls.root, "doubtful")))


async def test_a_whole_script_leaves_no_mark_and_takes_no_other_away(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue)
    await raw(queue, "SADD", "doubtful", args=(join("a", "of another"),))
    await put(queue, "a", "1", "2")
    for lease in await queue.claim(2):
        await lease.dead_letter("no")
    await queue.dead_letters.redrive("a", "1")
    await queue.dead_letters.purge("a", "2")
    assert await marks(queue) == {join("a", "of another").encode()}


async def test_a_walk_takes_away_the_marks_that_it_was_begun_for(make_queue: MakeQueue) -> None:
    """What was cut while it went on is for the next one, whoever else walks beside it."""
    queue = await buried(make_queue, "1", "2")
    old = join("a", "of a script that was cut").encode()
    await raw(queue, "SADD", "doubtful", args=(old,))
    calls = queue._engine.calls
    with cut(queue, Cut("redrive", 12, "ERR injected fault")), pytest.raises(Exception, match="injected"):
        await queue.dead_letters.redrive_all("a")
    left = await marks(queue) - {old}
    assert len(left) == 1
    await queue._engine.run(calls.audit("dead", "0", fix=True, of="a", marks=[old]))
    assert await marks(queue) == left
    await queue.reconcile()
    assert await marks(queue) == set()
    await assert_whole(queue)


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xff\xfe\x1f1", b"", b"a", b"nobody\x1f7", b"a\x1fb\x1f1"])
async def test_a_mark_that_no_script_made_goes(make_queue: MakeQueue, mark: bytes) -> None:
    queue = await buried(make_queue, "1")
    await raw(queue, "SADD", "doubtful", args=(mark,))
    await queue.reconcile()
    assert await marks(queue) == set()
    assert await queue.dead_letters.count("a") == 1


@pytest.mark.parametrize("by_a_script", [False, True])
async def test_marks_of_another_type_stop_nobody_and_go(make_queue: MakeQueue, by_a_script: bool) -> None:
    """What was in doubt is looked at all the same: all letters are."""
    queue = await buried(make_queue, "1", "2", "3")
    with cut(queue, Cut("redrive", 12, "ERR injected fault")), pytest.raises(Exception, match="injected"):
        await queue.dead_letters.redrive_all("a")
    await raw(queue, "DEL", "doubtful")
    await raw(queue, "SET", "doubtful", args=("not what it was",))
    if by_a_script:
        with pytest.raises(MessageNotFoundError):
            await queue.dead_letters.purge("a", "none")
    await queue.reconcile()
    await assert_whole(queue)
    assert await marks(queue) == set()


async def test_a_list_of_another_type_keeps_a_message_from_its_death_until_the_next_reconcile(
    make_queue: MakeQueue, clock: ManualClock
) -> None:
    queue = await buried(make_queue)
    await raw(queue, "SET", "dead", "a", args=("not what it was",))
    await put(queue, "a", "m")
    assert await (await one(queue)).fail("no") == "retried"
    await queue.reconcile()
    clock.advance(11)
    await promote(queue._engine)
    assert await (await one(queue)).fail("no") == "dead"
    assert await queue.dead_letters.count("a") == 1
    await assert_whole(queue)


async def test_letters_of_a_list_of_another_type_are_listed_again(make_queue: MakeQueue) -> None:
    """No script need have failed on it: reconcile looks at each list."""
    queue = await buried(make_queue, "1", "2")
    await raw(queue, "SET", "dead", "a", args=("not what it was",))
    await queue.reconcile()
    assert await queue.dead_letters.count("a") == 2
    await assert_whole(queue)


@pytest.mark.parametrize("by", ["id", "all", "reconcile"])
async def test_what_runs_without_a_header_keeps_its_payload_and_its_note(
    make_queue: MakeQueue, by: str, clock: ManualClock
) -> None:
    queue = await make_queue(retry=RetryPolicy.fixed(1))
    await queue.enqueue({"n": 1}, tenant="a", id="m")
    await (await one(queue)).fail("the first time")
    clock.advance(1)
    lease = await one(queue)
    await raw(queue, "ZADD", "dead", "a", args=(1, "m"))
    await raw(queue, "SADD", "dead_tenants", args=("a",))
    await raw(queue, "SADD", "doubtful", args=(join("a", "1"),))
    await raw(queue, "HDEL", "head", args=(join("a", "m"),))
    if by == "id":
        with pytest.raises(MessageNotFoundError):
            await queue.dead_letters.purge("a", "m")
    elif by == "all":
        assert await queue.dead_letters.purge("a") == 0
    else:
        await queue.reconcile()
    assert await raw(queue, "HEXISTS", "notes", args=(join("a", "m"),)) == 1
    await lease.release()
    assert (await one(queue)).message.payload == {"n": 1}
    await queue.reconcile()  # counters went by the header that was gone for a while


async def test_a_letter_whose_header_cannot_be_read_stays_listed(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue, "1", "2")
    await raw(queue, "HSET", "head", args=(join("a", "1"), "rubbish"))
    await raw(queue, "SADD", "doubtful", args=(join("a", "1"),))
    await queue.reconcile()
    assert await queue.dead_letters.count("a") == 2
    await queue.audit(fix=True)
    assert await state(queue, "a", "1") == "dead"
    await assert_whole(queue)


@pytest.mark.parametrize("place", ["inf", "-inf", "-5", "1.5", "1e300"])
async def test_letters_at_damaged_places_hide_no_others(make_queue: MakeQueue, place: str) -> None:
    queue = await buried(make_queue, "1", "2", "3")
    await raw(queue, "ZADD", "dead", "a", args=(place, "2"))
    ids, cursor = [], None
    for _ in range(5):
        items, cursor = await queue.dead_letters.list("a", limit=1, cursor=cursor)
        ids += [item.message.id for item in items]
        if cursor is None:
            break
    assert cursor is None
    assert {"1", "3"} <= set(ids)
    assert len(ids) == len(set(ids))
    await queue.audit(fix=True)
    items, _ = await queue.dead_letters.list("a")
    assert {item.message.id for item in items} == {"1", "2", "3"}


async def test_a_sign_that_is_given_during_the_walk_stays(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue, "1")
    await raw(queue, "HSET", "settings", args=("to_rebuild", "of another"))
    await queue._engine.run(queue._engine.calls.audit("heads", "0", fix=True, of="an older one"))
    assert await raw(queue, "HGET", "settings", args=("to_rebuild",)) == b"of another"
    await queue.reconcile()
    assert await raw(queue, "HGET", "settings", args=("to_rebuild",)) is None


async def test_a_letter_is_redriven_or_purged_whatever_its_list_holds(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue, "1", "2", "3")
    await raw(queue, "SET", "dead", "a", args=("not what it was",))
    assert await queue.dead_letters.redrive("a", "1") == 1
    assert await queue.dead_letters.purge("a", "2") == 1
    assert await state(queue, "a", "1") == "ready"
    stats = await queue.stats()
    assert (stats.ready, stats.dead) == (1, 1)
    await queue.reconcile()
    assert await queue.dead_letters.count("a") == 1
    await assert_whole(queue)


async def test_a_list_that_cannot_be_written_has_one_mark(make_queue: MakeQueue) -> None:
    """However many messages fail on it until the next reconcile."""
    queue = await buried(make_queue)
    await raw(queue, "SET", "dead", "a", args=("not what it was",))
    await put(queue, "a", *map(str, range(30)))
    for lease in await queue.claim(30):
        assert await lease.fail("no") == "retried"
    assert await marks(queue) == {join("a", "").encode()}
    await queue.reconcile()
    assert await marks(queue) == set()


async def test_a_doctor_who_is_cut_leaves_no_letter_unlisted(make_queue: MakeQueue) -> None:
    """He takes a list of another type away: letters that he had looked at before are to be listed again too."""
    queue = await buried(make_queue, *map(str, range(5)))
    await raw(queue, "SET", "dead", "a", args=("not what it was",))
    calls = queue._engine.calls
    with cut(queue, Cut("audit_heads", 12, "ERR injected fault")), pytest.raises(Exception, match="injected"):
        await queue._engine.run(calls.audit("heads", "0", fix=True))
    assert await raw(queue, "TYPE", "dead", "a") in (b"none", b"zset")
    await queue.reconcile()
    assert await queue.dead_letters.count("a") == 5
    await assert_whole(queue)


async def test_a_cursor_is_taken_back_wherever_a_letter_stands(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue, "1", "2")
    await raw(queue, "ZADD", "dead", "a", args=("1e-8", "1"))
    items, cursor = await queue.dead_letters.list("a", limit=1)
    assert [item.message.id for item in items] == ["1"]
    items, _ = await queue.dead_letters.list("a", limit=1, cursor=cursor)
    assert [item.message.id for item in items] == ["2"]
