"""A fault at every exchange of every public call: it is made good, and the answer is the right one or a named error.

The k-th request of a call, for every k, is lost, or its reply is, or comes in half; it arrives late, after its client has
hung up and repeated it, or very late, when the client has long gone on (the network sends again what a closed
connection still had); the connection goes silent, before the request or after; or the server is away from then on, for
longer than the client has patience. Of a single fault nothing may be seen afterwards: the answer and all that is
stored are what they are without it. After an outage that outlasts patience each message is accounted for.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from fairqueue import FairQueue, LeaseLostError, QueueUnavailableError, SyncFairQueue
from fairqueue.testing import ManualClock, assert_whole
from tests.faults.exchanges import (
    LIMITS,
    OPERATIONS,
    WITHOUT_EXCHANGE,
    Operation,
    Scene,
    prepared,
    public_operations,
)
from tests.faults.record import Harm, began, none_lost, none_twice, note
from tests.support.awaited import Awaited
from tests.support.proxy import (
    Fault,
    Proxy,
    arrive_at,
    arrive_late,
    fall_silent,
    go_away,
    half_reply,
    lose_reply,
    lose_request,
)
from tests.support.waiting import eventually
from tests.support.watch import WATCH

ANSWER_TIME = 0.4  # seconds after which the client takes a connection for dead
AT_LEISURE = (
    10.0  # the same where connections break: an answer that is slow, on a slow machine, is no outage yet
)
PATIENCE, AWAY = 0.3, 0.6
AT_ONCE = 3  # requests of a call that are tried at the same time
MOST = 60  # requests of one call
NOW = datetime(2030, 1, 1, tzinfo=UTC)

SINGLE = {
    "request lost": lose_request(),
    "reply lost": lose_reply(),
    "half a reply": half_reply(),
    "request late": arrive_late(ANSWER_TIME * 1.6),
    "silent before": fall_silent(),
    "silent after": fall_silent(after=True),
}
LATER = {"request very late": arrive_at(threading.Event())}
OUTAGES = {"away before": go_away(AWAY), "away after": go_away(AWAY, after=True)}
FAULTS = SINGLE | LATER | OUTAGES


Proxies = dict[tuple[str, int], Proxy]


@dataclass
class Result:
    """What came of one call, and what was stored afterwards."""

    answer: Any
    stored: Any
    met: bool
    requests: int


def test_every_public_operation_is_on_the_list() -> None:
    covered = {name for operation in OPERATIONS for name in operation.covers}
    assert covered | set(WITHOUT_EXCHANGE) == public_operations()


@pytest.fixture(scope="module")
def proxies(server: str) -> Iterator[Proxies]:
    """For each kind of fault as many as are tried at once: most of the time is spent waiting."""
    with ExitStack() as stack:
        yield {(kind, lane): stack.enter_context(Proxy(server)) for kind in FAULTS for lane in range(AT_ONCE)}


@asynccontextmanager
async def scene_at(
    server: str, proxy: Proxy, name: str, flavour: str, special: dict[str, Any], answer_time: float
) -> AsyncIterator[Scene]:
    proxy.reset()
    WATCH.checked_elsewhere(name)
    clock = ManualClock(NOW)
    options: dict[str, Any] = {"name": name, "limits": LIMITS, "clock": clock, "reconcile_interval": 0}
    url = f"{proxy.url}?socket_timeout={answer_time}"
    async with FairQueue[Any](server, **options) as direct:
        own = options | special
        queue = FairQueue[Any](url, **own) if flavour == "async" else Awaited(SyncFairQueue[Any](url, **own))
        await queue.connect()
        try:
            yield await prepared(Scene(queue, direct, clock, proxy))
        finally:
            proxy.reset()
            await queue.close()


async def stored(queue: FairQueue[Any]) -> Any:
    """Everything there is, as plain values."""
    tenants = sorted([state.tenant async for state in queue.tenants.list()])
    found = [item for tenant in tenants for item in (await queue.messages(tenant, limit=10_000))[0]]
    held = [(group, sorted([(state.id, state.held, state.limit) async for state in queue.limits.list(group)]))
            for group in ("tenant", "org")]  # fmt: skip
    listed = sorted(
        (item.message.tenant, item.message.id, item.state, item.message.attempt) for item in found
    )
    return await queue.stats(), listed, held


@dataclass(frozen=True, slots=True)
class Place:
    """The k-th request of a call, or the k-th of that name."""

    k: int
    name: str | None = None

    def __str__(self) -> str:
        return f"request {self.k}" if self.name is None else f"{self.name} {self.k}"


async def tried(
    operation: Operation,
    flavour: str,
    server: str,
    proxy: Proxy,
    name: str,
    fault: Fault | None = None,
    place: Place = Place(1),
) -> Result:
    """The operation with the fault at that place; then all that is left is worked off, and accounted for."""
    answer_time = AT_LEISURE if fault and fault.away else ANSWER_TIME
    async with scene_at(server, proxy, name, flavour, operation.options, answer_time) as scene:
        if fault and fault.away:
            scene.inside._engine.connection._patience = PATIENCE
        gate = threading.Event()
        if fault and fault.gate:
            fault = arrive_at(gate)
        if fault:
            proxy.next(place.name, fault, after=place.k - 1)
        before = len(proxy.requests)
        try:
            answer = await operation.act(scene)
        except QueueUnavailableError as error:
            answer = error
        met, requests = not proxy.withdraw(), len(proxy.requests) - before
        if not (fault and fault.gate):
            await eventually(lambda: not proxy.under_way, "what is late to have arrived")
        await at_rest(scene)
        if operation.repairs and isinstance(answer, QueueUnavailableError):
            await scene.direct.reclaim()
            await scene.direct.reconcile()
        result = Result(answer, await stored(scene.direct), met, requests)
        await assert_whole(scene.direct)
        await worked_off(scene)
        await undisturbed(scene, gate)
        return result


async def undisturbed(scene: Scene, gate: threading.Event) -> None:
    """What arrives now changes nothing: it was answered long ago, and later calls have been made."""
    await scene.queue.limits.set("org", "o", 9)
    await scene.direct.enqueue("last", tenant="z", id="last")
    before = await stored(scene.direct)
    gate.set()
    await eventually(lambda: not scene.proxy.under_way, "what is very late to have arrived")
    assert await stored(scene.direct) == before, "a request that was repeated long ago was done again"


async def at_rest(scene: Scene) -> None:
    """Nothing is under way any more behind the caller's back."""
    scene.inside._engine.connection._patience = 10
    await eventually(lambda: not scene.proxy._refusing, "the server to be back")
    await eventually(
        lambda: not scene.inside._consumer._tasks and not scene.inside._engine.connection._exchanges,
        "what goes on in the background to have ended",
    )


