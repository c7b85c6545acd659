"""Job logs for the replay: our tab-separated form and the Standard Workload Format, plain or gzipped.

Both are read as a stream, one line at a time, and recognised by what is in them, never by their names.
A line that cannot be used stops the reading with a :class:`TraceError` that names the file, the line and
what was expected there; nothing is guessed. What a log honestly marks as unknown (a Standard Workload
Format job that never ran) is counted in :attr:`Trace.skipped` instead.

The tab-separated form has ``#`` comments, one line of column names (``submit_s``, ``run_s``, ``user`` and, if it is
known, ``group``; times in seconds) and then one job a line.

The Standard Workload Format has ``;`` comments and 18 numbers a line, -1 for "unknown":
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

import gzip
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, cast

from fairqueue.errors import ConfigurationError
from fairqueue.validation import identifier, shown

MAX_LINE_BYTES = 65_536
"""No line of a job log is longer; a file without line ends (an image, say) is refused before it fills memory."""

MAX_SECONDS = 1e12
"""No time in a job log is larger: sums of them stay exact enough to scale by."""

MAX_COMMENTS = 40

TSV_COLUMNS = ("submit_s", "run_s", "user")
SWF_FIELDS = 18
_GZIP_MAGIC = b"\x1f\x8b"


class TraceError(ConfigurationError):
    """A job log that cannot be replayed. The text names the file, the line and what was expected there."""


class TraceJob(NamedTuple):
    """One job of a log: when it was submitted and how long it ran (seconds), by whom (``group`` may be unknown)."""

    submit_s: float
    run_s: float
    user: str
    group: str | None


@dataclass(slots=True)
class Trace:
    """A job log on disk. Iterating it reads the file anew, as a stream, so a log of any length fits in memory.

    Raises:
        TraceError: the file cannot be read, or a line of it is not what its format says.

    Example:
        >>> trace = Trace(Path("examples/lcg-2005-cut.tsv"))       # doctest: +SKIP
        >>> sum(1 for job in trace)                                # doctest: +SKIP
        6000
    """

    path: Path
    skipped: int = field(default=0, init=False)
    """Jobs of the last reading that the log itself marks as never run."""

    def comments(self) -> list[str]:
        """The comment lines before the first job, without their marks: where the log is from, whom to acknowledge.

        At most 40 of them, each shortened to 400 characters; empty ones are left out.
        """
        lines = itertools.takewhile(_is_comment, itertools.islice(_NumberedLines(self.path), MAX_COMMENTS))
        return [text[:400] for line in lines if (text := line.strip().lstrip("#;").strip())]

    def __iter__(self) -> Iterator[TraceJob]:
        self.skipped = 0
        lines = _NumberedLines(self.path)
        parse: Callable[[str], TraceJob | None] | None = None
        for line in lines:
            text = line.rstrip("\r\n")
            if _is_comment(text):
                continue
            try:
                if parse is None:
                    parse, is_job = _recognise(text)
                    if not is_job:
                        continue
                job = parse(text)
            except ValueError as error:
                raise TraceError(f"{self.path}, line {lines.number}: {error}") from None
            if job is None:
                self.skipped += 1
            else:
                yield job


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith(("#", ";"))


class _NumberedLines:
    """The decoded lines of a plain or gzipped file; :attr:`number` is the one handed out last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        try:
            with _open(self._path) as stream:
                while line := stream.readline(MAX_LINE_BYTES + 1):
                    self.number += 1
                    yield self._decode(line)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(
                f"{self._path}, after line {self.number}: expected whole gzip data, got {error}"
            ) from None
        except OSError as error:
            raise TraceError(
                f"{self._path}: expected a file that can be read, got {error.strerror or error}"
            ) from None

    def _decode(self, line: bytes) -> str:
        where = f"{self._path}, line {self.number}"
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(f"{where}: expected at most {MAX_LINE_BYTES} bytes a line, got more")
        try:
            return line.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError:
            if line.lstrip()[:1] in (
                b"#",
                b";",
            ):  # old archive headers carry Latin-1 names; nothing reads them
                return line.decode("latin-1")
            raise TraceError(f"{where}: expected UTF-8 text, got {line[:40]!r}") from None


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as probe:
        packed = probe.read(2) == _GZIP_MAGIC
    return cast("IO[bytes]", gzip.open(path, "rb")) if packed else path.open("rb")


def _recognise(first: str) -> tuple[Callable[[str], TraceJob | None], bool]:
    """The parser for a file whose first line of content is this one, and whether that line is a job."""
    names = first.split("\t")
    if all(name in names for name in TSV_COLUMNS):
        return _tsv_parser(names), False
    if len(first.split()) == SWF_FIELDS and "\t".join(TSV_COLUMNS) not in first:
        return parse_swf, True
    raise ValueError(
        f"expected the column names {', '.join(TSV_COLUMNS)} [, group] separated by tabs, "
        f"or a Standard Workload Format job of {SWF_FIELDS} numbers, got {shown(first)}"
    )


def _tsv_parser(names: Sequence[str]) -> Callable[[str], TraceJob]:
    submit, run, user = (names.index(name) for name in TSV_COLUMNS)
    group = names.index("group") if "group" in names else None

    def parse(text: str) -> TraceJob:
        cells = text.split("\t")
        if len(cells) != len(names):
            raise ValueError(
                f"expected {len(names)} values separated by tabs, got {len(cells)}: {shown(text)}"
            )
        return TraceJob(
            _seconds("submit_s", cells[submit]),
            _seconds("run_s", cells[run]),
            identifier("user", cells[user]),
            (identifier("group", cells[group]) if cells[group] else None) if group is not None else None,
        )

    return parse


def parse_swf(text: str) -> TraceJob | None:
    """One job line of the Standard Workload Format; None for a job that it marks as never run or never submitted.

    Field 2 is the submit time, 4 the run time, 12 the user, 13 the group; a user of -1 is the tenant "unknown",
    a group of -1 is no group. The number of processors is not looked at: a job is one message here.
    """
    cells = text.split()
    if len(cells) != SWF_FIELDS:
        raise ValueError(
            f"expected {SWF_FIELDS} numbers (Standard Workload Format), got {len(cells)}: {shown(text)}"
        )
    submit, run = _number("field 2 (submit time)", cells[1]), _number("field 4 (run time)", cells[3])
    user = _identity("field 12 (user)", cells[11], "u")
    group = _identity("field 13 (group)", cells[12], "g")
    if submit == -1 or run == -1:
        return None
    return TraceJob(_in_range("submit time", submit), _in_range("run time", run), user or "unknown", group)


def _identity(what: str, cell: str, prefix: str) -> str | None:
    value = _number(what, cell)
    if value != int(value) or value < -1:
        raise ValueError(f"expected {what} to be a whole number, or -1 for unknown, got {shown(cell)}")
    return None if value == -1 else f"{prefix}{int(value)}"


def _seconds(what: str, cell: str) -> float:
    return _in_range(what, _number(what, cell))


def _number(what: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"expected {what} to be a number, got {shown(cell)}")
    return value


def _in_range(what: str, value: float) -> float:
    if not 0 <= value <= MAX_SECONDS:
        raise ValueError(f"expected {what} to be 0 to {MAX_SECONDS:.0e} seconds, got {value:g}")
    return value
