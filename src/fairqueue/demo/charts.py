"""The report's charts: waits over the replay, and how many waited how long, for small and for large tenants."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from fairqueue.demo.metrics import percentile_if_any, small_tenants, waits
from fairqueue.demo.result import JobRecord, Replay
from fairqueue.demo.svg import Axis, Line, Point, chart, linear_axis, log_seconds_axis

BINS = 40
CDF_POINTS = 120
CLASSES = ("small", "large")


def waits_over_time(replays: Sequence[Replay]) -> Iterator[tuple[str, str]]:
    """Two charts, small and large tenants on one scale: title and SVG of each."""
    span = replays[0].plan.span_s
    lines = {which: [*_over_time_lines(replays, which)] for which in CLASSES}
    points = [y for each in lines.values() for line in each for piece in line.pieces for _, y in piece]
    y = linear_axis(max(points, default=0.0), "wait")
    x = linear_axis(span, "submitted, in seconds of the replay", unit="")
    kills = [(replay.kill.at_s, "kill -9") for replay in replays if replay.kill][:1]
    for which in CLASSES:
        yield (
            f"{which.capitalize()} tenants",
            chart(f"waits of {which} tenants over time", x, y, lines[which], kills),
        )


def wait_cdfs(replays: Sequence[Replay]) -> Iterator[tuple[str, str]]:
    """Two charts of the part of the jobs that waited no longer than so: title and SVG of each."""
    longest = max((wait for replay in replays for wait in waits(replay.records)), default=1.0)
    x = log_seconds_axis(longest, "waited at most")
    y = Axis(0, 1, [(n / 4, f"{n * 25} %") for n in range(5)], "jobs")
    for which in CLASSES:
        lines = [
            Line(replay.scheduler, replay.scheduler, [_cdf(_of_class(replay, which))]) for replay in replays
        ]
        yield f"{which.capitalize()} tenants", chart(f"distribution of waits of {which} tenants", x, y, lines)


def _over_time_lines(replays: Sequence[Replay], which: str) -> Iterator[Line]:
    for replay in replays:
        bins = _bins(_of_class(replay, which), replay.plan.span_s)
        for part, css in ((0.95, f"{replay.scheduler} p95"), (0.5, replay.scheduler)):
            yield Line(css, f"{replay.scheduler}, p{part * 100:.0f}", _pieces(bins, part))


def _of_class(replay: Replay, which: str) -> list[JobRecord]:
    small = small_tenants(replay.plan.offered)
    return [record for record in replay.records if (record.job.tenant in small) == (which == "small")]


def _bins(records: Sequence[JobRecord], span: float) -> list[tuple[float, list[float]]]:
    """The waits by time of submission: the middle of each bin, and the waits of its jobs."""
    width = span / BINS
    bins: list[tuple[float, list[float]]] = [((n + 0.5) * width, []) for n in range(BINS)]
    for record in records:
        bins[min(BINS - 1, int(record.job.at_s / width))][1].extend(waits([record]))
    return bins


def _pieces(bins: Sequence[tuple[float, list[float]]], part: float) -> list[list[Point]]:
    """The percentile of every bin; a new piece after each bin in which nobody submitted anything."""
    points = [(middle, percentile_if_any(found, part)) for middle, found in bins]
    return [
        [(middle, wait) for middle, wait in run if wait is not None]
        for there, run in itertools.groupby(points, key=lambda point: point[1] is not None)
        if there
    ]


def _cdf(records: Sequence[JobRecord]) -> list[Point]:
    """At most ``CDF_POINTS`` steps of the distribution, from 0 to all."""
    ordered = sorted(waits(records))
    if not ordered:
        return []
    ranks = sorted({round(n * (len(ordered) - 1) / (CDF_POINTS - 1)) for n in range(CDF_POINTS)})
    return [(ordered[0], 0.0), *((ordered[rank], (rank + 1) / len(ordered)) for rank in ranks)]