async def worked_off(scene: Scene) -> None:
    """What is held is completed, what is left is claimed by the same client: nothing is lost, held, or run twice."""
    async for pause in scene.direct.pauses():
        await scene.direct.resume(pause.tenant, pause.queue, pause.pool)
    ended = set()
    for lease in scene.leases:
        try:
            await lease.complete()
        except LeaseLostError:
            continue  # settled otherwise by the operation
        ended.add((lease.message.tenant, lease.message.id))
    for _ in range(3):  # delayed ones and retries come due
        names = await drained(scene.queue)
        none_twice(set() if scene.expired else ended.intersection(names))
        none_twice(name for name, times in Counter(names).items() if times > 1)
        ended.update(names)
        assert (await scene.direct.stats()).in_flight == 0, "leases that nobody knows of"
        scene.clock.advance(4000)
    await scene.direct.dead_letters.purge("a")
    await scene.direct.dead_letters.purge("b")
    await scene.direct.dead_letters.purge("d")
    left = await scene.direct.stats()
    gone = left.totals.completed + left.totals.purged + left.totals.cancelled
    none_lost(["one that is counted"] * (left.totals.enqueued - gone))
    assert (left.ready, left.delayed, left.in_flight, left.dead) == (0, 0, 0, 0)
    assert left.totals.enqueued == gone
    assert scene.expired or left.totals.reclaimed == 0
    await assert_whole(scene.direct)


async def drained(queue: Any) -> list[tuple[str, str]]:
    """Completes all that can be claimed; what it was."""
    names: list[tuple[str, str]] = []
    while leases := await queue.claim(100, pools=("default", "other", "quiet")):
        names += [(lease.message.tenant, lease.message.id) for lease in leases]
        assert await queue.complete_many(leases) == ["done"] * len(leases)
    return names


