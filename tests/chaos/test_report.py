"""A run says what was wrong with it, in words and in its line for docs/reliability.md, however it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import __main__ as command
from tests.chaos import report
from tests.chaos.accounting import Account, Stock
from tests.chaos.run import Done

STOCK = Stock(waiting=0, enqueued=0, completed=0, dead_lettered=0, dead={}, findings=[])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (command, report):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    return tmp_path


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def made_up(monkeypatch: pytest.MonkeyPatch, done: Done, error: BaseException | None = None) -> None:
    """In the place of Chaos, which has a plan and processes."""

    class MadeUp:
        def __init__(self, *_: object) -> None:
            self.done = done

        def run(self) -> Done:
            if error:
                raise error
            return self.done

    monkeypatch.setattr(command, "Chaos", MadeUp)


def test_nothing_is_wrong_with_a_run_that_kept_its_promises() -> None:
    assert report.problems(Done(stock=STOCK), Account(), kills=0) == []


def test_what_an_audit_under_load_has_found_is_a_problem() -> None:
    done = Done(stock=STOCK)
    done.counts.audits, done.counts.audits_that_found = 5, 2
    assert report.problems(done, Account(), kills=0) == [
        "audit under load: 2 of 5 found something: see 'under load' in what the processes said"
    ]


def test_it_is_told_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Done(stock=STOCK)
    done.counts.audits = done.counts.audits_that_found = 1
    made_up(monkeypatch, done)
    assert command.main(["--kills", "0"]) == 1
    assert "audit under load: 1 of 1 found something" in capsys.readouterr().err
    assert lines(folder)[-1]["problems"] == 1


def test_a_run_that_was_as_promised_is_counted_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, Done(stock=STOCK))
    assert command.main(["--kills", "0", "--seed", "3"]) == 0
    began, ended = lines(folder)
    assert (began["began"], began["seed"], began["wanted"]) == (True, 3, 0)
    assert {"commit", "server", "python"} <= began.keys()
    assert (ended["problems"], ended["kills"]) == (0, 0)


@pytest.mark.parametrize(
    "error", [AssertionError("expected all to be back within 120 s"), KeyboardInterrupt()]
)
def test_a_run_that_did_not_come_to_its_end_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    made_up(monkeypatch, Done(), error)
    with pytest.raises(type(error)):
        command.main(["--kills", "3"])
    assert lines(folder)[-1]["failed"] == repr(error)
