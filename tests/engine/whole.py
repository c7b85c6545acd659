"""The whole state of a namespace whose only limit is that of its tenants: as it is, and as a test says that it is to be."""

from __future__ import annotations

import re
from typing import Any

from fairqueue import FairQueue
from fairqueue._engine.keys import US
from fairqueue.testing import ManualClock
from tests.engine.tools import lane
from tests.support.dump import stored


async def all_there_is(queue: FairQueue[Any]) -> dict[str, Any]:
    """Each message of tenant a with its state and counts, and every key by its name, but those that are LEFT_OUT."""
    items, _ = await queue.messages("a", limit=100)
    messages = {one.message.id: (str(one.state), one.message.attempt, one.message.crashes) for one in items}
    root = queue._engine.calls.root
    kept = [entry for entry in await stored(queue) if family(entry[0], root) not in LEFT_OUT]
    keys = {plain(name, root): (kind, value) for name, kind, value in kept}
    return {"messages": messages} | {name: readable(name, *held) for name, held in keys.items()}


async def to_the_last_byte(queue: FairQueue[Any]) -> list[Any]:
    """All of it, without the records of calls: those are each client's own."""
    root = queue._engine.calls.root
    return sorted(entry for entry in await stored(queue) if family(entry[0], root) != "call")


LEFT_OUT = {
    "head": "what the messages are made of",
    "body": "the same",
    "settings": "no script here writes them",
    "call": "what each client asked last, under a name made at random",
    "vtime": "how far turns have come, and",
    "tags": "who had one: the tests of fairness look at these",
    # Its numbers are made of the instants of claims; "to the last byte" still holds that who came too late adds nothing.
    "service": "what the claims of a minute served, and after which waits: test_fairness_report.py looks at these",
}  # fmt: skip


def family(name: bytes, root: str) -> str:
    return name.decode().removeprefix(root).partition(":")[0]


FIRST = 1
"""What the counters are before they gave out any number; tests count from 0."""


def plain(word: bytes, root: str = "") -> Any:
    """As the tests write it: the only lane by a short name, of a token its attempt and its claim, numbers as numbers."""
    text = word.decode().removeprefix(root).replace(lane("a", ("tenant", "a")), "lane").replace(US, "/")
    text = re.sub(
        r"\b0*(\d+)\.(\d+)\.[0-9a-f]{8}\b",
        lambda found: f"token {found[1]}.{int(found[2]) - FIRST}",
        text,
    )
    return int(text) if text.isdecimal() else text


def readable(name: str, kind: bytes, value: list[Any]) -> Any:
    """Of a lease the token, of a deadline the seconds since the clock began, of other sorted sets the members in order."""
    if name == "leases":
        return {plain(mid): plain(record.partition(US.encode())[0]) for mid, record in value}
    if name == "counters":
        given = {plain(field): int(content) - FIRST for field, content in value}
        return {field: count for field, count in given.items() if count}
    if kind == b"hash":
        return {plain(field): plain(content) for field, content in value}
    if name == "deadlines":
        ends = zip(value[::2], value[1::2], strict=True)
        return {plain(mid): (int(at) - ManualClock().now_ms()) / 1000 for mid, at in ends}
    return [plain(member) for member in (value[::2] if kind == b"zset" else value)]


CLAIMABLE = {"bell:default": [1], "ring:p/default": ["a"], "ring:t/default/a": ["lane"]}
"""The lane takes turns, and the bell was rung."""
PARKED = {
    "blocked:default": ["a"],
    "parked:default/a": {"lane": "tenant/a"},
    "ring:g/default/tenant/a": ["a"],
    "waiters:tenant/a": ["default"],
    "waiting:default/tenant/a/a": ["lane"],
}
"""The lane waits for a slot of its tenant."""
WOKEN = {
    **CLAIMABLE,
    "groups": ["tenant/a"],
    "waiters:tenant/a": ["default"],
    "woken:default/tenant/a": {"lane": "1/1/0/1"},
}
"""It has waited and is promised one."""
MORE = {"ring:g/default/tenant/a": ["a"], "waiting:default/tenant/a/a": ["lane"]}
"""And it has more messages than that, which wait for the next one."""


def everything(
    messages: dict[str, tuple[str, int, int]],
    leases: dict[str, tuple[str, float]] | None = None,
    *,
    turns: dict[str, Any] | None = None,
    limits: dict[str, int] | None = None,
    seq: int,
    totals: dict[str, int],
    tenants: dict[str, int] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """What is in flight, and nothing else, has a lease of this token until so many seconds, and a slot; it is also what
    the counters count. ``tenants``: those of tenant a where they are not the namespace's."""
    leases = leases or {}
    assert set(leases) == {id_ for id_, (state, *_) in messages.items() if state == "in_flight"}
    ready = [f"a/{id_}" for id_, (state, *_) in messages.items() if state == "ready"]
    tokens = {f"a/{id_}": token for id_, (token, _) in leases.items()}
    counters = {"seq": seq} | ({"claims": totals["claimed"]} if "claimed" in totals else {})
    of_tenant = {name: n for name, n in totals.items() if name not in ("claimed", "healed")}
    found: dict[str, Any] = {
        "limits": {"tenant": 1} | (limits or {}),
        "counters": counters,
        "totals": {"r": len(ready)} | totals,
        "pools": ready and ["default"],
        "present": messages and {"a": len(messages)},
        "tenant:a": messages and {"r": len(ready)} | (of_tenant if tenants is None else tenants),
        "lane:lane": ready,
        "leases": tokens,
        "slots:tenant/a": tokens,
        "groups": tokens and ["tenant/a"],
        "deadlines": {f"a/{id_}": ends for id_, (_, ends) in leases.items()},
    }
    return {"messages": messages} | {name: it for name, it in found.items() if it} | (turns or {}) | others
