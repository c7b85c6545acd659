"""Line charts as inline SVG: text in, text out; colours come from the page's style sheet by class name."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 360, 260
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 26, 40

_NOT_IN_MARKUP = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

Point = tuple[float, float]


def escape(text: object) -> str:
    """Text that is only text in HTML, attributes included, whatever characters somebody put into a name."""
    return html.escape(_NOT_IN_MARKUP.sub("\N{REPLACEMENT CHARACTER}", str(text)))


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its range, the values that are marked with their texts, and its title."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    title: str
    log: bool = False

    def part(self, value: float) -> float:
        """Where a value lies on the axis, 0 to 1; what is outside lies at the nearer end."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return min(1.0, max(0.0, (value - low) / (high - low)))


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its style class, what it shows, and its pieces (a gap is where there is nothing to show)."""

    css: str
    name: str
    pieces: Sequence[Sequence[Point]]


def linear_axis(high: float, title: str, unit: str = " s") -> Axis:
    """An axis from 0 to ``high`` or a little more, with 3 to 6 round ticks."""
    high = high or 1.0
    step = next(s for s in _round_steps(high) if high / s <= 5)
    count = math.ceil(high / step - 1e-9)
    return Axis(0.0, count * step, [(n * step, f"{n * step:g}{unit}") for n in range(count + 1)], title)


def _round_steps(high: float) -> Iterator[float]:
    decade = 10 ** math.floor(math.log10(high) - 1)
    for factor in (1, 10, 100):
        yield from (base * factor * decade for base in (1, 2, 5))


def log_seconds_axis(high: float, title: str) -> Axis:
    """An axis from 1 ms to the power of ten at or above ``high``, one tick a power."""
    top = max(-2, math.ceil(math.log10(max(high, 1e-3)) - 1e-9))
    ticks = [(10.0**n, f"{10 ** (n + 3)} ms" if n < 0 else f"{10**n} s") for n in range(-3, top + 1)]
    return Axis(1e-3, 10.0**top, ticks, title, log=True)


def chart(
    title: str, x: Axis, y: Axis, lines: Sequence[Line], marks: Sequence[tuple[float, str]] = ()
) -> str:
    """One chart. ``marks`` are vertical lines: where on the x axis, and a word beside each."""
    return "\n".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            *_grid(x, y),
            *(_mark(x, at, word) for at, word in marks),
            *(_path(x, y, line) for line in lines),
            "</svg>",
        ]
    )


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value, text in y.ticks:
        at = _y(y, value)
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    for value, text in x.ticks:
        at = _x(x, value)
        yield f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{floor}" y2="{floor + 4}"/>'
        anchor = "end" if at > right - 1 else "middle"
        yield f'<text x="{at:.1f}" y="{floor + 16}" text-anchor="{anchor}">{escape(text)}</text>'
    yield f'<text x="2" y="11">{escape(y.title)}</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{floor}" y2="{floor}"/>'
    yield f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.title)}</text>'


def _mark(x: Axis, at: float, word: str) -> str:
    where = _x(x, at)
    return (
        f'<line class="mark" x1="{where:.1f}" x2="{where:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text x="{where + 4:.1f}" y="{TOP + 9}">{escape(word)}</text>'
    )


def _path(x: Axis, y: Axis, line: Line) -> str:
    pieces = (" L".join(f"{_x(x, a):.1f} {_y(y, b):.1f}" for a, b in piece) for piece in line.pieces if piece)
    drawn = " ".join(f"M{piece}" + (" h0.1" if " L" not in piece else "") for piece in pieces)
    return f'<path class="line {escape(line.css)}" d="{drawn}"><title>{escape(line.name)}</title></path>'


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.part(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.part(value) * (HEIGHT - TOP - BOTTOM)
