from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest

from fairqueue.demo.report import report
from fairqueue.demo.result import Kill, Replay
from fairqueue.demo.svg import Axis, Line, chart, escape, linear_axis, log_seconds_axis
from tests.demo.made import job, ran, replay

HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "a&b &lt; </td>",
    "\u202eevil",
    "]]>",
    "\ufffe",
]


def two_replays(tenants: Sequence[str]) -> list[Replay]:
    records = [
        ran(job(n, tenant, at_s=n % 10, run_s=0.1 + n % 3), n % 10 + 0.5 * (n % 4))
        for n, tenant in enumerate(list(tenants) * 30)
    ]
    kill = Kill("worker-1", 4711, 4.0)
    return [replay(records, scheduler=scheduler, kill=kill) for scheduler in ("fifo", "fair")]


@pytest.fixture
def page() -> str:
    return report(
        "a log.tsv", two_replays(["big", *HOSTILE, "big"]), workers=3, comments=["thanks to <someone>"]
    )


def tree(page: str) -> ET.Element:
    doctype, _, rest = page.partition("\n")
    assert doctype == "<!DOCTYPE html>"
    return ET.fromstring(rest)


def test_the_page_is_well_formed(page: str) -> None:
    root = tree(page)
    assert root.tag == "html"
    assert root.find(".//h1") is not None
    assert len(root.findall(".//svg")) == 4


def test_nothing_is_loaded_from_anywhere_and_nothing_is_executed(page: str) -> None:
    root = tree(page)
    tags = {element.tag for element in root.iter()}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "image",
        "use",
        "a",
        "base",
        "form",
    }
    attributes = {name.lower() for element in root.iter() for name in element.attrib}
    assert not {name for name in attributes if name.startswith("on")}
    assert not attributes & {"href", "src", "srcset", "xlink:href", "action", "data", "style"}
    style = root.findtext(".//style") or ""
    assert "prefers-color-scheme: dark" in style
    assert not re.search(r"url\(|@import|https?:", style)


def test_names_come_out_as_text_whatever_is_in_them(page: str) -> None:
    names = ["".join(cell.itertext()) for cell in tree(page).iterfind(".//table[@class='tenants']//bdi")]
    assert sorted(names) == sorted(["big", *HOSTILE[:-1], "\N{REPLACEMENT CHARACTER}"])


def test_a_hostile_source_and_comment_come_out_as_text() -> None:
    page = report("<b>x</b>.tsv", two_replays(["a"]), workers=3, comments=["<script>1</script>"])
    text = "".join(tree(page).itertext())
    assert "<b>x</b>.tsv" in text
    assert "<script>1</script>" in text


def test_it_says_what_was_run_and_what_came_out(page: str) -> None:
    text = " ".join("".join(tree(page).itertext()).split())
    for wanted in (
        "a log.tsv",
        "3 worker processes",
        "kill -9 after 4.0 s",
        "wait p95",
        "Jain index",
        "run twice",
        "lost",
    ):
        assert wanted in text


def test_what_went_wrong_is_said_and_nothing_is_when_nothing_did(page: str) -> None:
    assert "What went wrong" not in page
    late = [replay([ran(job(1, "a"), 0)], in_time=in_time) for in_time in (True, False)]
    wrong = tree(report("log", late, workers=2)).findall(".//p[@class='wrong']")
    assert [line.text for line in wrong] == ["fair: stopped after 12 s, before everything was done"]


def test_figures_are_named_and_columns_have_headings(page: str) -> None:
    root = tree(page)
    assert all(svg.get("aria-label") and svg.findtext("title") for svg in root.iterfind(".//svg"))
    for table in root.iterfind(".//table"):
        widths = {
            len(row.findall("td")) + len(row.findall("th"))
            for row in table.iterfind(".//tr")
            if not row.findall("th[@colspan]")
        }
        assert len(widths) == 1
        assert all(cell.get("scope") for cell in table.iterfind(".//th"))


def test_all_drawn_points_lie_inside_their_chart(page: str) -> None:
    for path in tree(page).iterfind(".//path"):
        numbers = [float(number) for number in re.findall(r"[ML]([\d.]+) [\d.]+", path.get("d") or "")]
        assert numbers
        assert all(0 <= number <= 360 for number in numbers)


def test_a_replay_in_which_nothing_started_can_be_shown_too() -> None:
    empty = [replay([ran(job(1, "a"))], scheduler=scheduler) for scheduler in ("fifo", "fair")]
    assert tree(report("log", empty, workers=2)).find(".//h1") is not None


def test_an_axis_has_round_ticks_that_reach_over_the_largest_value() -> None:
    assert [text for _, text in linear_axis(7.3, "wait").ticks] == ["0 s", "2 s", "4 s", "6 s", "8 s"]
    assert [text for _, text in log_seconds_axis(3, "wait").ticks] == [
        "1 ms",
        "10 ms",
        "100 ms",
        "1 s",
        "10 s",
    ]


@pytest.mark.parametrize("high", [0, 1e-6, 0.02, 0.9, 1, 4.99, 10, 123, 9999])
def test_no_axis_is_empty_or_crowded(high: float) -> None:
    axis = linear_axis(high, "wait")
    assert axis.high >= high
    assert 2 <= len(axis.ticks) <= 6


def test_what_is_outside_an_axis_lies_on_its_edge() -> None:
    axis = Axis(1, 100, [], "x", log=True)
    assert [axis.part(value) for value in (0, 1, 10, 100, 1e9)] == [0, 0, 0.5, 1, 1]


def test_a_line_with_gaps_is_drawn_in_pieces_and_a_lone_point_as_a_dot() -> None:
    axis = Axis(0, 1, [], "x")
    drawn = ET.fromstring(
        chart("t", axis, axis, [Line("fair", "fair", [[(0, 0), (1, 1)], [], [(0.5, 0.5)]])])
    )
    assert re.fullmatch(r"M\S+ \S+ L\S+ \S+ M\S+ \S+ h0.1", drawn.find("path").get("d") or "")  # type: ignore[union-attr]


def test_escaping_leaves_nothing_that_markup_could_be_made_of() -> None:
    assert (
        escape("<a b=\"c\" d='e'>&\x00\ud800")
        == "&lt;a b=&quot;c&quot; d=&#x27;e&#x27;&gt;&amp;\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    )
