"""What the queue promises, as a plain Python model: every transition of SEMANTICS on plain dictionaries.

The model says which claims are allowed, not which one of several tenants comes first: that is the order tests' affair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.property.model_state import Declared, Group, Held, Known, Mid, Selectors, State, instant

__all__ = ["Declared", "Group", "Held", "Known", "Mid", "Model", "Selectors", "instant"]


@dataclass
class Model(State):
    """The state of the queue and what each operation makes of it."""

    def enqueue(self, message: Known) -> bool:
        """``message.due`` is when it may run."""
        if message.mid in self.messages or self.knows(message):
            return False
        if message.dedupe_for:
            self.seen[message.mid] = self.now + message.dedupe_for
        self.seq += 1
        message.seq, message.state = self.seq, "delayed" if message.due > self.now else "ready"
        self.messages[message.mid] = message
        self.guarantees.note(message.tenant, message.groups)
        self.totals["enqueued"] += 1
        return True

    def knows(self, message: Known) -> bool:
        """Whether it was seen before, where that is asked for."""
        return bool(message.dedupe_for) and self.seen.get(message.mid, -math.inf) > self.now

    def refused(self, messages: Sequence[Known]) -> set[str]:
        """The tenants of which none of these goes in: all of them would be more than may wait."""
        fresh = {
            message.mid
            for message in messages
            if message.mid not in self.messages and not self.knows(message)
        }
        more = Counter(tenant for tenant, _ in fresh)
        waits = Counter(m.tenant for m in self.messages.values() if m.state in ("ready", "delayed"))
        return {
            tenant for tenant in more if waits[tenant] + more[tenant] > self.backlogs.get(tenant, math.inf)
        }

    def expire(self) -> None:
        """Those not started in time end, in the order of their instants."""
        ending = [m for m in self.messages.values() if m.ends_at is not None and m.ends_at <= self.now]
        for message in sorted(ending, key=lambda m: (m.expires, "\x1f".join(m.mid))):
            self.totals["expired"] += 1
            if message.dropped:
                del self.messages[message.mid]
                self.totals["dropped"] += 1
            else:
                self._die(message, "expired")

    def promote(self) -> None:
        """What a claim does on its way."""
        self.expire()
        for message in self.in_state("delayed"):
            if message.due <= self.now:
                message.state = "ready"

    # --- claiming ----------------------------------------------------------------------------------------------

    def take(self, lease: Any, pools: Sequence[str], visibility: float, client: int) -> None:
        """One lease of a claim: allowed only by the promises."""
        message = self.messages[lease.message.tenant, lease.message.id]
        mid = message.mid
        assert message.state == "ready", f"{mid} is {message.state}"
        assert message.pool in pools
        assert self.admits(message), f"{mid} came in over a full group"
        assert not self.paused(message), f"{mid} is paused"
        head = self.lanes()[message.lane][0]
        assert head is message or self.has_leftover(message), f"{mid} overtook {head.mid}"
        self.fly(message, lease.token, visibility)
        assert (lease.message.attempt, lease.message.crashes) == (message.attempt, message.crashes)
        assert lease.deadline == instant(message.deadline)
        self.deliveries.append(Held(lease, mid, client, visibility))

    def fly(self, message: Known, token: str, visibility: float) -> None:
        """Claimed, by whomever."""
        assert token > self.tokens.get(message.mid, ""), "a token that is not greater than the one before"
        message.state, message.attempt, message.token = "in_flight", message.attempt + 1, token
        message.came_back, message.deadline, message.claimed_at = False, self.now + visibility, self.now
        message.most_attempts = message.own_attempts or self.declared.max_attempts
        message.most_crashes = self.declared.max_crashes
        self.tokens[message.mid] = token
        for group in message.groups:
            self.slots.setdefault(group, {})[message.mid] = token
            if group in self.rates:
                self.rates[group].take(self.now_ms)
        self.totals["claimed"] += 1

    def work_off(self, pools: tuple[str, ...]) -> dict[Mid, int]:
        """A worker completes all it can get, one slot at a time; how many tries each message has had then."""
        ran = {}
        self.promote()
        while found := self.claimable(pools):
            message = self.messages.pop(found[0].mid)
            ran[message.mid] = message.attempt + 1
            self._free(message)
            self.totals.update(["claimed", "completed"])
        return ran

    def abandon(self, client: int) -> None:
        """The process died: nobody knows of its leases any more."""
        self.deliveries = [held for held in self.deliveries if held.client != client]

    # --- the end of a delivery ---------------------------------------------------------------------------------

    def settle(self, held: Held, action: str, delay: float = 0) -> str:
        """The outcome a settle must have: what the Lease object remembers, else what the promises say."""
        if held.asked is not None:
            return held.outcome or "lost" if held.asked == action else "lost"
        held.asked, held.outcome = action, self._settled(held, action, delay)
        held.lost = held.lost or held.outcome == "lost"
        return held.outcome

    def _settled(self, held: Held, action: str, delay: float) -> str:
        message = self.messages.get(held.mid)
        if message is None or message.token != held.lease.token:
            return "lost"
        if message.state == "in_flight":
            self._free(message)
            for group in self.rates.keys() & set(message.groups):
                if action == "release" and not held.begun:
                    self.rates[group].give_back(self.now_ms)
            return self._ended(message, action, delay)
        if action == "complete" and message.came_back:
            return self._completed(message)
        return "lost"

    def _ended(self, message: Known, action: str, delay: float) -> str:
        message.came_back = False
        if action == "complete":
            return self._completed(message)
        if message.cancelled:
            return self._gone(message)
        if action == "release":
            message.attempt -= 1
            self._put_back(message, delay)
            self.totals["released"] += 1
            return "released"
        if action == "dead_letter":
            return self._die(message, "enough")
        self.totals["failed"] += 1
        if message.attempt >= message.most_attempts:
            return self._die(message, "failed")
        self._put_back(message, self.declared.retry_delay)
        self.totals["retried"] += 1
        return "retried"

    def _completed(self, message: Known) -> str:
        self._free(message)
        del self.messages[message.mid]
        self.totals["completed"] += 1
        return "done"

    def _gone(self, message: Known) -> str:
        del self.messages[message.mid]
        self.totals["cancelled"] += 1
        return "cancelled"

    def _die(self, message: Known, reason: str) -> str:
        self.deaths += 1
        message.state, message.death, message.reason = "dead", self.deaths, reason
        self.totals["dead_lettered"] += 1
        return "dead"

    def _put_back(self, message: Known, delay: float) -> None:
        message.state = "delayed" if delay else "ready"
        message.due = self.now + delay

    def _free(self, message: Known) -> None:
        for group in message.groups:
            self.slots.get(group, {}).pop(message.mid, None)

    def extend(self, held: Held) -> bool:
        if not self.current(held):
            held.lost = True
        elif not held.lost:
            self.messages[held.mid].deadline = self.now + held.visibility
        return not held.lost

    # --- maintenance and operators -----------------------------------------------------------------------------

    def reclaim(self) -> tuple[set[Mid], set[Mid]]:
        """What came back and what died."""
        back, dead = set(), set()
        for message in sorted(self.in_state("in_flight"), key=lambda m: (m.deadline, "\x1f".join(m.mid))):
            if message.deadline > self.now:
                break
            self._free(message)
            if message.cancelled:
                self._gone(message)
                continue
            message.crashes, message.came_back = message.crashes + 1, True
            self.totals["reclaimed"] += 1
            if message.crashes >= message.most_crashes:
                self._die(message, "worker lost")
                dead.add(message.mid)
            else:
                message.state = "ready"
                back.add(message.mid)
        return back, dead

    def redrive(self, mids: list[Mid]) -> int:
        letters = sorted((self.messages[mid] for mid in set(mids)), key=lambda m: m.seq)
        for message in letters:
            self.seq += 1
            message.seq, message.state, message.redrives = self.seq, "ready", message.redrives + 1
            message.attempt, message.crashes, message.came_back = 0, 0, False
            message.expires = None
            self.guarantees.note(message.tenant, message.groups)
            self.totals["redriven"] += 1
        return len(letters)

    def purge(self, mids: list[Mid]) -> int:
        for mid in mids:
            del self.messages[mid]
            self.totals["purged"] += 1
        return len(mids)

    def cancel(self, mid: Mid) -> str:
        message = self.messages.get(mid)
        if message is None:
            return "not_found"
        if message.state != "in_flight":
            return self._gone(message)
        message.cancelled = True
        return "cancelling"

    def waiting(self, tenant: str, queue: str | None) -> list[Mid]:
        """What a purge ends."""
        found = self.of(tenant, "ready") + self.of(tenant, "delayed")
        return [message.mid for message in found if queue in (None, message.queue)]

    def set_limit(self, group: Group, limit: int | None) -> bool:
        """Whether it is allowed. A tenant's own takes its guarantee away."""
        if self.too_low(group, limit):
            return False
        self.limits[group] = limit
        if group[0] == "tenant":
            self.guarantees.remove(group[1])
        return True

    def reset_limit(self, group: Group) -> bool:
        """The same of the default."""
        if not self.set_limit(group, self.declared.defaults[group[0]]):
            return False
        del self.limits[group]
        return True

    def guarantee(self, tenant: str, limit: int | None, slots: int) -> bool:
        """Whether it is allowed. No worse than before it always is."""
        tried, before = self.guarantees.fork(), self.guarantees.slots.get(tenant, 0)
        tried.set(tenant, slots, self.used(tenant))
        worse = any(tried.beyond(group, self.limit(group)) for group in tried.uses[tenant])
        if slots > before and worse:
            return False
        self.guarantees, self.limits["tenant", tenant] = tried, limit
        return True

    def leak(self, group: Group, mid: Mid) -> None:
        self.slots.setdefault(group, {})[mid] = "leaked"

    def reconcile(self) -> set[tuple[Group, Mid]]:
        """The slots that are freed."""
        ghosts = self.ghosts()
        for group, mid in ghosts:
            del self.slots[group][mid]
        return ghosts
