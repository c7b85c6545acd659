"""Names that no script wrote, put into an index by hand, are taken out where they are met and hold nobody up."""

from __future__ import annotations

import pytest

from fairqueue import Limit
from fairqueue._engine.keys import US, join, key
from tests.conftest import MakeQueue

NAMES = [join("a", "b", "c"), "no lane at all", join("b", "default", "default")]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.replace(US, "/"))
async def test_a_stranger_among_a_tenants_lanes(make_queue: MakeQueue, name: str) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    await queue.enqueue(1, tenant="t")
    await queue.enqueue(1, tenant="other")
    ring = key(queue._engine.calls.root, "ring", join("t", "default", "t"))
    await queue._engine.command("ZADD", ring, "-inf", name)
    assert {finding.check for finding in (await queue.audit()).findings} == {"MOVES"}
    assert len(await queue.claim(2)) == 2


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.replace(US, "/"))
async def test_a_stranger_among_those_who_wait(make_queue: MakeQueue, name: str) -> None:
    queue = await make_queue(limits=[Limit("tenant", default=1)])
    for _ in range(2):
        await queue.enqueue(1, tenant="t")
    (running,) = await queue.claim(2)
    waiting = key(queue._engine.calls.root, "waiting", join("default", "tenant", "t", "t"))
    await queue._engine.command("ZADD", waiting, "-inf", name)
    assert await running.complete() == "done"
    assert len(await queue.claim(2)) == 1


@pytest.mark.parametrize("name", ["", join("a", "b"), US, "no such tenant"], ids=repr)
async def test_a_stranger_among_a_pools_tenants(make_queue: MakeQueue, name: str) -> None:
    """A claim looked for its lanes for ever, inside the server."""
    queue = await make_queue()
    await queue.enqueue(1, tenant="t")
    ring = key(queue._engine.calls.root, "ring", join("p", "default"))
    await queue._engine.command("ZADD", ring, "-inf", name)
    assert len(await queue.claim(2)) == 1
    assert await queue._engine.command("ZSCORE", ring, name) is None


@pytest.mark.parametrize("name", ["", join("a", "b"), "no such tenant"], ids=repr)
async def test_a_stranger_among_the_tenants_that_wait(make_queue: MakeQueue, name: str) -> None:
    queue = await make_queue(limits=[Limit("org", default=1, key="org")])
    for _ in range(2):
        await queue.enqueue(1, tenant="t", metadata={"org": "o"})
    (running,) = await queue.claim(2)
    ring = key(queue._engine.calls.root, "ring", join("g", "default", "org", "o"))
    await queue._engine.command("ZADD", ring, "-inf", name)
    assert await running.complete() == "done"
    assert len(await queue.claim(2)) == 1
