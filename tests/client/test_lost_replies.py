"""The server did it and the client never heard: the call is repeated, and the repeated call changes nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fairqueue import FairQueue, Lease, LeaseLostError, Limit, NewMessage
from fairqueue.testing import ManualClock
from tests.conftest import MakeQueue
from tests.support.proxy import Fault, Proxy, arrive_at, cut_reply, delay, lose_reply, lose_request
from tests.support.waiting import eventually

FAULTS = {
    "request lost": lose_request(),
    "reply lost": lose_reply(),
    "reply cut in its first byte": cut_reply(1),
    "reply cut in the middle": cut_reply(60),
}


@pytest.fixture(params=FAULTS.values(), ids=FAULTS.keys())
def fault(request: pytest.FixtureRequest) -> Fault:
    found: Fault = request.param
    return found


async def ready(queue: FairQueue[Any], count: int, tenant: str = "a") -> None:
    await queue.enqueue_many([NewMessage(n, tenant=tenant, id=f"m{n}") for n in range(count)])


def ids(leases: list[Lease[Any]]) -> list[str]:
    return [lease.message.id for lease in leases]


async def test_an_enqueue_stores_one_message(make_queue: MakeQueue, proxy: Proxy, fault: Fault) -> None:
    queue = await make_queue(url=proxy.url)
    proxy.next("enqueue", fault)
    sent = await queue.enqueue("payload", tenant="a")
    (message,), _ = await queue.messages("a")
    assert (message.message.id, message.message.payload) == (sent.id, "payload")
    assert (await queue.stats()).ready == 1


async def test_an_enqueue_is_not_made_again_when_its_message_is_done_already(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    """Stored, answer lost, claimed and completed by somebody else, all before the client asks again."""
    queue = await make_queue(url=proxy.url)
    proxy.next("enqueue", lose_reply())
    proxy.next("enqueue", delay(0.3))
    sending = asyncio.ensure_future(queue.enqueue("payload", tenant="a"))
    other = await make_queue()
    (lease,) = await eventually(other.claim, "the message to be there")
    assert await lease.complete() == "done"
    sent = await sending
    assert proxy.count("enqueue") == 2
    assert (sent.created, sent.state) == (True, "ready")
    assert await other.get("a", sent.id) is None
    assert (await other.stats()).totals.enqueued == 1


async def test_an_enqueue_that_is_repeated_says_which_were_new(make_queue: MakeQueue, proxy: Proxy) -> None:
    queue = await make_queue(url=proxy.url)
    await queue.enqueue("first", tenant="a", id="m1", delay=5)
    proxy.next("enqueue", lose_reply())
    sent = await queue.enqueue_many([NewMessage(n, tenant="a", id=f"m{n}") for n in range(3)])
    assert [(one.created, one.state) for one in sent] == [
        (True, "ready"),
        (False, "delayed"),
        (True, "ready"),
    ]


async def test_a_large_enqueue_stores_each_message_once_and_in_order(
    make_queue: MakeQueue, proxy: Proxy, fault: Fault
) -> None:
    queue = await make_queue(url=proxy.url)
    proxy.next("enqueue", fault, after=1)
    await ready(queue, 1200)
    assert (await queue.stats()).ready == 1200
    assert ids(await queue.claim(1000)) == [f"m{n}" for n in range(1000)]


async def test_a_claim_gets_the_leases_it_took_the_first_time(
    make_queue: MakeQueue, proxy: Proxy, fault: Fault
) -> None:
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=3)])
    await ready(queue, 10)
    proxy.next("claim", fault)
    leases = await queue.claim(3)
    assert ids(leases) == ["m0", "m1", "m2"]
    assert [lease.message.attempt for lease in leases] == [1, 1, 1]
    assert await queue.complete_many(leases) == ["done"] * 3
    assert (await queue.limits.get("tenant", "a")).held == 0
    assert (await queue.stats()).ready == 7


async def test_a_claim_whose_replies_are_lost_five_times_takes_no_more(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await ready(queue, 30)
    proxy.next("claim", lose_reply(), times=5)
    assert ids(await queue.claim(4)) == ["m0", "m1", "m2", "m3"]
    assert (await queue.stats()).in_flight == 4


async def give_up_claiming(queue: FairQueue[Any], proxy: Proxy, n: int, **options: Any) -> None:
    """A claim whose replies are lost until the client's patience ends: what it took is known to nobody."""
    proxy.next("claim", lose_reply(), times=1000)
    queue._engine.connection._patience = 0.2
    with pytest.raises(ConnectionError):
        await queue.claim(n, **options)
    proxy.reset()


