"""What the queue promises, as a plain Python model: messages, leases, slots, and who may be claimed.

The model says which claims are allowed, not which one of several tenants comes first: that is the order tests' affair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Group = tuple[str, str]
Mid = tuple[str, str]

VISIBILITY, RETRY_DELAY, MAX_ATTEMPTS, MAX_CRASHES = 30.0, 5.0, 3, 2


@dataclass
class Known:
    """One message as the model knows it."""

    tenant: str
    id: str
    queue: str
    pool: str
    groups: tuple[Group, ...]
    priority: int
    seq: int
    state: str
    due: float = 0
    attempt: int = 0
    crashes: int = 0
    token: str = ""
    came_back: bool = False
    """By reclaim, and nobody touched it since: its last lease may still complete it."""

    @property
    def mid(self) -> Mid:
        return self.tenant, self.id

    @property
    def lane(self) -> tuple[Any, ...]:
        return self.tenant, self.queue, self.pool, self.groups

    @property
    def place(self) -> tuple[int, int]:
        return -self.priority, self.seq


@dataclass
class Held:
    """One delivery: what its Lease object was asked and answered, and until when it lasts."""

    lease: Any
    mid: Mid
    deadline: float
    asked: str | None = None
    outcome: str | None = None
    lost: bool = False


@dataclass
class Model:
    """All messages, all deliveries, and the slots of each group by message and token."""

    defaults: dict[str, int | None]
    now: float = 0
    seq: int = 0
    messages: dict[Mid, Known] = field(default_factory=dict)
    deliveries: list[Held] = field(default_factory=list)
    limits: dict[Group, int | None] = field(default_factory=dict)
    slots: dict[Group, dict[Mid, str]] = field(default_factory=dict)
    tokens: dict[Mid, str] = field(default_factory=dict)

    # --- reading ---------------------------------------------------------------------------------------------

    def limit(self, group: Group) -> int | None:
        return self.limits.get(group, self.defaults[group[0]])

    def held(self, group: Group) -> int:
        return len(self.slots.get(group, {}))

    def in_state(self, state: str) -> list[Known]:
        return [message for message in self.messages.values() if message.state == state]

    def admits(self, message: Known) -> bool:
        """Whether every group has room, the message's own leftover slots not counted."""
        for group in message.groups:
            limit = self.limit(group)
            own = message.mid in self.slots.get(group, {})
            if limit is not None and self.held(group) - own >= limit:
                return False
        return True

    def has_leftover(self, message: Known) -> bool:
        return any(message.mid in self.slots.get(group, {}) for group in message.groups)

    def heads(self) -> dict[tuple[Any, ...], Known]:
        """The first ready message of each lane."""
        found: dict[tuple[Any, ...], Known] = {}
        for message in sorted(self.in_state("ready"), key=lambda m: m.place):
            found.setdefault(message.lane, message)
        return found

    def claimable(self, pools: tuple[str, ...]) -> list[Known]:
        """What a claim could give now: heads with room, and messages of any place over their own leftover."""
        heads = list(self.heads().values())
        over = [message for message in self.in_state("ready") if self.has_leftover(message)]
        return [m for m in heads + over if m.pool in pools and self.admits(m)]

    def ghosts(self) -> set[tuple[Group, Mid]]:
        """Slots without a lease behind them."""
        return {
            (group, mid)
            for group, slots in self.slots.items()
            for mid, token in slots.items()
            if not self._flying(mid, token)
        }

    def _flying(self, mid: Mid, token: str) -> bool:
        message = self.messages.get(mid)
        return message is not None and message.state == "in_flight" and message.token == token

    def current(self, held: Held) -> bool:
        """Whether this delivery still owns its message."""
        return self._flying(held.mid, held.lease.token)

    # --- transitions -----------------------------------------------------------------------------------------

    def enqueue(
        self,
        tenant: str,
        id_: str,
        queue: str,
        pool: str,
        shared: tuple[Group, ...],
        priority: int,
        delay: float,
    ) -> bool:
        if (tenant, id_) in self.messages:
            return False
        self.seq += 1
        groups: tuple[Group, ...] = (("tenant", tenant), *shared)
        state = "delayed" if delay else "ready"
        self.messages[tenant, id_] = Known(
            tenant, id_, queue, pool, groups, priority, self.seq, state, due=self.now + delay
        )
        return True

    def promote(self) -> None:
        for message in self.in_state("delayed"):
            if message.due <= self.now:
                message.state = "ready"

    def take(self, lease: Any, pools: tuple[str, ...], visibility: float = VISIBILITY) -> None:
        """One lease of a claim: allowed only by the promises."""
        mid = lease.message.tenant, lease.message.id
        message = self.messages[mid]
        assert message.state == "ready", f"{mid} is {message.state}"
        assert message.pool in pools
        assert self.admits(message), f"{mid} came in over a full group"
        head = self.heads()[message.lane]
        assert head is message or self.has_leftover(message), f"{mid} overtook {head.mid}"
        assert lease.token > self.tokens.get(mid, ""), "a token that is not greater than the one before"
        message.state, message.attempt, message.token = "in_flight", message.attempt + 1, lease.token
        message.came_back = False
        self.tokens[mid] = lease.token
        assert (lease.message.attempt, lease.message.crashes) == (message.attempt, message.crashes)
        for group in message.groups:
            self.slots.setdefault(group, {})[mid] = lease.token
        self.deliveries.append(Held(lease, mid, self.now + visibility))

    def settle(self, held: Held, action: str, delay: float = 0) -> str:
        """The outcome a settle must have: what the Lease object remembers, else what the promises say."""
        if held.asked is not None:
            return held.outcome or "lost" if held.asked == action else "lost"
        held.asked, held.outcome = action, self._settled(held, action, delay)
        held.lost = held.outcome == "lost"
        return held.outcome

    def _settled(self, held: Held, action: str, delay: float) -> str:
        message = self.messages.get(held.mid)
        if message is None or message.token != held.lease.token:
            return "lost"
        if message.state == "in_flight":
            self._free(message)
            return self._ended(message, action, delay)
        if action == "complete" and message.came_back:
            del self.messages[held.mid]
            return "done"
        return "lost"

    def _ended(self, message: Known, action: str, delay: float) -> str:
        message.came_back = False
        if action == "complete":
            del self.messages[message.mid]
            return "done"
        if action == "release":
            message.attempt -= 1
            self._put_back(message, delay)
            return "released"
        if action == "dead_letter" or message.attempt >= MAX_ATTEMPTS:
            message.state = "dead"
            return "dead"
        self._put_back(message, RETRY_DELAY)
        return "retried"

    def _put_back(self, message: Known, delay: float) -> None:
        message.state = "delayed" if delay else "ready"
        message.due = self.now + delay

    def _free(self, message: Known) -> None:
        for group in message.groups:
            self.slots.get(group, {}).pop(message.mid, None)

    def reclaim(self) -> tuple[set[Mid], set[Mid]]:
        """What came back and what died."""
        back, dead = set(), set()
        for held in self.deliveries:
            if held.deadline > self.now or not self.current(held):
                continue
            message = self.messages[held.mid]
            self._free(message)
            message.crashes, message.came_back = message.crashes + 1, True
            message.state = "dead" if message.crashes >= MAX_CRASHES else "ready"
            (dead if message.state == "dead" else back).add(held.mid)
        return back, dead

    def extend(self, held: Held) -> bool:
        if not self.current(held):
            return False
        held.deadline = self.now + VISIBILITY
        return True

    def redrive(self, mids: list[Mid]) -> int:
        letters = sorted((self.messages[mid] for mid in set(mids)), key=lambda m: m.seq)
        for message in letters:
            self.seq += 1
            message.seq, message.state = self.seq, "ready"
            message.attempt, message.crashes, message.came_back = 0, 0, False
        return len(letters)

    def leak(self, group: Group, mid: Mid) -> None:
        self.slots.setdefault(group, {})[mid] = "leaked"

    def reconcile(self) -> set[tuple[Group, Mid]]:
        """The slots that are freed."""
        ghosts = self.ghosts()
        for group, mid in ghosts:
            del self.slots[group][mid]
        return ghosts
