"""``fairqueue limits``."""

from __future__ import annotations

import pytest

from fairqueue import Limit
from tests.cli.command import Place


def fill(place: Place) -> None:
    """Of acme two run and one waits, of beta one runs."""
    with place.queue(limits=[Limit("tenant", default=2)]) as queue:
        for tenant, id_ in (("acme", "m1"), ("acme", "m2"), ("acme", "m3"), ("beta", "m1")):
            queue.enqueue(1, tenant=tenant, id=id_)
        queue.claim(10)


def test_groups_in_use_are_listed(place: Place) -> None:
    fill(place)
    with place.queue() as queue:
        queue.limits.set("tenant", "beta", 3, guaranteed=1)
        queue.limits.set_rate("tenant", "beta", 100, per=30, burst=5)
    done = place.call("limits list", "tenant")
    assert (done.status, done.err) == (0, "")
    assert done.lines == [
        ["tenant", "acme", "2", "2", "1", "none", "none"],
        ["tenant", "beta", "3", "1", "0", "1", "100 each 30 s, burst 5"],
    ]
    assert [one["id"] for one in place.call("limits list", "tenant", "--json").json] == ["acme", "beta"]


def test_one_group_with_its_holders(place: Place) -> None:
    fill(place)
    lines = place.call("limits get", "tenant", "acme").lines
    assert lines[2:5] == [["slots", "2"], ["held", "2"], ["waiting", "1"]]
    assert lines[5:] == [["held by", "acme/m1"], ["held by", "acme/m2"]]
    assert place.call("limits get", "tenant", "acme", "--json").json["holders"] == [
        ["acme", "m1"],
        ["acme", "m2"],
    ]


def test_a_limit_is_set_and_reset_and_holds_from_the_next_claim_on(place: Place) -> None:
    fill(place)
    assert ["slots", "3"] in place.call("limits set", "tenant", "acme", "3").lines
    with place.queue() as queue:
        assert [lease.message.id for lease in queue.claim(10)] == ["m3"]
    assert place.call("limits set", "tenant", "acme", "none", "--json").json["limit"] is None
    assert place.call("limits reset", "tenant", "acme", "--json").json["limit"] == 2


def test_slots_are_guaranteed_and_no_more_with_the_next_limit(place: Place) -> None:
    fill(place)
    assert ["guaranteed", "1"] in place.call("limits set", "tenant", "acme", "3", "--guaranteed", "1").lines
    assert place.call("limits set", "tenant", "acme", "3", "--json").json["guaranteed"] is None


def test_a_rate_is_set_and_taken_away(place: Place) -> None:
    fill(place)
    lines = place.call("limits rate", "tenant", "acme", "100", "--per", "30", "--burst", "5").lines
    assert ["rate", "100 each 30 s, burst 5"] in lines
    assert place.call("limits get", "tenant", "acme", "--json").json["rate"]["per"] == 30
    assert place.call("limits rate", "tenant", "acme", "none", "--json").json["rate"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "room"], "expected LIMIT to be a declared limit (tenant), got 'room'"),
        (["set", "tenant", "acme", "few"], "expected an integer or none, got 'few'"),
        (["set", "tenant", "acme", "--", "-1"], "expected SLOTS to be an integer from 0"),
        (["get", "tenant", ""], "expected GROUP to be non-empty text"),
        ([], "Missing command"),
    ],
)
def test_wrong_use_is_one_line(place: Place, words: list[str], said: str) -> None:
    fill(place)
    done = place.call(f"limits {words[0]}", *words[1:]) if words else place.call_bare("limits")
    assert done.status == 2
    assert said in done.error


def test_a_namespace_that_nobody_used_is_not_made(place: Place) -> None:
    done = place.call_bare(
        "limits", "set", "--url", place.url, "--name", "nobody-used-it", "tenant", "acme", "3"
    )
    assert (done.status, "nobody ever used it" in done.error) == (1, True)
