"""``fairqueue pause``, ``resume``, ``cancel`` and ``purge``."""

from __future__ import annotations

import pytest

from tests.cli.command import Place


def fill(place: Place) -> None:
    """Three of one tenant, one of them delayed, and one of another."""
    with place.queue() as queue:
        for id_ in ("m1", "m2"):
            queue.enqueue(id_, tenant="acme", id=id_, queue="mail")
        queue.enqueue("late", tenant="acme", id="late", delay=60)
        queue.enqueue("other", tenant="beta", id="other")


def claimed(place: Place) -> list[str]:
    with place.queue() as queue:
        leases = queue.claim(10)
        queue.release_many(leases)
        return sorted(lease.message.id for lease in leases)


def test_pause_list_and_resume(place: Place) -> None:
    fill(place)
    words = ("--tenant", "acme", "--queue", "mail")
    done = place.run("pause", *words, "--by", "ops", "--reason", "their API is down", "--json")
    assert (done.status, done.json) == (0, {"paused": True, "new": True})
    assert place.call("pause", *words, "--by", "me").out == "was paused already: by and reason are replaced\n"
    assert claimed(place) == ["other"]
    (found,) = place.call("pause", "--list", "--json").json
    assert (found["tenant"], found["queue"], found["pool"], found["by"], found["reason"]) == (
        "acme", "mail", None, "me", None,
    )  # fmt: skip
    (row,) = place.call("pause", "--list").lines
    assert (row[:3], row[4:]) == (["acme", "mail", "-"], ["me", "-"])
    wrong = place.call("resume", "--tenant", "acme")
    assert (wrong.status, wrong.out) == (1, "there is no such pause\n")
    assert claimed(place) == ["other"]
    done = place.call("resume", *words, "--json")
    assert (done.status, done.json) == (0, {"resumed": True})
    assert claimed(place) == ["m1", "m2", "other"]
    assert place.call("pause", "--list", "--json").json == []


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_without_a_selector_it_is_wrong_use(place: Place, command: str) -> None:
    fill(place)
    done = place.call(command)
    assert (done.status, done.error.split(",")[0]) == (2, "expected a tenant")


def test_cancel(place: Place) -> None:
    fill(place)
    assert place.run("cancel", "acme", "m1").out == "cancelled\n"
    assert place.call("cancel", "acme", "late", "--json").json == {"outcome": "cancelled"}
    with place.queue() as queue:
        (lease,) = [one for one in queue.claim(10) if one.message.id == "m2"]
        assert place.call("cancel", "acme", "m2").out == "cancelling\n"
        assert lease.fail("stopped") == "cancelled"
        assert lease.cancelled.is_set()
    missing = place.call("cancel", "acme", "m2")
    assert (missing.status, missing.out) == (1, "not_found\n")


def test_purge(place: Place) -> None:
    fill(place)
    assert place.run("purge", "acme", "--queue", "mail", "--json").json == {"purged": 2}
    assert place.call("purge", "acme").out == "1 purged\n"
    assert place.call("purge", "acme").out == "0 purged\n"
    assert claimed(place) == ["other"]


@pytest.mark.parametrize(
    "words", [("pause", "--list"), ("cancel", "a", "m"), ("purge", "a"), ("resume", "--tenant", "a")]
)
def test_no_namespace_is_made(place: Place, words: tuple[str, ...]) -> None:
    done = place.call(*words)
    assert done.status == 1
    assert "nobody ever used it" in done.error
