"""Bad input: the named error says the option, the value and what was expected, and nothing is stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from fairqueue import (
    ConfigurationError,
    FairQueue,
    InvalidMessageError,
    Lease,
    Limit,
    NewMessage,
    PayloadTooLargeError,
    RetryPolicy,
    SyncFairQueue,
    current_lease,
)
from tests.conftest import MakeQueue
from tests.engine.tools import one, put, state

NAMES = ["", "\n", "a\x00b", "tab\t", "\x1f", "\x7f", "x" * 513, "é" * 257, "lone \ud800", 7, None, b"bytes"]
MESSAGES: list[tuple[str, Any]] = [
    *((option, name) for option in ("tenant", "queue", "pool") for name in NAMES),
    *(("id", name) for name in NAMES if name is not None),
    *(("delay", value) for value in (-1, -0.0001, math.nan, math.inf, "5", True, timedelta(days=-1))),
    *(("at", value) for value in (datetime(2030, 1, 1), 1_900_000_000, "2030-01-01")),  # noqa: DTZ001 - is refused
    *(("priority", value) for value in (-101, 101, 1.5, "1", True, None)),
    *(("cost", value) for value in (0, 0.0009, 1000.1, -1, math.nan, math.inf, "1", True, None)),
    *(("max_attempts", value) for value in (0, -1, 1.5, "3", True, 2**31)),
    *(
        ("metadata", value)
        for value in ([], "x", {"k": object()}, {1: 2}, {"k": math.nan}, {"k": {"\ud800": 1}})
    ),
]


async def stored(queue: FairQueue[Any]) -> int:
    stats = await queue.stats()
    return stats.ready + stats.delayed + stats.in_flight + stats.dead


@pytest.mark.parametrize(
    ("option", "value"), MESSAGES, ids=[f"{option}-{number}" for number, (option, _) in enumerate(MESSAGES)]
)
async def test_a_message_with_a_wrong_field_is_refused_by_name_and_nothing_is_stored(
    make_queue: MakeQueue, option: str, value: Any
) -> None:
    queue = await make_queue()
    with pytest.raises(InvalidMessageError, match=f"expected {option}") as caught:
        await queue.enqueue(1, **({"tenant": "a"} | {option: value}))
    assert isinstance(caught.value, ValueError)
    assert await stored(queue) == 0


async def test_delay_and_at_together_are_refused(make_queue: MakeQueue, clock: Any) -> None:
    queue = await make_queue()
    with pytest.raises(InvalidMessageError, match="delay or at"):
        await queue.enqueue(1, tenant="a", delay=1, at=clock.now)


@pytest.mark.parametrize(
    "payload", [object(), {1, 2}, math.nan, {"k": math.inf}, "\ud800", b"bytes", {(1, 2): 3}]
)
async def test_a_payload_that_cannot_be_encoded_is_refused(make_queue: MakeQueue, payload: Any) -> None:
    queue = await make_queue()
    with pytest.raises(InvalidMessageError, match="payload"):
        await queue.enqueue(payload, tenant="a")
    assert await stored(queue) == 0


async def test_a_payload_that_is_too_large_is_refused_before_anything_is_sent(make_queue: MakeQueue) -> None:
    queue = await make_queue(max_payload_bytes=100)
    await queue.enqueue("x" * 98, tenant="a", id="fits")  # and two quotes
    with pytest.raises(PayloadTooLargeError, match="100"):
        await queue.enqueue("x" * 99, tenant="a")
    with pytest.raises(PayloadTooLargeError):
        await queue.enqueue_many([NewMessage("x", tenant="a"), NewMessage("x" * 99, tenant="a")])
    assert await stored(queue) == 1


async def test_what_is_no_new_message_is_refused(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for wrong in ({"tenant": "a"}, "text", None, 5):
        with pytest.raises(InvalidMessageError, match="NewMessage"):
            await queue.enqueue_many([NewMessage(1, tenant="a"), wrong])  # type: ignore[list-item]
    for no_list in (NewMessage(1, tenant="a"), None, 5):
        with pytest.raises(InvalidMessageError, match="expected messages to be a list of NewMessage, got "):
            await queue.enqueue_many(no_list)  # type: ignore[arg-type]
    assert await stored(queue) == 0


@pytest.mark.parametrize("method", ["complete_many", "fail_many", "release_many", "extend_many"])
async def test_what_is_no_list_of_leases_is_refused(make_queue: MakeQueue, method: str) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    lease = await one(queue)
    for wrong in (None, lease, 5, [lease, None]):
        with pytest.raises(ConfigurationError, match="expected leases to be "):
            await getattr(queue, method)(wrong)
    assert await queue.complete_many(each for each in [lease]) == ["done"]  # type: ignore[arg-type]


def test_without_asyncio_the_same_is_refused(server: str, namespace: str) -> None:
    with SyncFairQueue(server, namespace) as queue:
        with pytest.raises(InvalidMessageError, match="expected messages to be a list of NewMessage"):
            queue.enqueue_many(NewMessage(1, tenant="a"))  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="expected leases to be a list of SyncLease"):
            queue.fail_many(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("cursor", [5, "x", "-1", b"1", ""])
async def test_a_cursor_that_no_list_returned_is_refused(make_queue: MakeQueue, cursor: Any) -> None:
    queue = await make_queue()
    with pytest.raises(ConfigurationError, match="expected cursor to be one that list"):
        await queue.dead_letters.list("a", cursor=cursor)
    with pytest.raises(ConfigurationError, match="expected cursor to be one that messages"):
        await queue.messages("a", cursor=cursor)


def test_there_is_no_current_lease_outside_of_a_handler() -> None:
    with pytest.raises(LookupError, match="current_lease\\(\\) is for handlers"):
        current_lease()


@pytest.mark.parametrize("limit", [-1, 1.5, "5", True])
async def test_a_limit_that_is_none_says_how_to_have_none(make_queue: MakeQueue, limit: Any) -> None:
    said = "expected .*limit.* to be an integer from 0 to 2147483647, or None for unlimited, got"
    with pytest.raises(ConfigurationError, match=said):
        Limit("tenant", limit)
    queue = await make_queue(limits=[Limit("tenant", 1)])
    with pytest.raises(ConfigurationError, match=said):
        await queue.limits.set("tenant", "a", limit)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("n", value) for value in (0, -1, 1001, 1.5, "1", True, None)),
        *(("wait", value) for value in (-1, math.nan, "1", None)),
        *(("pools", value) for value in ((), [], "default", ("",), ("a\nb",), (7,))),
        *(("consumer", value) for value in ("", "a\nb", 7)),
        *(("visibility_timeout", value) for value in (0, -3, 0.05, math.nan, "30", True)),
    ],
)
async def test_a_claim_with_a_wrong_argument_is_refused_by_name(
    make_queue: MakeQueue, option: str, value: Any
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    with pytest.raises(ConfigurationError, match=f"expected {option} to be"):
        await queue.claim(**{option: value})
    assert await state(queue, "a", "m") == "ready"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("visibility_timeout", value) for value in (0, -3, math.nan, "30", None)),
        *(("reclaim_interval", value) for value in (-1, math.nan, "5")),
        *(("reconcile_interval", value) for value in (-1, math.inf, "60")),
        *(("scheduler", value) for value in ("lifo", "FAIR", 1)),
        *(("name", value) for value in ("", "a b", "x" * 65, "a:b", "é", 7)),
        *(("max_payload_bytes", value) for value in (0, -1, 1.5, "1")),
        *(("shards", value) for value in (0, 2, "1")),
        *(("dead_letters", value) for value in (1, "yes")),
        *(("durability", value) for value in ("wait", "always", None, 1)),
        *(("limits", value) for value in ("tenant", [1], [Limit("a", key="k"), Limit("a", key="k")])),
        *(("retry", value) for value in (3, "none")),
        *(("codec", value) for value in (5, object())),
        *(("clock", value) for value in (5, object())),
        *(
            ("url", value)
            for value in ("http://x", "localhost:6379", "redis+cluster://x", "redis+sentinel://x", 5)
        ),
    ],
)
def test_a_queue_with_a_wrong_option_is_refused_when_it_is_made(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=option if option != "limits" else "limit"):
        FairQueue(**({"url": "redis://localhost"} | {option: value}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limit("", 1, "k"),
        lambda: Limit("org", -1, "k"),
        lambda: Limit("org", 1.5, "k"),  # type: ignore[arg-type]
        lambda: Limit("org", 1),
        lambda: Limit("org", 1, 7),  # type: ignore[arg-type]
        lambda: Limit("tenant", 1, "k"),
        lambda: RetryPolicy(max_attempts=0),
        lambda: RetryPolicy(max_crashes=0),
        lambda: RetryPolicy(initial=-1),
        lambda: RetryPolicy(factor=math.nan),
        lambda: RetryPolicy(initial=10, maximum=5),
    ],
)
def test_a_limit_or_policy_that_cannot_be_is_refused_when_it_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        make()


@pytest.mark.parametrize("group", ["", "a\nb", "x" * 513, 7, ["x"], None, "\ud800"])
async def test_metadata_that_names_no_group_is_refused(make_queue: MakeQueue, group: Any) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    with pytest.raises(InvalidMessageError):
        await queue.enqueue(1, tenant="a", metadata={"org": group})
    assert await stored(queue) == 0


@pytest.mark.parametrize("delay", [-1, math.nan, "5", True])
async def test_a_release_with_a_wrong_delay_is_refused_and_the_lease_lives(
    make_queue: MakeQueue, delay: Any
) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    lease = await one(queue)
    with pytest.raises(ConfigurationError, match="expected delay"):
        await lease.release(delay=delay)
    with pytest.raises(ConfigurationError, match="expected delay"):
        await queue.release_many([lease], delay=delay)
    assert await lease.complete() == "done"


@pytest.mark.parametrize("reason", ["lone \ud800", "unit \x1f separator", "x" * 100_000, ""])
async def test_any_reason_text_may_be_given_to_the_dead_letters(make_queue: MakeQueue, reason: str) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    lease = await one(queue)
    assert await lease.dead_letter(reason) == "dead"
    (letter,), _ = await queue.dead_letters.list("a")
    assert letter.reason[:4] == reason[:4]
    assert len(letter.reason) <= 4_000


@pytest.mark.parametrize("tenant", ["", "a\nb", 7, "x" * 513])
async def test_reads_of_what_cannot_be_a_tenant_are_refused(make_queue: MakeQueue, tenant: Any) -> None:
    queue = await make_queue()
    calls = [
        queue.get(tenant, "m"),
        queue.stats(tenant),
        queue.messages(tenant),
        queue.tenants.get(tenant),
        queue.dead_letters.count(tenant),
        queue.dead_letters.list(tenant),
        queue.dead_letters.redrive_all(tenant),
        queue.dead_letters.purge(tenant),
    ]
    for call in calls:
        with pytest.raises((ConfigurationError, InvalidMessageError), match="expected tenant"):
            await call


async def test_what_is_no_lease_is_refused(make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await put(queue, "a", "m")
    lease: Lease[Any] = await one(queue)
    for wrong in (None, "lease", lease.message):
        with pytest.raises(ConfigurationError, match="Lease"):
            await queue.complete_many([lease, wrong])  # type: ignore[list-item]
    assert await state(queue, "a", "m") == "in_flight"


async def test_leases_of_another_queue_are_ended_there(make_queue: MakeQueue, namespace: str) -> None:
    """Answered "lost", as this one knows nothing of them, they would be given up by whoever works on them."""
    queue, other = await make_queue(), await make_queue(name=namespace + ".other")
    await put(queue, "a", "m", "n", "o")
    await put(other, "a", "p")
    mixed = [*await queue.claim(), *await other.claim(), *await queue.claim(2)]
    assert await other.extend_many(mixed) == ["extended"] * 4
    assert await other.complete_many(mixed[:3]) == ["done"] * 3
    assert await other.release_many(mixed[2:]) == [
        "lost",
        "released",
    ]  # the first of these has been completed
    assert [(await each.stats()).totals.completed for each in (queue, other)] == [2, 1]
    assert await state(queue, "a", "o") == "ready"
