"""What the queue holds, as plain Python: messages, leases, slots, and who may be claimed. How it moves: model.py."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self

from fairqueue.testing import ManualClock
from tests.property.guarantee_oracle import Guarantees, shared
from tests.property.rate_oracle import Bucket

Group = tuple[str, str]
Mid = tuple[str, str]
Selectors = tuple[str | None, str | None, str | None]
"""Tenant, queue and pool; None is any."""

START = ManualClock().now


def instant(seconds: float) -> datetime:
    """The model counts seconds from the clock's start."""
    return START + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Declared:
    """What a client declares: the defaults of its limits by name, and its retry policy."""

    defaults: dict[str, int | None]
    retry_delay: float
    max_attempts: int
    max_crashes: int


@dataclass
class Known:
    """One message as the model knows it."""

    tenant: str
    id: str
    queue: str
    pool: str
    groups: tuple[Group, ...]
    priority: int
    cost: float
    own_attempts: int | None
    seq: int
    state: str
    due: float = 0
    expires: float | None = None
    dropped: bool = False
    """Then, and not made a dead letter."""
    attempt: int = 0
    crashes: int = 0
    redrives: int = 0
    token: str = ""
    came_back: bool = False
    """By reclaim, and nobody touched it since: its last lease may still complete it."""
    dedupe_for: float = 0
    deadline: float = 0
    claimed_at: float = 0
    consumer: str | None = None
    most_attempts: int = 0
    most_crashes: int = 0
    """The retry budget in force when it was claimed."""
    death: int = 0
    reason: str = ""
    cancelled: bool = False
    """While it ran: it ends with this delivery."""

    @property
    def mid(self) -> Mid:
        return self.tenant, self.id

    @property
    def ends_at(self) -> float | None:
        """When it expires: of one that waits for its first start."""
        return self.expires if self.state in ("ready", "delayed") and self.attempt == 0 else None

    @property
    def lane(self) -> tuple[Any, ...]:
        return self.tenant, self.queue, self.pool, self.groups

    @property
    def place(self) -> tuple[int, int]:
        return -self.priority, self.seq


@dataclass
class Held:
    """One delivery somebody holds: what its Lease object was asked and answered, and whose it is."""

    lease: Any
    mid: Mid
    client: int
    visibility: float
    asked: str | None = None
    outcome: str | None = None
    lost: bool = False
    begun: bool = False
    """Somebody kept it alive."""


@dataclass
class State:
    """All messages, all deliveries somebody still holds, and the slots of each group by message and token."""

    declared: Declared
    now: float = 0
    seq: int = 0
    deaths: int = 0
    messages: dict[Mid, Known] = field(default_factory=dict)
    deliveries: list[Held] = field(default_factory=list)
    seen: dict[Mid, float] = field(default_factory=dict)
    """Until when ids are not accepted again."""
    backlogs: dict[str, int] = field(default_factory=dict)
    limits: dict[Group, int | None] = field(default_factory=dict)
    pauses: set[Selectors] = field(default_factory=set)
    slots: dict[Group, dict[Mid, str]] = field(default_factory=dict)
    rates: dict[Group, Bucket] = field(default_factory=dict)
    guarantees: Guarantees = field(default_factory=Guarantees)
    tokens: dict[Mid, str] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    counted: bool = True
    """No script was cut so far: the totals of the namespace are exact."""

    def fork(self) -> Self:
        """What may become of it can be tried on the copy. The deliveries are the same."""
        return replace(
            self,
            messages={mid: replace(message) for mid, message in self.messages.items()},
            seen=dict(self.seen),
            backlogs=dict(self.backlogs),
            limits=dict(self.limits),
            pauses=set(self.pauses),
            slots={group: dict(slots) for group, slots in self.slots.items()},
            rates={group: replace(bucket) for group, bucket in self.rates.items()},
            guarantees=self.guarantees.fork(),
            tokens=dict(self.tokens),
            totals=Counter(self.totals),
        )

    @property
    def now_ms(self) -> int:
        return round(self.now * 1000)

    def limit(self, group: Group) -> int | None:
        return self.limits.get(group, self.declared.defaults.get(group[0]))

    def used(self, tenant: str) -> set[Group]:
        """The shared groups of the tenant's messages; what is dead may never come back."""
        return shared(group for m in self.of(tenant) if m.state != "dead" for group in m.groups)

    def overbooked(self) -> set[Group]:
        """Shared groups that have less than those who use them are guaranteed."""
        groups = set[Group]().union(*self.guarantees.uses.values())
        return {group for group in groups if self.guarantees.beyond(group, self.limit(group))}

    def too_low(self, group: Group, limit: int | None) -> bool:
        """Whether a shared group's limit is refused: it makes it worse."""
        before = self.limit(group)
        return self.guarantees.beyond(group, limit) and not (before and limit and before <= limit)

    def held(self, group: Group) -> int:
        return len(self.slots.get(group, {}))

    def in_state(self, state: str) -> list[Known]:
        return [message for message in self.messages.values() if message.state == state]

    def of(self, tenant: str, state: str | None = None) -> list[Known]:
        return [m for m in self.messages.values() if m.tenant == tenant and state in (None, m.state)]

    def letters(self, tenant: str) -> list[Known]:
        """In the order of death."""
        return sorted(self.of(tenant, "dead"), key=lambda message: message.death)

    def admits(self, message: Known) -> bool:
        """Whether every group has room, the message's own leftover slots not counted, and a token."""
        return not any(self.full_for(message, group) for group in message.groups)

    def full_for(self, message: Known, group: Group) -> bool:
        """Whether the group keeps the message out; a slot of its own from before is room for it, but no token."""
        if group in self.rates and self.rates[group].tokens(self.now_ms) <= 0:
            return True
        limit = self.limit(group)
        own = message.mid in self.slots.get(group, {})
        return limit is not None and self.held(group) - own >= limit

    def paused(self, message: Known) -> bool:
        of = (message.tenant, message.queue, message.pool)
        return any(
            all(one in (None, is_) for one, is_ in zip(given, of, strict=True)) for given in self.pauses
        )

    def has_leftover(self, message: Known) -> bool:
        return any(message.mid in self.slots.get(group, {}) for group in message.groups)

    def lanes(self) -> dict[tuple[Any, ...], list[Known]]:
        """The ready messages of each lane, in order."""
        found: dict[tuple[Any, ...], list[Known]] = {}
        for message in sorted(self.in_state("ready"), key=lambda m: m.place):
            found.setdefault(message.lane, []).append(message)
        return found

    def claimable(self, pools: tuple[str, ...]) -> list[Known]:
        """What a claim could give now: heads with room, and messages of any place over their own leftover."""
        heads = [messages[0] for messages in self.lanes().values()]
        over = [message for message in self.in_state("ready") if self.has_leftover(message)]
        return [m for m in heads + over if m.pool in pools and self.admits(m) and not self.paused(m)]

    def ghosts(self) -> set[tuple[Group, Mid]]:
        """Slots without a lease behind them."""
        return {
            (group, mid)
            for group, slots in self.slots.items()
            for mid, token in slots.items()
            if not self.flying(mid, token)
        }

    def flying(self, mid: Mid, token: str) -> bool:
        message = self.messages.get(mid)
        return message is not None and message.state == "in_flight" and message.token == token

    def current(self, held: Held) -> bool:
        """Whether this delivery still owns its message."""
        return self.flying(held.mid, held.lease.token)
