from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fairqueue.demo.shipped import shipped_trace
from fairqueue.demo.trace import MAX_LINE_BYTES, Trace, TraceError, TraceJob

HEADER = "submit_s\trun_s\tuser\tgroup\n"
TSV = f"# from somewhere, thanks to someone\n#\n{HEADER}0\t83\tu1\tg1\n3.5\t0\tu2\t\n"
TSV_JOBS = [TraceJob(0, 83, "u1", "g1"), TraceJob(3.5, 0, "u2", None)]


def swf(submit: object = 10, run: object = 60, user: object = 7, group: object = 2) -> str:
    return f"1 {submit} 4 {run} 1 -1 -1 1 100 -1 1 {user} {group} -1 1 -1 -1 -1\n"


SWF = (
    "; Computer: a cluster\n;\n  " + swf() + swf(submit=20, user=-1, group=-1) + swf(run=-1) + swf(submit=-1)
)
SWF_JOBS = [TraceJob(10, 60, "u7", "g2"), TraceJob(20, 60, "unknown", None)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a-log"


def read(path: Path, content: str | bytes) -> list[TraceJob]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(Trace(path))


def test_a_tab_separated_log_is_read(file: Path) -> None:
    assert read(file, TSV) == TSV_JOBS


def test_a_standard_workload_format_log_is_read_and_jobs_that_never_ran_are_counted(file: Path) -> None:
    assert read(file, SWF) == SWF_JOBS
    trace = Trace(file)
    assert (list(trace), trace.skipped) == (SWF_JOBS, 2)


@pytest.mark.parametrize(("content", "jobs"), [(TSV, TSV_JOBS), (SWF, SWF_JOBS)])
def test_a_gzipped_log_is_known_by_its_content_whatever_it_is_called(
    file: Path, content: str, jobs: list[TraceJob]
) -> None:
    assert read(file, gzip.compress(content.encode())) == jobs


def test_columns_are_found_by_name_and_others_are_ignored(file: Path) -> None:
    assert read(file, "user\tnode\trun_s\tsubmit_s\nu1\tn9\t5\t2\n") == [TraceJob(2, 5, "u1", None)]


@pytest.mark.parametrize(
    "content",
    [
        TSV.replace("\n", "\r\n"),
        "\ufeff" + TSV,
        TSV.rstrip("\n"),
        TSV.replace("0\t83", "\n# a remark\n0\t83"),
    ],
)
def test_line_ends_byte_order_marks_blank_lines_and_remarks_do_not_matter(file: Path, content: str) -> None:
    assert read(file, content) == TSV_JOBS


def test_odd_names_stay_as_they_are(file: Path) -> None:
    names = ["{a}:*[", "名前", "x y", "<b>", "'; --"]
    jobs = read(file, HEADER + "".join(f"0\t1\t{name}\t{name}\n" for name in names))
    assert [job.user for job in jobs] == names
    assert [job.group for job in jobs] == names


def test_old_headers_in_latin_1_are_no_error(file: Path) -> None:
    assert read(file, "; Königin\n".encode("latin-1") + swf().encode()) == SWF_JOBS[:1]


def test_a_log_is_read_anew_each_time_and_a_reading_may_end_early(file: Path) -> None:
    read(file, TSV)
    trace = Trace(file)
    assert next(iter(trace)) == TSV_JOBS[0]
    assert list(trace) == list(trace) == TSV_JOBS


def test_the_comments_before_the_first_job_are_kept_without_their_marks(file: Path) -> None:
    file.write_text(TSV + "# later\n")
    assert Trace(file).comments() == ["from somewhere, thanks to someone"]


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (HEADER + "0\t83\tu1\n", 2, "expected 4 values separated by tabs, got 3"),
        (HEADER + "0\tsoon\tu1\tg1\n", 2, "expected run_s to be a number, got 'soon'"),
        (HEADER + "0\tnan\tu1\tg1\n", 2, "expected run_s to be a number, got 'nan'"),
        (HEADER + "0\t1e400\tu1\tg1\n", 2, "expected run_s to be a number"),
        (HEADER + "0\t1\tu1\tg1\n0\t-1\tu1\tg1\n", 3, "expected run_s to be 0 to 1e+12 seconds, got -1"),
        (HEADER + "-5\t1\tu1\tg1\n", 2, "expected submit_s to be 0 to"),
        (HEADER + "0\t1\t\tg1\n", 2, "expected user to be non-empty text"),
        (HEADER + "0\t1\tu\x07\tg1\n", 2, "expected user to be text without control characters"),
        (HEADER + f"0\t1\tu\t{'é' * 257}\n", 2, "expected group to be text of at most 512 bytes"),
        ("# remark\nwhen\twho\n", 2, "expected the column names submit_s, run_s, user [, group]"),
        ("\x89PNG\r\n", 1, "expected the column names"),
        (SWF + "1 2 3\n", 7, "expected 18 numbers (Standard Workload Format), got 3"),
        (swf(run="x"), 1, "expected field 4 (run time) to be a number, got 'x'"),
        (swf(user=1.5), 1, "expected field 12 (user) to be a whole number"),
        (swf(run=-7), 1, "expected run time to be 0 to"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(file: Path, content: str, line: int, said: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(file, content)
    assert f"{file}, line {line}: {said}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(file: Path) -> None:
    with pytest.raises(TraceError, match="line 2: expected UTF-8 text"):
        read(file, HEADER.encode() + b"0\t1\t\xff\xfe\tg\n")


def test_a_file_without_line_ends_is_refused_before_it_fills_memory(file: Path) -> None:
    with pytest.raises(TraceError, match=f"line 1: expected at most {MAX_LINE_BYTES} bytes a line"):
        read(file, b"0" * (MAX_LINE_BYTES + 2))


def test_a_cut_off_gzip_file_is_refused(file: Path) -> None:
    whole = gzip.compress(
        (HEADER + "".join(f"{n}\t{n * 7919 % 1013}\tu{n}\tg\n" for n in range(5000))).encode()
    )
    with pytest.raises(TraceError, match=r"after line \d+: expected whole gzip data"):
        read(file, whole[: len(whole) // 2])


def test_damaged_gzip_data_are_refused(file: Path) -> None:
    whole = bytearray(gzip.compress((HEADER + "0\t1\tu\tg\n" * 5000).encode()))
    whole[20:40] = b"\x00" * 20
    with pytest.raises(TraceError, match="expected whole gzip data"):
        read(file, bytes(whole))


@pytest.mark.parametrize("name", ["missing.tsv", "."])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match="expected a file that can be read, got"):
        list(Trace(tmp_path / name))


def test_the_cut_that_is_shipped_names_its_source_and_has_one_big_user_among_many() -> None:
    trace = Trace(shipped_trace())
    jobs = list(trace)
    comments = "\n".join(trace.comments())
    assert "Parallel Workloads Archive" in comments
    assert "acknowledge Hui Li" in comments
    assert "6000 consecutive jobs" in comments
    assert len(jobs) == 6000
    users = {job.user for job in jobs}
    assert len(users) == 59
    assert 0.3 < sum(job.user == "u1" for job in jobs) / len(jobs) < 0.4
    assert all(job.group for job in jobs)
