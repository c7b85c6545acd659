"""Producers: one message or several, with every option there is, of ids that may be there already."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairqueue import NewMessage
from tests.property.machine.base import ORGS, POOLS, QUEUES, TENANTS, Play, clients, which
from tests.property.model import Known, instant

KINDS = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from(TENANTS),
        "queue": st.sampled_from(QUEUES),
        "pool": st.sampled_from([*POOLS, "default"]),
        "priority": st.sampled_from([0, 0, 0, 5]),
        "cost": st.sampled_from([1, 1, 0.5, 7]),
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
        )  # fmt: skip

    def maybe_known(self, index: int, again: bool) -> dict[str, str]:
        """Now and then an id that is there already."""
        if not again or not self.model.messages:
            return {}
        tenant, id_ = sorted(self.model.messages)[index % len(self.model.messages)]
        return {"tenant": tenant, "id": id_}

    @rule(kind=KINDS, when=WHENS, again=st.booleans(), index=which, client=clients)
    def enqueue(
        self, kind: dict[str, Any], when: tuple[str, int] | None, again: bool, index: int, client: int
    ) -> None:
        made = self.made(kind, when, **self.maybe_known(index, again))
        queue = self.queues[client]
        sent = self.run(lambda: queue.enqueue({"id": made["id"]}, **made))
        assert (sent.tenant, sent.id) == (made["tenant"], made["id"])
        assert sent.created == self.model.enqueue(self.known(kind, when, made))
        assert sent.state == self.model.messages[sent.tenant, sent.id].state

    @rule(kind=KINDS, when=WHENS, count=st.integers(1, 4), again=st.booleans(), index=which, client=clients)
    def enqueue_many(
        self, kind: dict[str, Any], when: tuple[str, int] | None, count: int, again: bool, index: int, client: int
    ) -> None:  # fmt: skip
        made = [self.made(kind, when, **self.maybe_known(index + n, again)) for n in range(count)]
        queue = self.queues[client]
        messages = [NewMessage({"id": one["id"]}, **one) for one in made]
        sent = self.run(lambda: queue.enqueue_many(messages))
        assert [one.created for one in sent] == [
            self.model.enqueue(self.known(kind, when, one)) for one in made
        ]
