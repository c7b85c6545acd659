from __future__ import annotations

import io

from rich.console import Console

from fairqueue.demo.progress import LiveScreen, PlainScreen, Snapshot, screen_for
from tests.demo.made import console

LOOK = Snapshot(
    "fifo", elapsed_s=3.21, total=6000, submitted=3000, done=1234, waiting=56, running=70, workers=3
)


def talking(*, terminal: bool, term: str = "xterm") -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return console(out, terminal=terminal, term=term, width=120), out


def test_a_terminal_that_cannot_move_bars_gets_plain_lines() -> None:
    talk, _ = talking(terminal=True, term="dumb")
    with screen_for(talk) as screen:
        assert isinstance(screen, PlainScreen)


def test_off_a_terminal_a_plain_line_comes_at_once_and_the_next_one_later() -> None:
    talk, out = talking(terminal=False)
    with screen_for(talk) as screen:
        assert isinstance(screen, PlainScreen)
        screen.show(LOOK)
        screen.show(LOOK)
    assert out.getvalue() == "fifo   3.2 s  1,234 of 6,000 done, 56 waiting, 70 in flight, 3 workers\n"


def test_notes_are_printed_as_they_are() -> None:
    for terminal in (True, False):
        talk, out = talking(terminal=terminal)
        with screen_for(talk) as screen:
            screen.note("kill -9 4711 ([red]worker-1[/])")
        assert "kill -9 4711 ([red]worker-1[/])" in out.getvalue()


def test_on_a_terminal_each_scheduler_has_a_bar_that_moves() -> None:
    talk, out = talking(terminal=True)
    with screen_for(talk) as screen:
        assert isinstance(screen, LiveScreen)
        screen.show(LOOK)
        screen.show(LOOK)
    assert "1,234 of 6,000 done" in out.getvalue()
    assert "fifo" in out.getvalue()
