"""The load: tenants with limits of their own, half of them in one shared group, and handlers that do all they may do.

A message's id says whose it is and of what kind: ``ant.flaky.o1-3.17``.
"""

from __future__ import annotations

import random
import time
import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from fairqueue import DeadLetterNow, Limit, Message, NewMessage, Release, Retry, RetryPolicy

VISIBILITY: Final = 2.0
PER_TENANT, SHARED, ORG = 3, 6, "pack"
TENANTS: Final = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen")
SHARING: Final = TENANTS[:4]
MAX_CRASHES: Final = 5
NAME: Final = "chaos"

PLAIN, LONG, FLAKY, RETRY, RELEASE, POISON, GIVEN_UP, BLOCKING = (
    "plain", "long", "flaky", "retry", "release", "poison", "given-up", "blocking",
)  # fmt: skip
DYING: Final = (POISON, GIVEN_UP)
"""Kinds that end among the dead letters; the others get there only when their workers were killed too often."""
EXPIRING, DROPPING = "expiring", "dropping"
"""Kinds with a time to live: not started by then they are dead letters, or gone."""
_KINDS: Final = {
    PLAIN: 58, LONG: 6, FLAKY: 10, RETRY: 5, RELEASE: 5, POISON: 3, GIVEN_UP: 3, BLOCKING: 4, EXPIRING: 4, DROPPING: 2,
}  # fmt: skip

POOLS: Final = ("default", "side")
GUARANTEED: Final = "elk"
"""The tenant that is guaranteed slots, now and then."""


@dataclass(frozen=True, slots=True)
class Rate:
    """``n`` deliveries a second, ``burst`` at once; ``limit`` is the declared one, ``group`` its group."""

    limit: str
    n: int
    burst: int


RATES: Final = {"hen": Rate("tenant", 6, 4), ORG: Rate("org", 20, 8)}
"""By limit group. About what workers could do without them: now the rate holds somebody up, and now they do."""


def options() -> dict[str, Any]:
    """Of every client's FairQueue."""
    return {
        "name": NAME,
        "limits": [Limit("tenant", default=PER_TENANT), Limit("org", default=SHARED, key="org")],
        "retry": RetryPolicy.fixed(0.3, max_crashes=MAX_CRASHES),
        "visibility_timeout": VISIBILITY,
        "reclaim_interval": 0.3,
        "reconcile_interval": 5,
    }


def groups(tenant: str) -> dict[str, int]:
    """The limit groups of a tenant's messages, each with its limit."""
    return {tenant: PER_TENANT} | ({ORG: SHARED} if tenant in SHARING else {})


def tenant_of(id_: str) -> str:
    return id_.partition(".")[0]


def kind_of(id_: str) -> str:
    return id_.split(".")[1]


def queue_of(id_: str) -> str:
    return "default" if zlib.crc32(id_.encode()) % 2 else "other"


def pool_of(id_: str) -> str:
    return POOLS[zlib.crc32(id_.encode()) % 5 == 0]


def time_to_live(id_: str) -> float | None:
    """Seconds until which it must have been started; None: there is no hurry."""
    if kind_of(id_) not in (EXPIRING, DROPPING):
        return None
    return (
        300 + 2 * (zlib.crc32(id_.encode()) % 1000)
    ) / 1000  # whole milliseconds, as exact as what it is held against


def draw(rng: random.Random, producer: str, number: int) -> NewMessage[Any]:
    """The producer's next message."""
    tenant, kind = rng.choice(TENANTS), rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    id_ = f"{tenant}.{kind}.{producer}.{number}"
    lives = time_to_live(id_)
    return NewMessage(
        {"run": rng.uniform(2.3, 3.3) if kind == LONG else rng.expovariate(1 / 0.12), "fails": rng.randint(1, 2)},
        tenant=tenant,
        id=id_,
        queue=queue_of(id_),
        pool=pool_of(id_),
        metadata={"org": ORG} if tenant in SHARING else {},
        delay=timedelta(seconds=rng.uniform(0.1, 1.5)) if rng.random() < 0.15 and lives is None else None,
        expires=lives,
        on_expiry="drop" if kind == DROPPING else "dead",
        priority=rng.choice([0, 0, 0, 1, 2]),
        max_attempts=3 if kind == POISON else None,
    )  # fmt: skip


def seconds(message: Message[Any]) -> float:
    """How long its handler works."""
    return min(3.3, float(message.payload["run"]))


def hold_up(message: Message[Any]) -> None:
    """Some block the event loop for a moment."""
    if kind_of(message.id) == BLOCKING:
        time.sleep(0.2)


def decide(message: Message[Any], token: str) -> None:
    """How the handler ends, by the message's kind; what may end otherwise each time goes by the delivery's token."""
    kind = kind_of(message.id)
    if kind == POISON or (kind == FLAKY and message.attempt <= message.payload["fails"]):
        raise RuntimeError("as planned")
    if kind == GIVEN_UP:
        raise DeadLetterNow("as planned")
    if kind == RETRY and message.attempt == 1:
        raise Retry(delay=0.2)
    if kind == RELEASE and zlib.crc32(token.encode()) % 2:
        raise Release(delay=0.1)
