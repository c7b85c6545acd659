"""The load: tenants with limits of their own, half of them in one shared group, and handlers that do all they may do.

A message's id says whose it is and of what kind: ``ant.flaky.o1-3.17``.
"""

from __future__ import annotations

import random
import time
import zlib
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
_KINDS: Final = {PLAIN: 64, LONG: 6, FLAKY: 10, RETRY: 5, RELEASE: 5, POISON: 3, GIVEN_UP: 3, BLOCKING: 4}
DYING: Final = (POISON, GIVEN_UP)
"""Kinds that end among the dead letters; the others get there only when their workers were killed too often."""


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


def draw(rng: random.Random, producer: str, number: int) -> NewMessage[Any]:
    """The producer's next message."""
    tenant, kind = rng.choice(TENANTS), rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    return NewMessage(
        {"run": rng.uniform(2.3, 3.3) if kind == LONG else rng.expovariate(1 / 0.12), "fails": rng.randint(1, 2)},
        tenant=tenant,
        id=f"{tenant}.{kind}.{producer}.{number}",
        queue=rng.choice(["default", "other"]),
        metadata={"org": ORG} if tenant in SHARING else {},
        delay=timedelta(seconds=rng.uniform(0.1, 1.5)) if rng.random() < 0.15 else None,
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
