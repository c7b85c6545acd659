"""``fairqueue tenants``."""

from __future__ import annotations

from tests.cli.command import Place


def fill(place: Place) -> None:
    with place.queue() as queue:
        queue.enqueue(1, tenant="beta")
        queue.enqueue(1, tenant="acme")
        queue.enqueue(1, tenant="acme", delay=60)


def test_tenants_with_messages_are_listed(place: Place) -> None:
    fill(place)
    done = place.call("tenants list")
    assert (done.status, done.err) == (0, "")
    assert done.lines == [["acme", "1", "1", "0", "1", "0", "0"], ["beta", "1", "1", "0", "0", "0", "0"]]
    found = place.call("tenants list", "--json").json
    assert [(one["tenant"], one["delayed"]) for one in found] == [("acme", 1), ("beta", 0)]


def test_a_weight_is_given_and_shown(place: Place) -> None:
    fill(place)
    assert ["weight", "2.5"] in place.call("tenants weight", "acme", "2.5").lines
    assert place.call("tenants get", "acme", "--json").json["weight"] == 2.5
    assert place.call("tenants get", "nobody", "--json").json["ready"] == 0


def test_what_is_no_weight_is_refused(place: Place) -> None:
    fill(place)
    done = place.call("tenants weight", "acme", "0")
    assert (done.status, "expected WEIGHT to be a number from 0.01 to 100" in done.error) == (2, True)


def test_a_backlog_is_bounded_and_freed(place: Place) -> None:
    fill(place)
    assert ["backlog", "2"] in place.call("tenants backlog", "acme", "2").lines
    done = place.call("enqueue", "--tenant", "acme", "1")
    assert (done.status, "'acme'" in done.error) == (1, True)
    assert ["backlog", "none"] in place.call("tenants backlog", "acme", "none").lines
    assert place.call("enqueue", "--tenant", "acme", "1").status == 0
