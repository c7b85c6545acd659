"""``fairqueue explain``."""

from __future__ import annotations

from fairqueue import Limit
from tests.cli.command import Place


def fill(place: Place) -> None:
    with place.queue(limits=[Limit("tenant", default=1)]) as queue:
        for id_ in ("m1", "m2"):
            queue.enqueue(1, tenant="acme", id=id_)
        queue.claim(1, consumer="w1")


def test_it_says_what_stops_the_message(place: Place) -> None:
    fill(place)
    done = place.run("explain", "acme", "m2")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("ready in queue default of pool default since ")
    assert lines[1].startswith("limit tenant:acme is full, 1 of 1: held by acme/m1 (w1 since ")


def test_the_same_as_json(place: Place) -> None:
    fill(place)
    found = place.call("explain", "acme", "m2", "--json").json
    assert (found["state"], found["position"], found["workers"]) == ("ready", 0, 0)
    (stop,) = found["stops"]
    assert (stop["kind"], stop["held"], stop["holders"][0]["consumer"]) == ("limit", 1, "w1")
    assert found["lines"][-1] == "no worker is alive that claims from pool default"


def test_a_message_that_is_not_there_is_a_failure(place: Place) -> None:
    fill(place)
    done = place.call("explain", "acme", "m3")
    assert done.status == 1
    gone = "it is gone (done, cancelled, purged or dropped), or was never enqueued"
    assert done.error == f"there is no message 'm3' of tenant 'acme': {gone}"


def test_texts_from_outside_neither_steer_the_terminal_nor_make_lines(place: Place) -> None:
    fill(place)
    with place.queue() as queue:
        queue.pause(tenant="acme", by="x\nlimit org:o is full", reason="\x1b[2J\x9b\u202egone")
    done = place.run("explain", "acme", "m2")
    assert done.out.isascii()
    assert "\x1b" not in done.out
    assert r"x\nlimit org:o is full" in done.out
    assert not any(line.startswith("limit org") for line in done.out.splitlines())
    assert r"\x1b[2J\x9b\u202egone" in place.run("pause", "--list").out
