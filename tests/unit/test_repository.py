"""The repository itself: what it says, what it hides, and that its documents hold together."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fairqueue"
THIS = Path(__file__).resolve()

LONG_MODULE = 400
# path in src/fairqueue -> why it is one module all the same
LONG_MODULES: dict[str, str] = {}

BUILT = {".git", "build", "dist", "__pycache__", ".fairqueue", ".hypothesis"}
TEXT_SUFFIXES = {".cfg", ".css", ".html", ".in", ".ini", ".js", ".json", ".lua", ".md", ".py", ".sh", ".toml"}
TEXT_SUFFIXES |= {".txt", ".typed", ".yaml", ".yml", ""}

# A path that exists on one machine only. Written so that it does not match itself.
MACHINE_PATHS = re.compile(r"/(?:root|opt|mnt)/[\w.-]|/(?:home|Users)/\w+/|[A-Z]:\\Users")


def tracked_files() -> list[Path]:
    """What belongs to the repository: by git where there is one, else whatever was not built."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
        return [path for path in paths if path.is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and not _was_built(path)]


def _was_built(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return any(part in BUILT or part.startswith(".venv") or part.endswith("_cache") for part in parts)


def tracked_texts() -> list[Path]:
    return [path for path in tracked_files() if path.suffix in TEXT_SUFFIXES and path != THIS]


def markdown_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".md"]


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def hits(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    found = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if match := pattern.search(line):
                found.append(f"{name_of(path)}:{number}: {match.group(0)!r}")
    return found


def test_no_file_names_a_path_of_one_machine() -> None:
    assert hits(MACHINE_PATHS, tracked_texts()) == []


def levels_up(text: str) -> list[tuple[int, int]]:
    """Where a Python file climbs from ``__file__``, and by how many levels."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute | ast.Subscript) and "__file__" in ast.unparse(node):
            climbs = 0
            step: ast.AST = node
            while isinstance(step, ast.Attribute | ast.Subscript | ast.Call):
                if isinstance(step, ast.Subscript) and ast.unparse(step.value).endswith(".parents"):
                    climbs += int(ast.literal_eval(step.slice)) + 1
                climbs += isinstance(step, ast.Attribute) and step.attr == "parent"
                step = step.func if isinstance(step, ast.Call) else step.value
            found.append((node.lineno, climbs))
    return found


def test_levels_are_counted_however_they_are_written() -> None:
    for written in ("parents[2]", "parent.parent.parent", "resolve().parents[1].parent"):
        assert max(climbs for _, climbs in levels_up(f"x = Path(__file__).{written}")) == 3


def test_no_file_reaches_for_what_lies_beside_the_repository() -> None:
    """What is needed from outside is named by an environment variable, and nothing fails where it is not."""
    outside = []
    for path in [path for path in tracked_files() if path.suffix == ".py"]:
        levels = len(path.relative_to(ROOT).parts)
        found = levels_up(path.read_text(encoding="utf-8"))
        outside += [f"{name_of(path)}:{line}" for line, climbs in found if climbs > levels]
    assert outside == []


def test_every_text_ends_with_a_newline_and_has_no_tabs_or_trailing_blanks() -> None:
    untidy = []
    for path in tracked_texts():
        text = path.read_text(encoding="utf-8")
        tabs_allowed = path.name == "Makefile"
        if text and not text.endswith("\n"):
            untidy.append(f"{name_of(path)}: no newline at the end")
        for number, line in enumerate(text.splitlines(), start=1):
            if line != line.rstrip() or ("\t" in line and not tabs_allowed):
                untidy.append(f"{name_of(path)}:{number}: tab or trailing blank")
    assert untidy == []


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", markdown_files(), ids=name_of)
def test_python_in_documents_parses(path: Path) -> None:
    for block in python_blocks(path.read_text(encoding="utf-8")):
        compile(block, name_of(path), "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_readme_shows_python() -> None:
    assert len(python_blocks((ROOT / "README.md").read_text(encoding="utf-8"))) >= 2


@pytest.mark.parametrize("path", markdown_files(), ids=name_of)
def test_links_within_the_repository_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    local = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in local if not (path.parent / link).exists()] == []


def test_the_changelog_has_an_unreleased_section() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[?Unreleased\]?$", changelog, re.MULTILINE)


def test_there_are_modules_to_look_at() -> None:
    assert PACKAGE / "__init__.py" in modules()
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_says_what_it_is_and_keeps_the_size(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    relative = str(path.relative_to(PACKAGE))
    assert ast.get_docstring(ast.parse(text)), (
        f"{relative}: expected a docstring that says what the module is for"
    )
    assert "from __future__ import annotations" in text or _has_no_code(text), relative
    assert lines <= LONG_MODULE or LONG_MODULES.get(relative), (
        f"{relative}: {lines} lines and no reason given"
    )


def _has_no_code(text: str) -> bool:
    return len(ast.parse(text).body) <= 1


def test_reasons_for_long_modules_are_still_needed() -> None:
    short = [
        name
        for name in LONG_MODULES
        if (PACKAGE / name).read_text(encoding="utf-8").count("\n") <= LONG_MODULE
    ]
    assert short == []


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[<>=!\[; ]", wish)[0] for wish in wanted} - {"fairqueue"}
    reasons = (ROOT / "docs" / "adr" / "0001-dependencies.md").read_text(encoding="utf-8")
    assert sorted(name for name in names if f"**{name}**" not in reasons) == []


def test_importing_the_package_loads_no_client_and_no_terminal_library() -> None:
    code = "import sys, fairqueue; print([m for m in ('redis', 'click', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    decisions = [path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")]
    assert "0001-dependencies.md" in decisions
    assert [name for name in decisions if f"({name})" not in index] == []


def test_every_decision_has_the_headings_that_the_index_names() -> None:
    for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"):
        headings = re.findall(r"^## (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert {"Context", "Choice", "Consequences"} <= set(headings), path.name


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    explained = re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE)
    assert sorted(phony.group(1).split()) == sorted(explained)