def judge(operation: Operation, fault: Fault, result: Result, expected: Result) -> None:
    """Raises what is wrong with it."""
    if fault.away and (isinstance(result.answer, QueueUnavailableError) or operation.gives_less):
        return  # the accounting has been done
    names, wanted = [{item[:2] for item in one.stored[1]} for one in (result, expected)]
    none_lost(sorted(wanted - names))
    assert result.answer == expected.answer, f"expected {expected.answer!r:.300}, got {result.answer!r:.300}"
    assert result.stored == expected.stored, (
        f"expected it to leave {expected.stored!r:.900}, got {result.stored!r:.900}"
    )


CASES = [
    (one, flavour)
    for one in OPERATIONS
    for flavour in ("async", "sync")
    if flavour == "async" or not one.only_async
]


@dataclass
class Trial:
    """One operation with every fault at every place, several at a time; what came of it."""

    operation: Operation
    flavour: str
    server: str
    namespace: str
    proxies: Proxies
    expected: Result
    harm: Harm = field(default_factory=Harm)
    problems: list[str] = field(default_factory=list)

    async def one(self, kind: str, place: Place) -> bool:
        """One fault; whether it was met."""
        met = True
        try:
            name = f"{self.namespace}-{kind}-{place}".replace(" ", "-")
            proxy = self.proxies[kind, place.k % AT_ONCE]
            result = await tried(self.operation, self.flavour, self.server, proxy, name, FAULTS[kind], place)
            met = result.met
            judge(self.operation, FAULTS[kind], result, self.expected)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not what the call promises
            self.harm.blame(type(error))
            self.problems.append(f"{kind}, {place}: {error!r}")
        self.harm.faults += met
        return met

    async def all_of(self, kind: str) -> None:
        """At each request until the call sends no more, and at what is sent in the background."""
        if self.operation.surely != 0:
            await self.one_after_another(kind)
        for name in self.operation.background:
            if not await self.one(kind, Place(1, name)):
                self.problems.append(f"{kind}: no {name} met it")

    async def one_after_another(self, kind: str) -> None:
        """Each request that is sent without a fault has to meet it."""
        surely = self.operation.surely
        fewest = self.expected.requests if surely is None else surely
        for first in range(1, MOST, AT_ONCE):
            places = [Place(k) for k in range(first, first + AT_ONCE)]
            met = await asyncio.gather(*(self.one(kind, place) for place in places))
            unmet = [place for place, was_met in zip(places, met, strict=True) if not was_met]
            self.problems += [
                f"{kind}, {place}: not met, of {fewest}" for place in unmet if place.k <= fewest
            ]
            if unmet:
                return
        self.problems.append(f"{kind}: more than {MOST} requests")


async def test_an_error_that_nobody_expects_is_a_problem_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: object) -> Result:
        raise ValueError("as planned")

    monkeypatch.setitem(globals(), "tried", breaks)
    proxies: Any = {("reply lost", 1): None}
    trial = Trial(OPERATIONS[0], "async", "", "", proxies, Result(None, None, met=True, requests=1))
    assert await trial.one("reply lost", Place(1))
    assert trial.harm == Harm(faults=1, wedged=1)
    assert trial.problems == ["reply lost, request 1: ValueError('as planned')"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("operation", "flavour"), CASES, ids=lambda value: getattr(value, "name", value))
async def test_a_fault_at_any_exchange_is_made_good_or_named(
    server: str,
    namespace: str,
    proxies: Proxies,
    operation: Operation,
    flavour: str,
) -> None:
    began("exchanges", operation=operation.name, flavour=flavour)
    expected = await tried(operation, flavour, server, next(iter(proxies.values())), namespace)
    assert expected.requests, "nothing is sent that could meet a fault"
    trial = Trial(operation, flavour, server, namespace, proxies, expected)
    await asyncio.gather(*map(trial.all_of, FAULTS))
    note(
        "exchanges", operation=operation.name, flavour=flavour, covers=operation.covers,
        problems=trial.problems[:5], **asdict(trial.harm),
    )  # fmt: skip
    assert not trial.problems, f"{len(trial.problems)} of {trial.harm.faults} faults:\n" + "\n".join(
        trial.problems
    )
