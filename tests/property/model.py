"""What the queue promises, as a plain Python model: every transition of SEMANTICS on plain dictionaries.

The model says which claims are allowed, not which one of several tenants comes first: that is the order tests' affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.property.model_state import Declared, Group, Held, Known, Mid, State, instant

__all__ = ["Declared", "Group", "Held", "Known", "Mid", "Model", "instant"]


@dataclass
class Model(State):
    """The state of the queue and what each operation makes of it."""

    def enqueue(self, message: Known) -> bool:
        """``message.due`` is when it may run."""
        if message.mid in self.messages:
            return False
        self.seq += 1
        message.seq, message.state = self.seq, "delayed" if message.due > self.now else "ready"
        self.messages[message.mid] = message
        self.totals["enqueued"] += 1
        return True

    def promote(self) -> None:
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
            return self._ended(message, action, delay)
        if action == "complete" and message.came_back:
            return self._completed(message)
        return "lost"

    def _ended(self, message: Known, action: str, delay: float) -> str:
        message.came_back = False
        if action == "complete":
            return self._completed(message)
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
            self.totals["redriven"] += 1
        return len(letters)

    def purge(self, mids: list[Mid]) -> int:
        for mid in mids:
            del self.messages[mid]
            self.totals["purged"] += 1
        return len(mids)

    def leak(self, group: Group, mid: Mid) -> None:
        self.slots.setdefault(group, {})[mid] = "leaked"

    def reconcile(self) -> set[tuple[Group, Mid]]:
        """The slots that are freed."""
        ghosts = self.ghosts()
        for group, mid in ghosts:
            del self.slots[group][mid]
        return ghosts
