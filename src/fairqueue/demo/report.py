"""The demo's HTML report: one file that needs nothing else, not even a network or JavaScript."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fairqueue.demo.charts import wait_cdfs, waits_over_time
from fairqueue.demo.metrics import Figures, TenantFigures, figures, small_tenants
from fairqueue.demo.result import Replay
from fairqueue.demo.style import CSS
from fairqueue.demo.svg import escape
from fairqueue.demo.table import Row, rows
from fairqueue.demo.words import (
    DEFINITIONS,
    column,
    describe_kill,
    describe_plan,
    describe_price,
    describe_taken_back,
    describe_untold,
    seconds,
    verdict,
)

TOP_TENANTS = 15


def report(source: str, replays: Sequence[Replay], *, workers: int, comments: Sequence[str] = ()) -> str:
    """The whole page for the replays of one plan, FIFO first.

    Args:
        source: What the jobs are from, in words; comes out as text, whatever is in it.
        replays: The replays, of the same plan.
        workers: How many worker processes there were.
        comments: What the log says of itself.
    """
    found = [figures(replay) for replay in replays]
    said = [
        *describe_plan(source, replays[0].plan, workers=workers),
        *describe_kill(replays),
        *describe_price(replays),
        *describe_taken_back(replays),
        *describe_untold(replays),
    ]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        "<title>fairqueue: a replayed job log, FIFO and fair</title>",
        f"<style>{CSS}</style></head><body><main>",
        f"<h1>{escape(_headline(replays, found))}</h1>",
        *(f'<p class="soft">{escape(line)}</p>' for line in said),
        *_faults(replays),
        *_table(replays),
        *_charts(replays),
        *_tenants(replays, found),
        *_definitions(),
        *_comments(comments),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _headline(replays: Sequence[Replay], found: Sequence[Figures]) -> str:
    said = " and ".join(
        f"{seconds(each.small.wait_p95_s)} {'in arrival order' if replay.scheduler == 'fifo' else 'under fair queueing'}"
        for replay, each in zip(replays, found, strict=True)
    )
    return f"95 % of the jobs of small tenants were started within {said}"


def _faults(replays: Sequence[Replay]) -> Iterator[str]:
    if wrong := [line for replay in replays for line in verdict(replay)]:
        yield "<h2>What went wrong</h2>"
        yield from (f'<p class="wrong">{escape(line)}</p>' for line in wrong)


def _table(replays: Sequence[Replay]) -> Iterator[str]:
    yield '<h2>Both replays</h2><div class="wide"><table><thead><tr><td></td>'
    yield from (f'<th scope="col">{escape(column(replay.scheduler))}</th>' for replay in replays)
    yield "</tr></thead><tbody>"
    yield from (_row(row, len(replays)) for row in rows(replays))
    yield "</tbody></table></div>"


def _row(row: Row, columns: int) -> str:
    if not row.cells:
        return f'<tr><th scope="rowgroup" colspan="{columns + 1}">{escape(row.label)}</th></tr>'
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
    return f'<tr{_strong(row)}><th scope="row">{escape(row.label)}</th>{cells}</tr>'


def _strong(row: Row) -> str:
    return ' class="strong"' if row.emphasis else ""


def _charts(replays: Sequence[Replay]) -> Iterator[str]:
    yield "<h2>Waits over the replay</h2>"
    yield _key([("fifo", "FIFO, half waited less"), ("fair", "fair, half waited less")], p95=True)
    yield from _figures(waits_over_time(replays))
    yield "<h2>How many waited how long</h2>"
    yield _key([("fifo", "FIFO"), ("fair", "fair")], p95=False)
    yield from _figures(wait_cdfs(replays))


def _key(lines: Iterable[tuple[str, str]], *, p95: bool) -> str:
    spans = [f'<span><i class="{css}"></i>{escape(text)}</span>' for css, text in lines]
    if p95:
        spans.append('<span><i class="p95"></i>the same, 95 % waited less</span>')
    return f'<p class="key soft">{"".join(spans)}</p>'


def _figures(charts: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield '<div class="charts">'
    yield from (f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>" for title, svg in charts)
    yield "</div>"


def _tenants(replays: Sequence[Replay], found: Sequence[Figures]) -> Iterator[str]:
    offered = replays[0].plan.offered
    top = sorted(offered, key=lambda tenant: (-offered[tenant], tenant))[:TOP_TENANTS]
    small, work = small_tenants(offered), sum(offered.values())
    yield f"<h2>The {len(top)} tenants that asked for the most, of {len(offered)}</h2>"
    yield '<div class="wide"><table class="tenants"><thead><tr><th scope="col">tenant</th><th scope="col">class</th>'
    yield '<th scope="col">jobs</th><th scope="col">part of all work</th>'
    for replay in replays:
        yield f'<th scope="col">{escape(column(replay.scheduler))} wait p50</th><th scope="col">p95</th>'
    yield "</tr></thead><tbody>"
    for tenant in top:
        each = [one.by_tenant[tenant] for one in found if tenant in one.by_tenant]
        part = f"{offered[tenant] / work:.1%}" if work else "-"
        yield _tenant_row(tenant, "small" if tenant in small else "large", part, each)
    yield "</tbody></table></div>"


def _tenant_row(tenant: str, which: str, part: str, each: Sequence[TenantFigures]) -> str:
    cells = [which, f"{max((one.jobs for one in each), default=0):,}", part]
    for one in each:
        cells += [seconds(one.wait_p50_s), seconds(one.wait_p95_s)]
    tds = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row"><bdi>{escape(tenant)}</bdi></th>{tds}</tr>'


def _definitions() -> Iterator[str]:
    yield "<h2>What the words mean</h2><dl>"
    yield from (f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in DEFINITIONS)
    yield "</dl>"


def _comments(comments: Sequence[str]) -> Iterator[str]:
    """The log's own header: who gave it, and whom to acknowledge."""
    if comments:
        yield "<h2>What the log says of itself</h2>"
        yield from (f'<p class="soft">{escape(comment)}</p>' for comment in comments)
