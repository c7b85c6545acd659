"""The pages, pasted block by block into ``python -m asyncio`` as they tell readers to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guide.pages import DOCS, Page, pages

PROMPTS = re.compile(r"^(?:(?:>>>|\.\.\.) )*")
# What the interpreter says when it does not understand a line, or the line fails.
TROUBLE = re.compile(r"^(?:SyntaxError|IndentationError|NameError|Traceback)", re.MULTILINE)


def pasted(page: Page, folder: Path) -> subprocess.CompletedProcess[str]:
    """Each block, and an empty line after it."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$", page.path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input="\n".join(blocks) + "\n",
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "FAIRQUEUE_URL"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.path.name)
def test_a_page_may_be_pasted_block_by_block(page: Page, tmp_path: Path) -> None:
    done = pasted(page, tmp_path)
    shown = [PROMPTS.sub("", line) for line in done.stdout.splitlines()]
    assert [line for line in shown if line in page.promised] == page.promised, done.stderr
    handled = re.sub(
        r"^handler failed for.*?(?=^\S*(?:Error|Exception)\b)",
        "",
        done.stderr,
        flags=re.MULTILINE | re.DOTALL,
    )
    assert TROUBLE.search(handled) is None, handled


def test_the_fixture_of_the_testing_guide_works_as_it_stands(tmp_path: Path) -> None:
    text = (DOCS / "guides" / "testing.md").read_text(encoding="utf-8")
    conftest, test = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (settings,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for name, content in (("conftest.py", conftest), ("test_it.py", test), ("pyproject.toml", settings)):
        (tmp_path / name).write_text(content, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
