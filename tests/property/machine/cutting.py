"""Scripts that end half way, as when the server is killed.

A call that was cut raises; it may have been done, not done, or done in part. Then the maintenance passes run, each message
is looked up, and the model adopts what became of it: one of the states that the promises allow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from fairqueue import FairQueue, FairQueueError, NewMessage
from fairqueue._engine.keys import US, join
from tests.engine.tools import raw
from tests.property.machine.base import TENANTS, VISIBILITY, clients, pools, which
from tests.property.machine.consuming import SETTLES_MANY, Consuming, delays
from tests.property.machine.operating import groups
from tests.property.machine.producing import KINDS, WHENS, Producing
from tests.property.model import Group, Known, Mid, Model, instant
from tests.property.model_state import START
from tests.property.rate_oracle import LONG_AGO
from tests.support.cuts import Cut, cut

START_MS = int(START.timestamp() * 1000)
Alternatives = dict[Mid, list[Known | None]]
commands = st.integers(1, 30) | st.integers(1, 90)
"""The command before which a script ends. Those that make fewer run to their end."""


class Cutting(Consuming, Producing):
    """A rule for each script that moves messages or frees slots."""

    def cut_short(
        self, script: str, k: int, client: int, call: Callable[[FairQueue[Any]], Awaitable[Any]]
    ) -> Any:
        """What the call answered, or None: the script has ended before its k-th command."""
        queue, fault = self.queues[client], Cut(script, k, ends=True)

        async def act() -> Any:
            with cut(queue, fault):
                answered = None
                with suppress(FairQueueError):
                    answered = await call(queue)
            ended = await fault.reached(queue)
            assert ended == (answered is None), f"{fault} reached: {ended}, and the call answered {answered}"
            return answered

        return self.run(act)

    def mended(self) -> None:
        """The maintenance passes after a cut."""

        async def passes() -> None:
            await self.queue.reclaim()
            await self.queue.reconcile()
            await self.queue.audit(fix=True)

        self.run(passes)
        self.model.counted = False

    # --- adopting what became of it ----------------------------------------------------------------------------

    def adopt_either(self, before: Model, after: Model) -> None:
        """Each message is as before the call, or as after it; limits and order numbers are those of after."""
        before.reclaim()
        after.reclaim()
        mids = before.messages | after.messages
        self.model = after
        self.adopt({mid: [before.messages.get(mid), after.messages.get(mid)] for mid in mids})

    def adopt(self, alternatives: Alternatives) -> None:
        """Each message is one of its alternatives; slots are held by what is in flight, and by nothing else."""
        self.mended()
        for mid, allowed in alternatives.items():
            info = self.run(lambda mid=mid: self.queue.get(*mid))
            found = next((one for one in allowed if self.is_as(info, one)), "another")
            assert found != "another", f"{mid} is {info}, expected one of {allowed}"
            self.model.messages.pop(mid, None)
            if isinstance(found, Known):
                self.model.messages[mid] = found
        self.model.slots = {}
        for message in self.model.in_state("in_flight"):
            self.model.tokens[message.mid] = message.token
            for group in message.groups:
                self.model.slots.setdefault(group, {})[message.mid] = message.token
        self.adopt_tokens()
        self.adopt_uses()

    def adopt_uses(self) -> None:
        """A message that was not stored may have told of its groups; one that is there has."""
        for tenant, allowed in self.model.guarantees.uses.items():
            members = self.run(partial(raw, self.queue, "ZRANGE", "uses", tenant, args=(0, -1)))
            noted = {tuple(member.decode().split(US)) for member in members if member}
            assert self.model.used(tenant) <= noted <= allowed
            self.model.guarantees.uses[tenant] = noted

    def adopt_tokens(self) -> None:
        """A script that was cut may have taken tokens and nothing with them: never the other way."""
        for group, bucket in self.model.rates.items():
            arrival = self.run(partial(raw, self.queue, "HGET", "arrivals", args=(join(*group),)))
            found = LONG_AGO
            if arrival:
                full_at, part = map(int, arrival.split(b"\x1f"))
                found = Fraction(full_at - START_MS) + Fraction(part, bucket.rate[0])
            assert bucket.full_at <= max(found, self.model.now_ms)
            bucket.full_at = found

    def is_as(self, info: Any, message: Known | None) -> bool:
        if info is None or message is None:
            return info is message
        if info.state != message.state or info.message.attempt != message.attempt:
            return False
        if info.cancelling != message.cancelled:
            return False
        if message.state == "in_flight":
            if not message.token:  # of a claim that was cut: any that is newer
                assert info.lease.token > self.model.tokens.get(message.mid, "")
                message.token = info.lease.token
            return bool((info.lease.token, info.lease.deadline) == (message.token, instant(message.deadline)))
        return message.state != "delayed" or bool(info.due_at == instant(message.due))

    # --- the scripts -------------------------------------------------------------------------------------------

    @rule(kind=KINDS, when=WHENS, count=st.integers(1, 4), k=commands, client=clients)
    def cut_enqueue(
        self, kind: dict[str, Any], when: tuple[str, int] | None, count: int, k: int, client: int
    ) -> None:
        kind = kind | {"dedupe": {}}  # whether it is seen again depends on how far it came
        made = [self.made(kind, when) for _ in range(count)]
        if self.model.refused([self.known(kind, when, one) for one in made]):
            return
        messages = [NewMessage({"id": one["id"]}, **one) for one in made]
        sent = self.cut_short("enqueue", k, client, lambda queue: queue.enqueue_many(messages))
        before = self.model.fork()
        for one in made:
            self.model.enqueue(self.known(kind, when, one))
        if sent is None:
            self.adopt_either(before, self.model)
            again = self.run(
                lambda: self.queues[client].enqueue_many(messages)
            )  # the same ids: each is there once
            for one, stored in zip(made, again, strict=True):
                assert stored.created == self.model.enqueue(self.known(kind, when, one))

    @rule(n=st.sampled_from([1, 2, 5]), pools=pools, k=commands, client=clients, dies=st.booleans())
    def cut_claim(self, n: int, pools: tuple[str, ...], k: int, client: int, dies: bool) -> None:
        """What was taken for nobody comes with the client's next claim; if it died, when the lease has expired."""
        leases = self.cut_short("claim", k, client, lambda queue: queue.claim(n, pools=pools))
        if leases is not None:
            self.taken(leases, pools, client, None)
            return
        held = {group: self.model.held(group) for group in self.model.slots}
        taken = self.adopt_claim(pools)
        assert len(taken) <= n
        for group in {group for message in taken for group in message.groups}:
            most = self.model.limit(group)
            assert most is None or self.model.held(group) <= max(most, held.get(group, 0))
        if dies:
            self.die(client)
        else:
            self.claim_what_is_owed(n, pools, client, {message.mid: message.token for message in taken})

    def adopt_claim(self, pools: tuple[str, ...]) -> list[Known]:
        """What was claimable is as it was, promoted, or in flight; returns what is in flight now and was not."""
        before, promoted = self.model.fork(), self.model.fork()
        promoted.promote()
        ready = {m.mid: m for m in promoted.in_state("ready") if m.pool in pools and not promoted.paused(m)}
        flying = {mid: self.flown(message) for mid, message in ready.items()}
        before.reclaim()
        promoted.reclaim()
        self.model = promoted
        self.adopt(
            {
                mid: [
                    before.messages[mid],
                    promoted.messages.get(mid),
                    *([flying[mid]] if mid in flying else []),
                ]
                for mid in before.messages
            }
        )
        return [m for mid, m in self.model.messages.items() if mid in flying and m.state == "in_flight"]

    def flown(self, message: Known) -> Known:
        """The message if it was claimed now, by a token that only the server knows."""
        return replace(
            message, state="in_flight", attempt=message.attempt + 1, token="", came_back=False, consumer=None,
            deadline=self.model.now + VISIBILITY, claimed_at=self.model.now,
            most_attempts=message.own_attempts or self.model.declared.max_attempts,
            most_crashes=self.model.declared.max_crashes,
        )  # fmt: skip

    def claim_what_is_owed(self, n: int, pools: tuple[str, ...], client: int, owed: dict[Mid, str]) -> None:
        leases = self.run(lambda: self.queues[client].claim(n, pools=pools))
        for lease in leases:
            mid = lease.message.tenant, lease.message.id
            if mid in owed:  # back to what it was before the claim, which is answered only now
                assert owed.pop(mid) == lease.token
                message = self.model.messages[mid]
                message.state, message.attempt, message.deadline = "ready", message.attempt - 1, 0
                for group in self.model.rates.keys() & set(message.groups):
                    self.model.rates[group].give_back(self.model.now_ms)
                self.model._free(message)
                self.model.tokens.pop(mid)
        assert not owed, f"{owed} were taken, and are not given to who asked again"
        self.taken(leases, pools, client, None)

    @precondition(lambda self: any(not held.asked for held in self.model.deliveries))
    @rule(
        count=st.integers(1, 4),
        action=st.sampled_from(sorted(SETTLES_MANY)),
        delay=delays,
        k=commands,
        client=clients,
    )
    def cut_settle(self, count: int, action: str, delay: float, k: int, client: int) -> None:
        chosen = [held for held in self.model.deliveries if not held.asked][-count:]
        leases = [held.lease for held in chosen]
        outcomes = self.cut_short(
            "settle", k, client, lambda queue: SETTLES_MANY[action](queue, leases, delay)
        )
        before = self.model.fork()
        lost = [held.lost for held in chosen]
        expected = [self.model.settle(held, action, delay) for held in chosen]
        if outcomes is not None:
            assert outcomes == expected
            return
        for held, was_lost in zip(chosen, lost, strict=True):
            held.asked, held.outcome, held.lost = None, None, was_lost  # it may be asked again
        self.adopt_either(before, self.model)

    @precondition(lambda self: self.model.deliveries)
    @rule(count=st.integers(1, 3), k=commands, client=clients)
    def cut_extend(self, count: int, k: int, client: int) -> None:
        chosen = self.model.deliveries[-count:]
        answered = self.cut_short(
            "extend", k, client, lambda queue: queue.extend_many([held.lease for held in chosen])
        )
        before, lost = self.model.fork(), [held.lost for held in chosen]
        expected = ["extended" if self.extended(held) else "lost" for held in chosen]
        if answered is not None:
            assert answered == expected
            return
        for held, was_lost in zip(chosen, lost, strict=True):
            held.lost = was_lost
        self.adopt_either(before, self.model)

    @rule(k=commands)
    def cut_reclaim(self, k: int) -> None:
        report = self.cut_short("reclaim", k, 0, lambda queue: queue.reclaim())
        before = self.model.fork()
        expected = self.model.reclaim()
        if report is None:
            self.adopt_either(before, self.model)
        else:
            assert (set(report.reclaimed), set(report.dead)) == expected

    @precondition(lambda self: self.model.in_state("dead"))
    @rule(index=which, gone=st.booleans(), k=commands, client=clients)
    def cut_letters(self, index: int, gone: bool, k: int, client: int) -> None:
        """Redriven, or purged."""
        dead = self.model.in_state("dead")
        tenant = dead[index % len(dead)].tenant
        letters = [message.mid for message in self.model.letters(tenant)]
        if gone:
            done = self.cut_short("purge_dead", k, client, lambda queue: queue.dead_letters.purge(tenant))
        else:
            done = self.cut_short("redrive", k, client, lambda queue: queue.dead_letters.redrive_all(tenant))
        before = self.model.fork()
        expected = self.model.purge(letters) if gone else self.model.redrive(letters)
        if done is None:
            self.adopt_either(before, self.model)
        else:
            assert done == expected

    @precondition(lambda self: self.model.messages)
    @rule(index=which, k=commands, client=clients)
    def cut_cancel(self, index: int, k: int, client: int) -> None:
        mids = sorted(self.model.messages)
        mid = mids[index % len(mids)]
        done = self.cut_short("cancel", k, client, lambda queue: queue.cancel(*mid))
        before = self.model.fork()
        expected = self.model.cancel(mid)
        if done is None:
            self.adopt_either(before, self.model)
        else:
            assert done == expected

    @rule(tenant=st.sampled_from(TENANTS), k=commands, client=clients)
    def cut_purge(self, tenant: str, k: int, client: int) -> None:
        done = self.cut_short("purge", k, client, lambda queue: queue.purge(tenant))
        before = self.model.fork()
        expected = self.model.purge(self.model.waiting(tenant, None))
        if done is None:
            self.adopt_either(before, self.model)
        else:
            assert done == expected

    @precondition(lambda self: self.model.pauses)
    @rule(index=which, k=commands)
    def cut_resume(self, index: int, k: int) -> None:
        given = sorted(self.model.pauses, key=str)[index % len(self.model.pauses)]
        self.cut_short("resume", k, 0, lambda queue: queue.resume(*given))
        self.run(lambda: self.queue.resume(*given))  # who waits is let go by the repeated call
        before = self.model.fork()
        self.model.pauses.discard(given)
        self.adopt_either(before, self.model)

    @rule(group=groups, limit=st.sampled_from([0, 1, 3, None]), k=commands)
    def cut_set_limit(self, group: Group, limit: int | None, k: int) -> None:
        if group[0] not in self.model.declared.defaults or self.model.too_low(group, limit):
            return

        async def set_limit(queue: FairQueue[Any]) -> str:
            await queue.limits.set(*group, limit)
            return "set"

        answered = self.cut_short("set_limit", k, 0, set_limit)
        before = self.model.fork()
        self.model.set_limit(group, limit)
        if answered is None:
            in_force = self.run(lambda: self.queue.limits.get(*group)).limit
            assert in_force in (limit, before.limit(group))
            self.model.limits = self.model.limits if in_force == limit else before.limits
            self.run(lambda: self.queue.limits.set(*group, limit))  # who waits is woken by the repeated call
            self.model.limits[group] = limit
            self.adopt_either(before, self.model)

    @rule(tenant=st.sampled_from(TENANTS), weight=st.sampled_from([0.5, 1, 3]), k=commands)
    def cut_set_weight(self, tenant: str, weight: float, k: int) -> None:
        async def set_weight(queue: FairQueue[Any]) -> str:
            await queue.tenants.set_weight(tenant, weight)
            return "set"

        self.cut_short("set_weight", k, 0, set_weight)

    @rule(script=st.sampled_from(["reconcile_group", "reconcile_leases", "tidy", "recount"]), k=commands)
    def cut_reconcile(self, script: str, k: int) -> None:
        report = self.cut_short(script, k, 0, lambda queue: queue.reconcile())
        if report is None or not self.model.slots:
            self.adopt_either(self.model.fork(), self.model)
        else:
            self.model.reconcile()
