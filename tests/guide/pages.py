"""A page of the documentation as a program: its Python blocks, one after another, and what they say they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.watch import WATCH

DOCS = Path(__file__).resolve().parents[2] / "docs"

# Blocks use `await` outside a function, as in `python -m asyncio`.
RUNNER = """\
import ast, asyncio, pathlib, sys, types
source = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
code = compile(source, sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
page = types.ModuleType("page")
sys.modules["page"] = page
started = types.FunctionType(code, page.__dict__)()
if started is not None:
    asyncio.run(started)
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page's program, and the lines that it says come out."""

    path: Path

    @property
    def program(self) -> str:
        text = self.path.read_text(encoding="utf-8")
        return "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))

    @property
    def promised(self) -> list[str]:
        return re.findall(r"# -> (.*)$", self.program, re.MULTILINE)

    def run(self, folder: Path) -> subprocess.CompletedProcess[str]:
        """In a directory of its own, without a server named: as a reader would."""
        WATCH.use_directory(folder / ".fairqueue")
        program = folder / "page.py"
        program.write_text(self.program, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-W", "default", "-c", RUNNER, str(program)],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "FAIRQUEUE_URL"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def pages() -> list[Page]:
    """The reference and the guides."""
    return [Page(path) for path in (DOCS / "reference" / "api.md", *sorted((DOCS / "guides").glob("*.md")))]
