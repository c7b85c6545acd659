from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairqueue.demo import DemoOptions
from fairqueue.demo.result import JobRecord, Kill, QueueFacts, Replay
from fairqueue.demo.table import as_json, print_table, rows
from fairqueue.demo.words import (
    describe_kill,
    describe_plan,
    describe_price,
    describe_taken_back,
    describe_untold,
    seconds,
    verdict,
)
from fairqueue.errors import ConfigurationError
from tests.demo.made import console, job, plan, ran, replay

FACTS = QueueFacts(reclaimed=5, healed=2, freed_late=1, held=0, findings=())


@pytest.fixture
def replays() -> list[Replay]:
    big = [ran(job(n, "big", run_s=2), 0) for n in range(4)]
    return [
        replay([*big, ran(job(9, "[red]small", run_s=0.5), start)], scheduler=name, facts=FACTS)
        for name, start in (("fifo", 6), ("fair", 0.012))
    ]


def printed(replays: list[Replay], *, terminal: bool) -> str:
    out = io.StringIO()
    print_table(console(out, terminal=terminal), replays)
    return out.getvalue()


def test_the_table_has_fifo_beside_fair(replays: list[Replay]) -> None:
    found = {row.label: row.cells for row in rows(replays)[:4]}
    assert found == {
        "Small tenants: 1, with 1 job": (),
        "wait p50": ("6.00 s", "12 ms"),
        "wait p95": ("6.00 s", "12 ms"),
        "share of worker time": ("5.9%", "5.9%"),
    }
    assert ("slots healed by reconcile", ("2", "2"), False) in rows(replays)


def test_every_row_is_whole_on_a_terminal_and_elsewhere(replays: list[Replay]) -> None:
    for terminal in (True, False):
        text = printed(replays, terminal=terminal)
        assert all(row.label in text for row in rows(replays))
        assert ("\x1b[" in text) == terminal
        assert text.isascii() or terminal


def test_a_terminal_that_can_only_print_gets_plain_ascii(replays: list[Replay]) -> None:
    out = io.StringIO()
    print_table(console(out, terminal=True, term="dumb"), replays)
    assert out.getvalue().isascii()
    assert "\x1b" not in out.getvalue()


def test_the_json_has_plain_numbers(replays: list[Replay]) -> None:
    found = json.loads(json.dumps(as_json(replays)))
    assert found["fair"]["small"] == {
        "tenants": 1,
        "jobs": 1,
        "wait_p50_s": pytest.approx(0.012),
        "wait_p95_s": pytest.approx(0.012),
        "share": pytest.approx(0.5 / 8.5),
    }
    assert found["fifo"]["slots_healed"] == 2
    assert (found["fifo"]["lost"], found["fifo"]["run_twice"], found["fifo"]["killed"]) == (0, 0, None)


