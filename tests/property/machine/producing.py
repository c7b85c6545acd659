"""Producers: one message or several, with every option there is, of ids that may be there already."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairqueue import BacklogFullError, NewMessage
from tests.property.machine.base import ORGS, POOLS, QUEUES, TENANTS, Play, clients, which
from tests.property.model import Known, instant

KINDS = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from(TENANTS),
        "queue": st.sampled_from(QUEUES),
        "pool": st.sampled_from([*POOLS, "default"]),
        "priority": st.sampled_from([0, 0, 0, 5]),
        "cost": st.sampled_from([1, 1, 0.5, 7]),
        "expiry": st.sampled_from([{}, {}, {"expires": 5}, {"expires": 5, "on_expiry": "drop"}]),
        "dedupe": st.sampled_from([{}, {}, {"dedupe_for": 90}]),
        "max_attempts": st.sampled_from([None, None, None, 1, 5]),
        "metadata": st.fixed_dictionaries(
            {}, optional={"org": st.sampled_from(ORGS), "model": st.just("m"), "note": st.just([1, "é"])}
        ),
    }
)
"""What one message is."""
WHENS = st.sampled_from([None, None, None, ("delay", 3), ("at", 4), ("at", -4)])
"""When it may run: relative to now, in seconds."""


class Producing(Play):
    """enqueue and enqueue_many."""

    def made(self, kind: dict[str, Any], when: tuple[str, int] | None, **identity: str) -> dict[str, Any]:
        """The arguments of a message."""
        due: dict[str, Any] = {"id": self.fresh_id(), **kind, **identity}
        due |= due.pop("expiry")
        due |= due.pop("dedupe")
        if when is not None:
            due[when[0]] = when[1] if when[0] == "delay" else instant(self.model.now + when[1])
        return due

    def known(self, kind: dict[str, Any], when: tuple[str, int] | None, made: dict[str, Any]) -> Known:
        """The same for the model: its groups by the limits that are declared now."""
        shared = {
            name: kind["metadata"].get(name) for name in self.model.declared.defaults if name != "tenant"
        }
        groups = (("tenant", made["tenant"]), *((name, id_) for name, id_ in shared.items() if id_))
        return Known(
            made["tenant"], made["id"], kind["queue"], kind["pool"], groups, kind["priority"], kind["cost"],
            kind["max_attempts"], seq=0, state="new", due=self.model.now + (when[1] if when else 0),
            expires=self.model.now + made["expires"] if "expires" in made else None, dropped="on_expiry" in made,
            dedupe_for=made.get("dedupe_for", 0),
        )  # fmt: skip

    def maybe_known(self, index: int, again: bool) -> dict[str, str]:
        """Now and then an id that is there already."""
        known = sorted(self.model.messages | self.model.seen)
        if not again or not known:
            return {}
        tenant, id_ = known[index % len(known)]
        return {"tenant": tenant, "id": id_}

    @rule(kind=KINDS, when=WHENS, again=st.booleans(), index=which, client=clients)
    def enqueue(
        self, kind: dict[str, Any], when: tuple[str, int] | None, again: bool, index: int, client: int
    ) -> None:
        made = self.made(kind, when, **self.maybe_known(index, again))
        queue, known = self.queues[client], self.known(kind, when, made)
        if self.model.refused([known]):
            with pytest.raises(BacklogFullError):
                self.run(lambda: queue.enqueue({"id": made["id"]}, **made))
            return
        sent = self.run(lambda: queue.enqueue({"id": made["id"]}, **made))
        assert (sent.tenant, sent.id) == (made["tenant"], made["id"])
        assert sent.created == self.model.enqueue(known)
        there = self.model.messages.get((sent.tenant, sent.id))
        assert sent.state == (there.state if there else "gone")

    @rule(kind=KINDS, when=WHENS, count=st.integers(1, 4), again=st.booleans(), index=which, client=clients)
    def enqueue_many(
        self, kind: dict[str, Any], when: tuple[str, int] | None, count: int, again: bool, index: int, client: int
    ) -> None:  # fmt: skip
        made = [self.made(kind, when, **self.maybe_known(index + n, again)) for n in range(count)]
        queue = self.queues[client]
        messages = [NewMessage({"id": one["id"]}, **one) for one in made]
        known = [self.known(kind, when, one) for one in made]
        refused = self.model.refused(known)
        if refused:
            with pytest.raises(BacklogFullError) as caught:
                self.run(lambda: queue.enqueue_many(messages))
            assert caught.value.tenant in refused
            assert caught.value.limit == self.model.backlogs[caught.value.tenant]
        else:
            sent = self.run(lambda: queue.enqueue_many(messages))
        created = [self.model.enqueue(one) for one in known if one.tenant not in refused]
        assert refused or [one.created for one in sent] == created

    @rule(tenant=st.sampled_from(TENANTS), most=st.sampled_from([None, None, 2, 5]), client=clients)
    def set_backlog(self, tenant: str, most: int | None, client: int) -> None:
        queue = self.queues[client]
        self.run(lambda: queue.limits.set_backlog(tenant, most))
        assert self.run(lambda: queue.tenants.get(tenant)).backlog == most
        if most is None:
            self.model.backlogs.pop(tenant, None)
        else:
            self.model.backlogs[tenant] = most
