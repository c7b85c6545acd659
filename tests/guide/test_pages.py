"""The examples of the reference and the guides, run, and what the pages say they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guide.pages import DOCS, Page, pages

# These let handlers fail, to show what becomes of it; the log says so.
FAILURES = {"dead-letters.md", "workers.md"}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.path.name)
def test_a_page_does_what_it_says(page: Page, tmp_path: Path) -> None:
    done = page.run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == page.promised
    assert page.promised
    if page.path.name in FAILURES:
        assert "handler failed for message" in done.stderr
    else:
        assert done.stderr == ""


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    names = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.name != "README.md"]
    of_folders = [name for name in names if not name.startswith("adr/")]
    assert [name for name in of_folders if f"({name})" not in index] == []
