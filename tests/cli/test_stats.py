"""``fairqueue stats``."""

from __future__ import annotations

import pytest

from fairqueue import Limit, NewMessage
from tests.cli.command import Place
from tests.cli.handlers import TEXT


def fill(place: Place) -> None:
    """Two in flight (the limit), one blocked, one delayed, one dead; another tenant has one ready."""
    with place.queue(limits=[Limit("tenant", default=2)]) as queue:
        queue.enqueue_many([NewMessage(n, tenant="acme", queue="mail") for n in range(5)])
        (lease,) = queue.claim(1)
        lease.dead_letter("unwanted")
        queue.claim(10)
        queue.enqueue(1, tenant="acme", delay=60)
        queue.enqueue(1, tenant="beta")


def test_the_namespace_as_json(place: Place) -> None:
    fill(place)
    done = place.run("stats", "--json")
    assert (done.status, done.err) == (0, "")
    found = done.json
    counts = {name: found[name] for name in ("ready", "delayed", "in_flight", "dead", "blocked")}
    assert counts == {"ready": 3, "delayed": 1, "in_flight": 2, "dead": 1, "blocked": 2}
    assert (found["name"], found["workers"]) == (place.name, [])
    assert found["totals"]["enqueued"] == 7
    assert found["oldest_ready_age"] > 0


def test_one_tenant_and_its_queues(place: Place) -> None:
    fill(place)
    done = place.run("stats", "--tenant", "acme", "--json")
    found = done.json
    assert (done.status, done.err) == (0, "")
    assert (found["tenant"], found["ready"], found["in_flight"]) == ("acme", 2, 2)
    assert found["totals"]["claimed"] is None  # not 0: three were claimed
    (queue,) = found["queues"]
    assert (queue["queue"], queue["ready"], queue["blocked"]) == ("mail", 2, 2)


def test_plain_lines_elsewhere_than_on_a_terminal(place: Place) -> None:
    fill(place)
    rows = {row[0]: row[1] for row in place.run("stats").lines}
    assert (rows["name"], rows["ready"], rows["total enqueued"]) == (place.name, "3", "7")
    assert (rows["url"], rows["total claimed"]) == (place.url, "3")


def test_an_unknown_tenant_has_nothing(place: Place) -> None:
    fill(place)
    done = place.call("stats", "--tenant", "nobody", "--json")
    assert (done.status, done.err) == (0, f"fairqueue: tenant 'nobody' has no messages in {place.name}\n")
    found = done.json
    assert (found["ready"], found["queues"], found["oldest_ready_age"]) == (0, [], None)


def test_without_a_url_the_queue_lives_in_the_current_directory(place: Place) -> None:
    here = Place(place.directory, "", place.name)
    first = here.run("enqueue", "1", "--tenant", "a")
    made = f"made a new queue, embedded://{place.directory}/.fairqueue (--url or FAIRQUEUE_URL name another)"
    assert (first.status, first.err) == (0, f"fairqueue: {made}\n")
    assert (place.directory / ".fairqueue").is_dir()
    second = here.run("enqueue", "2", "--tenant", "a")
    assert (second.status, second.err) == (0, "")
    assert here.run("stats", "--json").json["ready"] == 2
    fill(place)
    assert place.call("stats", "--json").json["ready"] == 3


@pytest.mark.parametrize("command", ["stats", "doctor"])
def test_where_no_queue_is_none_is_made(place: Place, command: str) -> None:
    """Typed in the wrong directory."""
    here = Place(place.directory, "", place.name)
    done = here.run(command)
    assert done.status == 1
    assert f"there is no queue at embedded://{place.directory}/.fairqueue" in done.error
    assert list(place.directory.iterdir()) == []


@pytest.mark.parametrize("command", ["worker", "maintain"])
def test_what_runs_on_tells_of_a_new_queue_in_its_log(place: Place, command: str) -> None:
    place.write("shop", TEXT)
    here = Place(place.directory, "", place.name)
    try:
        running = here.start(command, *(["shop:quick"] if command == "worker" else []))
        running.until(f"made a new queue, embedded://{place.directory}/.fairqueue")
        running.until("is ready" if command == "worker" else "maintaining")
        assert running.stop() == 0
    finally:
        here.close()


@pytest.mark.parametrize("command", ["stats", "doctor"])
def test_a_namespace_that_nobody_used_is_said_to_be_missing_and_not_begun(place: Place, command: str) -> None:
    fill(place)
    for _ in range(2):
        done = place.run(command, name="typo")
        assert done.status == 1
        assert done.error == (
            f"there is no namespace 'typo' at {place.url}: nobody ever used it (--name names another)"
        )


@pytest.mark.parametrize("command", [["stats"], ["doctor"], ["enqueue", "1", "--tenant", "a"]])
def test_a_file_in_the_place_of_the_directory_is_named(place: Place, command: list[str]) -> None:
    (place.directory / ".fairqueue").write_text("notes")
    done = Place(place.directory, "", place.name).run(*command)
    assert done.status == 2
    assert f"{place.directory}/.fairqueue" in done.error
    assert "director" in done.error


def test_fairness_tells_what_each_was_served(place: Place) -> None:
    with place.queue() as queue:
        queue.enqueue_many([NewMessage(n, tenant=tenant) for tenant in ("acme", "beta") for n in range(4)])
        queue.complete_many(queue.claim(6))
    found = place.run("fairness", "--json").json
    assert (found["served"], found["jain"]) == (6, 1)
    assert [(one["tenant"], one["received"], one["waiting"]) for one in found["tenants"]] == [
        ("acme", 3, 1),
        ("beta", 3, 1),
    ]
    lines = place.run("fairness", "--window", "60").lines
    assert [line[0] for line in lines[:2]] == ["acme", "beta"]
    assert place.run("fairness", "--window", "1").status == 2
