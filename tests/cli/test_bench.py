"""``fairqueue bench``: a short run prints figures that hang together, and a namespace in use is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairqueue import Limit, NewMessage
from fairqueue.bench import BenchOptions, BenchResult
from tests.cli.command import Place


def test_json_has_every_figure(place: Place) -> None:
    done = place.run("bench", "--json", "--tenants", "7", "--messages", "300", "--limit", "3")
    assert (done.status, done.err) == (0, "")
    found = done.json
    rates = ["enqueue_per_s", "enqueue_many_per_s", "drain_per_s", "server_us_per_message"]
    assert all(found[name] > 0 for name in [*rates, "server_limit_per_s", "round_trips_per_message"])
    assert found["server_limit_per_s"] == pytest.approx(1e6 / found["server_us_per_message"], rel=0.01)
    assert (found["tenants"], found["messages"], found["limit"]) == (7, 300, 3)
    assert 200 < found["payload_bytes"] < 260
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["p99"]
    assert found["round_trips_per_message"] < 0.5


def test_a_table_otherwise_on_the_given_server(place: Place) -> None:
    done = place.run("bench", "--messages", "50", "--url", place.url)
    assert (done.status, done.err) == (0, "")
    assert [row[0] for row in done.lines][:3] == [
        "enqueue, one by one",
        "enqueue_many",
        "drain, one worker process",
    ]
    with place.queue() as queue:
        stats = queue.stats()
    assert stats.totals.completed == 50 + 220  # the backlog, and what measured the latency
    assert (stats.ready, stats.in_flight) == (0, 0)


def test_a_namespace_with_messages_is_refused_and_keeps_its_settings(place: Place) -> None:
    with place.queue(limits=[Limit("org", default=3, key="org")]) as queue:
        queue.enqueue(1, tenant="acme")
    done = place.run("bench", "--url", place.url, "--messages", "10")
    assert done.status == 1
    assert "to be unused, got 1 message and 0 workers" in done.error
    with place.queue() as queue:
        assert queue.stats().ready == 1
        assert queue.limits.get("org", "x").limit == 3


async def test_round_trips_are_exchanges_however_many_messages_go_together(place: Place) -> None:
    async with place.async_queue() as queue:
        await queue.enqueue(1, tenant="acme")
        before = queue._engine.connection.round_trips
        await queue.enqueue_many(NewMessage(n, tenant="acme") for n in range(100))
        await queue.enqueue(1, tenant="acme")
        assert queue._engine.connection.round_trips == before + 2


def test_every_figure_is_explained(place: Place) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "operations" / "command-line.md").read_text()
    table = page.partition("\n## bench")[2].partition("\n## ")[0]
    figures = BenchResult(BenchOptions(), "valkey 9.1.2", 230, *[1.0] * 10).as_json()
    assert [name for name in figures if f"`{name}`" not in table] == []
