"""What a script that was cut, or a hand, leaves among the dead letters: reconcile makes them those that are dead again."""

from __future__ import annotations

from typing import Any

import pytest

from fairqueue import DamagedKeyError, FairQueue, MessageNotFoundError, RetryPolicy
from fairqueue._engine.keys import join, key
from fairqueue.maintenance.promoter import promote
from fairqueue.testing import ManualClock, assert_whole
from tests.conftest import MakeQueue
from tests.engine.tools import one, put, raw, state
from tests.engine.whole import to_the_last_byte
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
    await queue._engine.run(calls.audit("dead", "0", fix=True, of="a"))
    await queue._engine.run(calls.looked_through(marks=[old]))
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


PLACES = ["inf", "-inf", "-5", "-0.5", "0", "1.5", "1e300", "1e-8", "1e+22"]


async def listed(queue: FairQueue[Any], limit: int) -> list[str]:
    """Page by page; each page but the last is full."""
    items, cursor = await queue.dead_letters.list("a", limit=limit)
    ids = [item.message.id for item in items]
    while cursor is not None:
        assert len(items) == limit
        items, cursor = await queue.dead_letters.list("a", limit=limit, cursor=cursor)
        ids += [item.message.id for item in items]
    return ids


@pytest.mark.parametrize("place", PLACES)
async def test_letters_at_damaged_places_are_listed_and_hide_no_others(
    make_queue: MakeQueue, place: str
) -> None:
    queue = await buried(make_queue, "1", "2", "3")
    await raw(queue, "ZADD", "dead", "a", args=(place, "2"))
    assert sorted(await listed(queue, 1)) == ["1", "2", "3"]
    await queue.audit(fix=True)
    assert sorted(await listed(queue, 2)) == ["1", "2", "3"]
    assert not (await queue.audit()).findings


@pytest.mark.parametrize("place", [*PLACES, "2", "3"])
async def test_letters_at_one_place_are_listed_each_and_the_doctor_parts_them(
    make_queue: MakeQueue, place: str
) -> None:
    ids = [f"m{n:02}" for n in range(20)]
    queue = await buried(make_queue, *ids)
    for id_ in ids[3:]:
        await raw(queue, "ZADD", "dead", "a", args=(place, id_))
    for limit in (1, 3, 7, 19, 20):
        assert sorted(await listed(queue, limit)) == ids
    assert {finding.check for finding in (await queue.audit()).findings} == {"KEEP"}
    await queue.audit(fix=True)
    assert not (await queue.audit()).findings
    assert sorted(await listed(queue, 3)) == ids


async def test_letters_that_leave_between_pages_hide_none_at_their_place(make_queue: MakeQueue) -> None:
    ids = [f"m{n}" for n in range(9)]
    queue = await buried(make_queue, *ids)
    for id_ in ids:
        await raw(queue, "ZADD", "dead", "a", args=("7", id_))
    seen, cursor = [], None
    for _ in ids:
        items, cursor = await queue.dead_letters.list("a", limit=1, cursor=cursor)
        seen += [item.message.id for item in items]
        await queue.dead_letters.purge("a", seen[-1])
    assert seen == ids
    await queue.reconcile()


async def test_lost_counters_give_out_no_number_that_is_in_use(make_queue: MakeQueue) -> None:
    """Order of acceptance and of death go on, whether a doctor came by or not, and no letter hides another."""
    queue = await buried(make_queue, "1", "2", "3")
    await put(queue, "a", "r1", "r2")
    await raw(queue, "DEL", "counters")
    await put(queue, "a", "r3", "4", "5", priority=0)
    leases = await queue.claim(9)
    assert [lease.message.id for lease in leases] == ["r1", "r2", "r3", "4", "5"]
    for lease in leases[3:]:
        await lease.dead_letter("no")
    assert await listed(queue, 1) == ["1", "2", "3", "4", "5"]
    assert not (await queue.audit()).findings
    await queue.complete_many(leases[:3])


async def test_counters_lost_with_the_settings_give_out_no_number_that_is_in_use(
    make_queue: MakeQueue,
) -> None:
    queue = await buried(make_queue, "1", "2", "3")
    await raw(queue, "DEL", "counters")
    await raw(queue, "DEL", "settings")
    await put(queue, "a", "4")
    await (await one(queue)).dead_letter("no")
    assert await listed(queue, 1) == ["1", "2", "3", "4"]


async def calls_of_a_list(queue: FairQueue[Any]) -> None:
    dead = queue.dead_letters
    for call in (dead.count("a"), dead.list("a"), dead.redrive_all("a"), dead.purge("a")):
        with pytest.raises(DamagedKeyError, match=r"tenant 'a'.* reconcile\(\)"):
            await call


async def test_of_a_list_of_another_type_nobody_is_told_that_it_is_empty(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue, "1", "2", "3")
    await put(queue, "a", "ready")
    await raw(queue, "SET", "dead", "a", args=("not what it was",))
    await calls_of_a_list(queue)
    everywhere, _ = await queue.messages("a")
    assert [info.message.id for info in everywhere] == ["ready"]
    await queue.reconcile()
    assert await queue.dead_letters.count("a") == 3
    assert await queue.dead_letters.redrive_all("a") == 3
    await assert_whole(queue)


async def test_a_purge_of_nothing_writes_nothing(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue, "1")
    before = await to_the_last_byte(queue)
    with pytest.raises(MessageNotFoundError):
        await queue.dead_letters.purge("a", "none")
    assert await to_the_last_byte(queue) == before


async def test_a_sign_that_is_given_during_the_walk_stays(make_queue: MakeQueue) -> None:
    queue = await buried(make_queue, "1")
    await raw(queue, "HSET", "settings", args=("to_rebuild", "of another"))
    await queue._engine.run(queue._engine.calls.looked_through(sign="an older one"))
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


async def test_a_list_that_cannot_be_written_leaves_no_marks_but_is_to_be_written_again(
    make_queue: MakeQueue,
) -> None:
    """However many messages fail on it until the next reconcile. A failure during its walk is for the one after it."""
    queue = await buried(make_queue)
    await raw(queue, "SET", "dead", "a", args=("not what it was",))
    await put(queue, "a", *map(str, range(30)))
    leases = await queue.claim(30)
    signs = set()
    for lease in leases:
        assert await lease.fail("no") == "retried"
        signs.add(await raw(queue, "HGET", "settings", args=("to_rebuild",)))
    assert await marks(queue) == set()
    assert len(signs) == 30
    await queue.reconcile()
    assert await raw(queue, "HGET", "settings", args=("to_rebuild",)) is None
    await assert_whole(queue)


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