async def test_a_smaller_repeated_claim_gets_at_most_n_and_the_next_the_rest(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await ready(queue, 10)
    await give_up_claiming(queue, proxy, 5)
    assert (await queue.stats()).in_flight == 5
    first = await queue.claim(2)
    assert ids(first) == ["m0", "m1"]
    second = await queue.claim(2)
    assert ids(second) == ["m2", "m3"]
    third = await queue.claim(3)
    assert ids(third) == ["m4", "m5", "m6"]
    assert {lease.message.attempt for lease in first + second + third} == {1}


async def test_only_what_is_still_held_comes_again(make_queue: MakeQueue, proxy: Proxy, clock: Any) -> None:
    queue = await make_queue(url=proxy.url)
    await ready(queue, 3)
    await give_up_claiming(queue, proxy, 3)
    other = await make_queue()
    clock.advance(31)
    await other.reclaim()
    (taken,) = await other.claim(1)
    leases = await queue.claim(3)
    assert ids(leases) == ["m1", "m2"]
    assert [lease.message.attempt for lease in leases] == [2, 2]
    assert await taken.complete() == "done"


async def test_what_comes_again_is_extended_anew(make_queue: MakeQueue, proxy: Proxy, clock: Any) -> None:
    queue = await make_queue(url=proxy.url)
    await ready(queue, 1)
    await give_up_claiming(queue, proxy, 1)
    clock.advance(29)
    (lease,) = await queue.claim(1)
    clock.advance(29)
    assert (await queue.reclaim()).reclaimed == []
    assert await lease.complete() == "done"


async def test_another_client_of_the_same_consumer_name_never_gets_them(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url)
    await ready(queue, 5)
    await give_up_claiming(queue, proxy, 3, consumer="same")
    twin = await make_queue()
    assert ids(await twin.claim(10, consumer="same")) == ["m3", "m4"]
    assert ids(await queue.claim(10, consumer="same")) == ["m0", "m1", "m2"]


async def test_close_gives_back_uncounted_what_a_lost_claim_took(make_queue: MakeQueue, proxy: Proxy) -> None:
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=3)])
    await ready(queue, 5)
    await give_up_claiming(queue, proxy, 3)
    await queue.close()
    other = await make_queue()
    assert (await other.limits.get("tenant", "a")).held == 0
    leases = await other.claim(5)
    assert ids(leases) == ["m0", "m1", "m2"]
    assert [lease.message.attempt for lease in leases] == [1, 1, 1]


async def test_close_gives_back_what_several_lost_claims_took(make_queue: MakeQueue, proxy: Proxy) -> None:
    queue = await make_queue(url=proxy.url)
    await ready(queue, 9)
    proxy.next("claim", lose_reply(), times=1000)
    queue._engine.connection._patience = 0.2
    lost = await asyncio.gather(*(queue.claim(3) for _ in range(3)), return_exceptions=True)
    assert [isinstance(error, ConnectionError) for error in lost] == [True] * 3
    proxy.reset()
    assert (await queue.stats()).in_flight == 9
    kept = await queue.claim(3)  # answers for one of the three: the other two are still unknown
    await queue.close()
    other = await make_queue()
    assert (await other.stats()).in_flight == len(kept) == 3
    assert len(await other.claim(9)) == 6


@pytest.mark.parametrize("action", ["complete", "fail", "release", "dead_letter"])
async def test_a_settle_is_answered_as_the_first_time(
    make_queue: MakeQueue, proxy: Proxy, fault: Fault, action: str
) -> None:
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=1)])
    await ready(queue, 1)
    (lease,) = await queue.claim()
    proxy.next("settle", fault)
    if action == "dead_letter":
        assert await lease.dead_letter("no use") == "dead"
    else:
        outcome = {"complete": "done", "fail": "retried", "release": "released"}[action]
        assert await getattr(lease, action)() == outcome
    stats = await queue.stats()
    totals = stats.totals
    assert (totals.completed, totals.retried, totals.released, totals.dead_lettered) == (
        action == "complete",
        action == "fail",
        action == "release",
        action == "dead_letter",
    )
    assert (await queue.limits.get("tenant", "a")).held == 0


async def test_a_batch_of_settles_is_answered_as_the_first_time(
    make_queue: MakeQueue, proxy: Proxy, fault: Fault
) -> None:
    queue = await make_queue(url=proxy.url)
    await ready(queue, 4)
    leases = await queue.claim(4)
    proxy.next("settle", fault)
    assert await queue.fail_many(leases, "no") == ["retried"] * 4
    assert (await queue.stats()).totals.retried == 4


