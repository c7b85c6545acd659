from __future__ import annotations

import time
from pathlib import Path

import pytest

from fairqueue.demo.journal import JournalReader, JournalWriter
from tests.demo.made import job

JOBS = [job(1, "a"), job(2, "b")]


def test_deliveries_of_all_processes_come_together_with_their_times(tmp_path: Path) -> None:
    began = time.monotonic()
    reader = JournalReader(tmp_path, JOBS, began=began)
    first, second = JournalWriter(tmp_path, "worker-1"), JournalWriter(tmp_path, "worker-2")
    first.started("job-1", 1)
    assert [record.job.id for record in reader.poll()] == ["job-1"]
    assert reader.running == {"worker-1": 1}
    second.started("job-1", 2)
    second.ended("job-1", 2)
    reader.poll()
    cut_off, whole = reader.records["job-1"].deliveries
    assert (cut_off.process, cut_off.attempt, cut_off.end_s) == ("worker-1", 1, None)
    assert (whole.process, whole.attempt) == ("worker-2", 2)
    assert whole.end_s is not None
    assert 0 <= cut_off.start_s <= whole.start_s <= whole.end_s <= time.monotonic() - began
    assert (reader.done, reader.records["job-2"].deliveries) == (1, [])


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path, JOBS, began=0)
    JournalWriter(tmp_path, "worker-1").started("job-2", 1)
    assert len(reader.poll()) == 1
    assert reader.poll() == []


def test_a_line_cut_short_is_not_counted_until_it_is_whole(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path, JOBS, began=0)
    log = tmp_path / "worker-1.jsonl"
    JournalWriter(tmp_path, "worker-1").started("job-1", 1)
    whole = log.read_bytes()
    log.write_bytes(whole[:-5])
    assert reader.poll() == []
    log.write_bytes(whole)
    assert len(reader.poll()) == 1


def test_a_second_completion_is_seen_as_one(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path, JOBS, began=0)
    writer = JournalWriter(tmp_path, "worker-1")
    for attempt in (1, 2):
        writer.started("job-1", attempt)
        writer.ended("job-1", attempt)
    reader.poll()
    assert reader.records["job-1"].completions == 2
    assert reader.done == 1


def test_the_same_attempt_delivered_again_after_a_release_is_another_delivery(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path, JOBS, began=0)
    writer = JournalWriter(tmp_path, "worker-1")
    writer.started("job-1", 1)
    writer.started("job-1", 1)
    writer.ended("job-1", 1)
    reader.poll()
    assert [delivery.end_s is None for delivery in reader.records["job-1"].deliveries] == [True, False]


def test_an_end_without_a_start_is_an_error(tmp_path: Path) -> None:
    JournalWriter(tmp_path, "worker-1").ended("job-1", 1)
    with pytest.raises(ValueError, match="expected the start of job-1"):
        JournalReader(tmp_path, JOBS, began=0).poll()
