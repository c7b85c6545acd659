"""The page about the data model says what the code does."""

from __future__ import annotations

from tools.data_model import PAGE, page


def test_the_page_is_what_the_table_of_keys_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tools/data_model.py"
