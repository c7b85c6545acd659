"""``fairqueue enqueue``: from arguments and from JSON lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from fairqueue import Limit
from tests.cli.command import Place


def lines(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def test_all_arguments_reach_the_message(place: Place) -> None:
    done = place.run(
        *["enqueue", '{"invoice": 7}', "--tenant", "acme", "--queue", "mail", "--id", "i-7", "--delay", "60"],
        *["--priority", "5", "--cost", "2.5", "--pool", "slow", "--max-attempts", "3"],
        *["--metadata", '{"org": "o1"}', "--json"],
    )
    assert (done.status, done.err) == (0, "")
    assert done.json == {"id": "i-7", "tenant": "acme", "created": True, "state": "delayed"}
    with place.queue() as queue:
        found = queue.get("acme", "i-7")
    assert found is not None
    message = found.message
    assert (message.payload, message.queue, message.pool) == ({"invoice": 7}, "mail", "slow")
    assert (message.priority, message.cost, message.max_attempts) == (5, 2.5, 3)
    assert message.metadata == {"org": "o1"}


def test_an_instant_reaches_the_message(place: Place) -> None:
    words = ["enqueue", "7", "--tenant", "acme", "--id", "x", "--at", "2100-01-31T12:00:00+01:00"]
    assert place.run(*words).lines == [["acme", "x", "delayed", "new"]]
    with place.queue() as queue:
        found = queue.get("acme", "x")
    assert found is not None
    assert found.due_at == datetime(2100, 1, 31, 11, tzinfo=UTC)


@pytest.mark.parametrize("option", [["--at", "2100-01-31T12:00:00Z"], ["--delay", "86400"]])
def test_the_time_of_a_line_goes_before_both_of_the_options(place: Place, option: list[str]) -> None:
    text = lines(
        {"payload": 1, "id": "own delay", "delay": 0},
        {"payload": 1, "id": "own time", "at": "2020-01-01T00:00:00Z"},
        {"payload": 1, "id": "neither", "delay": None, "at": None},
    )
    done = place.run("enqueue", "-", "--tenant", "acme", *option, stdin=text)
    assert [line[1:3] for line in done.lines] == [
        ["own delay", "ready"],
        ["own time", "ready"],
        ["neither", "delayed"],
    ]


def test_plain_output_says_who_what_and_whether_it_is_new(place: Place) -> None:
    words = ["enqueue", "7", "--tenant", "acme", "--id", "x"]
    assert place.run(*words).lines == [["acme", "x", "ready", "new"]]
    assert place.run(*words).lines == [["acme", "x", "ready", "was there"]]


def test_lines_are_stored_in_order_with_the_options_as_defaults(place: Place) -> None:
    text = lines({"payload": 1, "id": "a"}, "", {"payload": None, "tenant": "b", "id": "b", "delay": 60})
    done = place.run("enqueue", "-", "--tenant", "acme", "--queue", "q", "--json", stdin=text)
    assert done.status == 0
    assert done.json == {
        "messages": 2,
        "created": 2,
        "enqueued": [
            {"id": "a", "tenant": "acme", "created": True, "state": "ready"},
            {"id": "b", "tenant": "b", "created": True, "state": "delayed"},
        ],
    }
    with place.queue() as queue:
        (lease,) = queue.claim(10)
        assert (lease.message.payload, lease.message.queue) == (1, "q")
        lease.complete()


def test_no_lines_are_no_messages(place: Place) -> None:
    assert place.call("enqueue", "-", "--json").json == {"messages": 0, "created": 0, "enqueued": []}


GOOD = {"payload": 1, "tenant": "acme"}


def test_a_bad_line_in_a_pipe_is_exit_status_1(place: Place) -> None:
    done = place.run("enqueue", "-", stdin=lines(GOOD, "{"))
    assert (done.status, done.error.partition(":")[0]) == (1, "line 2")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ([1], "expected an object, got [1]"),
        ({"tenant": "acme"}, "got no payload"),
        (GOOD | {"colour": "red"}, "got the field 'colour'"),
        ({"payload": 1}, "expected a tenant, got none"),
        (GOOD | {"tenant": ""}, "expected tenant to be non-empty text"),
        (GOOD | {"priority": 101}, "expected priority to be an integer from -100 to 100, got 101"),
        (GOOD | {"delay": -1}, "expected delay to be a duration of 0 or more, got -1"),
        (GOOD | {"at": "2030-01-01T00:00:00"}, "expected at to be an ISO 8601 time with its zone"),
        (GOOD | {"at": "tomorrow"}, "such as '2030-01-31T12:00:00+00:00', got 'tomorrow'"),
        (GOOD | {"at": 7}, "got 7"),
        (GOOD | {"payload": "x" * 1_100_000}, "expected the encoded payload to have at most 1,048,576 bytes"),
        (GOOD | {"metadata": {"org": "\x07"}}, "expected the group id of limit 'org' to be"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_stored(place: Place, bad: object, said: str) -> None:
    with place.queue(limits=[Limit("org", default=1, key="org")]) as queue:
        queue.connect()
    done = place.call("enqueue", "-", stdin=lines(GOOD, GOOD, bad, GOOD))
    assert done.status == 1
    assert done.error.startswith("line 3: ")
    assert done.error.endswith("; nothing was stored")
    assert said in done.error
    with place.queue() as queue:
        assert queue.stats().totals.enqueued == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{", "--tenant", "a"], "expected PAYLOAD to be JSON"),
        (["hello", "--tenant", "a"], """(text goes in quotes of its own, such as: '"hello"')"""),
        (["it's", "--tenant", "a"], "such as: '\"it'\"'\"'s\"')"),
        (
            ["1", "--tenant", "a", "--at", "2100-01-01T00:00:00"],
            "expected --at to be an ISO 8601 time with its zone",
        ),
        (["1", "--tenant", "a", "--at", "tomorrow"], "such as '2030-01-31T12:00:00+00:00', got 'tomorrow'"),
        (["-", "--tenant", "a", "--at", "tomorrow"], "expected --at to be"),
        (
            ["1", "--tenant", "a", "--at", "2100-01-01T00:00Z", "--delay", "1"],
            "expected --delay or --at, got both",
        ),
        (["1"], "expected a tenant, got none"),
        (["1", "--tenant", "a", "--metadata", "[]"], "expected --metadata to be a dict"),
        (["1", "--tenant", "a", "--metadata", "x"], "expected --metadata to be JSON"),
        (["NaN", "--tenant", "a"], "payload cannot be encoded"),
        (["1", "--tenant", "a\n"], "expected --tenant to be text without control characters"),
        (["-", "--tenant", "a", "--id", "x"], "expected an id in each line"),
    ],
)
def test_wrong_arguments(place: Place, words: list[str], said: str) -> None:
    done = place.call("enqueue", *words)
    assert (done.status, said in done.error) == (2, True), done


def test_a_limit_computed_by_another_program_refuses(place: Place) -> None:
    with place.queue(limits=[Limit("model", default=1, key=lambda message: message.queue)]) as queue:
        queue.connect()
    done = place.call("enqueue", "1", "--tenant", "a")
    assert done.status == 2
    assert "limit 'model' is computed by a function" in done.error