def test_every_field_of_the_json_is_explained(replays: list[Replay]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "operations" / "command-line.md").read_text()
    table = page.partition("\n## demo")[2]
    found = as_json(replays)["fair"]
    assert [name for name in (*found, *found["small"]) if f"`{name}`" not in table] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0 ms"), (0.9994, "999 ms"), (0.9996, "1.00 s"), (1, "1.00 s"), (61, "61.00 s")],
)
def test_durations_are_written_as_people_read_them(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_a_clean_replay_has_no_fault() -> None:
    assert verdict(replay([ran(job(1, "a"), 0)])) == []


def test_every_fault_is_said() -> None:
    facts = QueueFacts(0, 0, 0, held=3, findings=("SLOTS tenant:a",))
    records = [JobRecord(job(1, "a")), ran(job(2, "a"), 0, 2)]
    assert verdict(replay(records, facts=facts, in_time=False)) == [
        "fair: stopped after 12 s, before everything was done",
        "fair: 1 job submitted and not run to the end",
        "fair: 1 job run twice that the killed worker had no part in",
        "fair: 3 slots still held",
        "fair: audit() found: SLOTS tenant:a",
    ]


def test_a_job_the_killed_worker_had_just_ended_may_run_twice_and_is_explained() -> None:
    just_ended = replay([ran(job(2, "a"), 0, 3)], kill=Kill("worker-1", 4711, 1.005))
    assert verdict(just_ended) == []
    assert [line[:21] for line in describe_untold([just_ended])] == ["fair: 1 run twice: en"]


@pytest.mark.parametrize("kill", [Kill("worker-1", 4711, 2.5), Kill("worker-3", 4711, 1.005)])
def test_a_job_ended_long_before_the_kill_or_elsewhere_may_not(kill: Kill) -> None:
    found = replay([ran(job(2, "a"), 0, 3)], kill=kill)
    assert verdict(found) == ["fair: 1 job run twice that the killed worker had no part in"]
    assert list(describe_untold([found])) == []


def test_why_more_leases_came_back_than_handlers_began_again_is_said() -> None:
    kill = Kill("worker-1", 4711, 1.0)
    records = [ran(job(1, "a"), 0.5, 3, ends=[None, 4]), ran(job(2, "a"), 3)]
    facts = QueueFacts(reclaimed=2, healed=0, freed_late=0, held=0, findings=())
    (line,) = describe_taken_back([replay(records, kill=kill, facts=facts)])
    assert line == (
        "fair: 2 leases taken back, of 1 handler that had begun and of 1 message that the killed worker had claimed "
        "and not begun."
    )
    assert (
        list(describe_taken_back([replay(records[:1], kill=kill, facts=replace(facts, reclaimed=1))])) == []
    )


def test_a_replay_without_a_kill_says_so() -> None:
    (line,) = describe_kill([replay([ran(job(1, "a"), 0)])])
    assert line.startswith("fair: no worker was killed: with so few jobs")
    (line,) = describe_kill([replay([ran(job(1, "a"), 0)], kill=Kill("worker-1", 4711, 1.0))])
    assert line.startswith("fair: worker-1 was ended by kill -9")


def test_why_large_tenants_wait_longer_when_it_is_fair_is_said_where_they_do() -> None:
    def one(scheduler: str, large: float) -> Replay:
        records = [ran(job(n, "big", run_s=2), large) for n in range(4)]
        return replay([*records, ran(job(9, "small", run_s=0.5), 1)], scheduler=scheduler)

    (line,) = describe_price([one("fifo", 2), one("fair", 3)])
    assert line.startswith(
        "Large tenants wait longer under fair (p95): the workers and the work are the same"
    )
    assert list(describe_price([one("fifo", 3), one("fair", 2)])) == []


def test_jobs_left_out_are_said() -> None:
    short = plan([job(1, "u<1>", run_s=3), job(2, "u2", group=None)], in_log=100_000)
    first, second, third = describe_plan("a log", short, workers=3)
    assert first.startswith(
        "2 jobs of 2 users in 1 group, 10.0 hours of a log; "
        "u<1> alone sent 50% of the jobs, which are 75% of the work (run times added up)."
    )
    assert second.startswith(
        "The log has 100,000 jobs; 2 spread evenly over it are taken. All of them need --seconds "
    )
    assert "3 worker processes with 8 slots together" in third


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("seconds", 5, "expected seconds to be a number from 12 to 86,400, got 5"),
        ("seconds", float("nan"), "expected seconds to be a number"),
        ("workers", 1, "expected workers to be an integer from 2 to 32, got 1"),
        ("jobs", 0, "expected jobs to be an integer of at least 1, got 0"),
        (
            "report",
            Path("/nowhere/at/all.html"),
            "expected report to be a file in a directory that can be written to",
        ),
        ("report", Path(), "expected report to be a file"),
    ],
)
def test_wrong_options_are_named(option: str, value: object, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        DemoOptions(**{option: value})  # type: ignore[arg-type]
    assert said in str(caught.value)