async def test_a_repeated_settle_leaves_the_next_delivery_alone(make_queue: MakeQueue, proxy: Proxy) -> None:
    """The release was done, its answer lost, and another client has the message when the release is repeated."""
    queue = await make_queue(url=proxy.url)
    await ready(queue, 1)
    (lease,) = await queue.claim()
    proxy.next("settle", lose_reply(), times=1000)
    queue._engine.connection._patience = 0.2
    with pytest.raises(ConnectionError):
        await lease.release()
    proxy.reset()
    other = await make_queue()
    (newer,) = await other.claim()
    assert await lease.release() == "released"
    with pytest.raises(LeaseLostError):
        await lease.extend()
    assert (await other.stats()).in_flight == 1
    assert await newer.complete() == "done"


async def test_an_extend_whose_reply_is_lost_is_made_again(
    make_queue: MakeQueue, proxy: Proxy, fault: Fault, clock: Any
) -> None:
    queue = await make_queue(url=proxy.url)
    await ready(queue, 1)
    (lease,) = await queue.claim()
    before = lease.deadline
    clock.advance(10)
    proxy.next("extend", fault)
    assert (await lease.extend() - before).total_seconds() == 10


async def test_settings_reads_and_maintenance_go_through_lost_replies(
    make_queue: MakeQueue, proxy: Proxy
) -> None:
    queue = await make_queue(url=proxy.url, limits=[Limit("tenant", default=1)])
    await ready(queue, 2)
    await queue.claim(2)
    for name in ("set_limit", "group_state", "totals", "get", "reclaim", "reconcile_leases"):
        proxy.next(name, lose_reply())
    await queue.limits.set("tenant", "a", 2)
    assert (await queue.limits.get("tenant", "a")).limit == 2
    assert (await queue.stats()).in_flight == 1
    found = await queue.get("a", "m0")
    assert found is not None
    assert (await queue.reclaim()).reclaimed == []
    assert (await queue.reconcile()).freed == []


# --- requests that arrive late -----------------------------------------------------------------------------------


@pytest.fixture
async def hasty(make_queue: MakeQueue, proxy: Proxy) -> FairQueue[Any]:
    """A client that soon takes a connection for dead."""
    return await make_queue(url=proxy.url + "?socket_timeout=0.3", limits=[Limit("tenant", default=3)])


async def let_in(gate: threading.Event, proxy: Proxy) -> None:
    gate.set()
    await eventually(lambda: not proxy.under_way, "the late request to arrive")


async def test_a_limit_that_arrives_late_does_not_undo_a_later_one(
    hasty: FairQueue[Any], proxy: Proxy
) -> None:
    gate = threading.Event()
    proxy.next("set_limit", arrive_at(gate))
    await hasty.limits.set("tenant", "a", 5)
    await hasty.limits.set("tenant", "a", 10)
    await let_in(gate, proxy)
    assert (await hasty.limits.get("tenant", "a")).limit == 10


async def test_a_redrive_that_arrives_late_does_not_redrive_what_died_since(
    hasty: FairQueue[Any], proxy: Proxy
) -> None:
    await ready(hasty, 1)
    await (await hasty.claim())[0].dead_letter("no use")
    gate = threading.Event()
    proxy.next("redrive", arrive_at(gate))
    assert await hasty.dead_letters.redrive("a", "m0") == 1
    await (await hasty.claim())[0].dead_letter("still no use")
    await let_in(gate, proxy)
    assert await hasty.dead_letters.count("a") == 1


async def test_a_purge_that_arrives_late_does_not_purge_what_died_since(
    hasty: FairQueue[Any], proxy: Proxy
) -> None:
    await ready(hasty, 1)
    await (await hasty.claim())[0].dead_letter("no use")
    gate = threading.Event()
    proxy.next("purge_dead", arrive_at(gate))
    assert await hasty.dead_letters.purge("a", "m0") == 1
    await ready(hasty, 1)
    await (await hasty.claim())[0].dead_letter("of no use either")
    await let_in(gate, proxy)
    assert await hasty.dead_letters.count("a") == 1


async def test_a_settle_that_arrives_late_leaves_the_answer_to_a_later_one(
    hasty: FairQueue[Any], proxy: Proxy
) -> None:
    await ready(hasty, 2)
    first, second = await hasty.claim(2)
    gate = threading.Event()
    proxy.next("settle", arrive_at(gate))
    assert await first.complete() == "done"
    proxy.next("settle", lose_reply())
    proxy.next("settle", delay(0.25))
    completing = asyncio.ensure_future(second.complete())
    await eventually(lambda: proxy.count("settle") == 4, "the second one to be sent again")
    await let_in(gate, proxy)
    assert await completing == "done"


async def test_what_a_reclaim_did_is_told_though_its_reply_was_lost(
    hasty: FairQueue[Any], proxy: Proxy, clock: ManualClock
) -> None:
    await ready(hasty, 2)
    await hasty.claim(2)
    clock.advance(31)
    proxy.next("reclaim", lose_reply())
    assert (await hasty.reclaim()).reclaimed == [("a", "m0"), ("a", "m1")]
