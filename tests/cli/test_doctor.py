"""``fairqueue doctor``: what it names, what it mends, and its exit status."""

from __future__ import annotations

import pytest

from fairqueue import Limit
from fairqueue._engine.keys import join, key
from fairqueue.embedded import start_sync
from fairqueue.testing import faults
from tests.cli.command import Place


async def leak(place: Place) -> None:
    async with place.async_queue(limits=[Limit("tenant", default=2)]) as queue:
        await queue.enqueue(1, tenant="acme")
        await faults.leak_slot(queue, "tenant", "acme", "ghost")


def test_a_whole_namespace(place: Place) -> None:
    with place.queue() as queue:
        queue.connect()
    done = place.run("doctor", "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json == {
        "name": place.name,
        "url": place.url,
        "ok": True,
        "checked": done.json["checked"],
        "findings": [],
        "warnings": [],
        "dirty_groups": [],
        "eviction_policy": "noeviction",
        "settings_changed": None,
    }
    said = f"entries of {place.name} at {place.url}: nothing found\n"
    assert place.run("doctor").out.endswith(said)


@pytest.mark.leaves_findings
async def test_a_leaked_slot_is_named_with_its_evidence(place: Place) -> None:
    await leak(place)
    done = place.run("doctor", "--json")
    assert (done.status, done.json["ok"]) == (1, False)
    found = [one for one in done.json["findings"] if one["check"] == "SLOTS"]
    assert found
    assert all(not one["fixed"] and one["evidence"] for one in found)
    assert any("acme" in one["subject"] for one in found)
    plain = place.run("doctor")
    assert plain.status == 1
    assert ["SLOTS", "found"] in [[row[0], row[-1]] for row in plain.lines]


@pytest.mark.leaves_findings
async def test_what_the_audit_meets_twice_is_said_once(place: Place) -> None:
    async with place.async_queue() as queue:
        await queue.enqueue(1, tenant="acme")
        await faults.wrong_type(queue, "lane", "acme", "default")
    found = place.run("doctor", "--json").json["findings"]
    assert len(found) == len({tuple(one.values()) for one in found})
    assert sum("string" in one["evidence"] for one in found) == 1


async def test_fix_puts_it_right(place: Place) -> None:
    await leak(place)
    done = place.run("doctor", "--fix", "--json")
    assert done.status == 0, done
    assert done.json["ok"]
    assert {one["fixed"] for one in done.json["findings"]} == {True}
    assert place.run("doctor").status == 0
    with place.queue() as queue:
        assert queue.limits.get("tenant", "acme").held == 0
        assert queue.stats().ready == 1


async def test_a_dirty_group_is_shown_and_healed(place: Place) -> None:
    async with place.async_queue(limits=[Limit("tenant", default=2)]) as queue:
        where, group = key(queue._engine.calls.root, "dirty"), join("tenant", "acme")
        await queue._engine.command("HSET", where, group, "dirty")
        await queue._engine.command("SADD", key(queue._engine.calls.root, "groups"), group)
    before = place.run("doctor", "--json").json
    assert before["dirty_groups"] == [{"group": "tenant", "id": "acme", "state": "dirty"}]
    assert before["warnings"][0]["subject"] == "tenant/acme"
    assert place.run("doctor", "--fix", "--json").json["dirty_groups"] == []


def test_who_last_changed_the_settings(place: Place) -> None:
    for default in (1, 2):
        with place.queue(limits=[Limit("tenant", default=default)]) as queue:
            queue.connect()
    changed = place.run("doctor", "--json").json["settings_changed"]
    assert changed["settings"] == ["limits"]
    assert changed["by"]
    assert changed["at"].endswith("+00:00")
    assert "settings last changed: limits, by " in place.run("doctor").out


async def test_a_server_that_evicts_is_a_warning(place: Place) -> None:
    directory = place.directory / "evicting"
    server = start_sync(directory)
    try:
        there = Place(place.directory, f"embedded://{directory}", place.name)
        async with there.async_queue() as queue:
            await queue._engine.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        done = there.run("doctor", "--json")
        assert done.status == 0
        assert done.json["eviction_policy"] == "allkeys-lru"
        assert done.json["warnings"][0]["subject"] == "maxmemory-policy"
        assert "warning: maxmemory-policy: the server may evict keys" in there.run("doctor").out
    finally:
        server.close()
