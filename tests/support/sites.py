"""The places in the scripts that send a command to the server, and which of them a run came by.

A place is a line of a script, or of a file it includes, that says ``call(``, ``try(``, ``many(``, ``get_many(``,
``redis.call(`` or ``redis.pcall(``. The test build of a script notes each it comes by, so a list can be made of those that
no scenario reaches::

    trace = Trace("settle")
    with cut(queue, trace):
        ...
    reached = await trace.sites(queue)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import fairqueue._engine as engine
from fairqueue import FairQueue
from fairqueue._engine.script import room_of_its_own

SCRIPTS = Path(str(engine.__file__)).parent / "scripts"
_INCLUDE = re.compile(r"^-- @include (\w+)$")
_SENDS = re.compile(r"(?<!function )(?<![\w.:])(call|try|many|get_many|redis\.p?call)\(")
_FUNCTION = re.compile(r"^(\s*)(?:local )?function ([\w.]+)\(")
_SHARED = re.compile(r"^local [\w, ]+( do)?$")  # what an include shares is declared, not called
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an assembled script: the file it stands in, its number there, its text, and the function it is part of."""

    file: str
    number: int
    text: str
    within: str = ""

    @property
    def code(self) -> str:
        return self.text.partition("--")[0]

    @property
    def sends(self) -> bool:
        return _SENDS.search(self.code) is not None

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.text.strip()}"


def _lines(file: str, seen: set[str]) -> Iterator[Line]:
    written = (SCRIPTS / file).read_text(encoding="utf-8")
    whole = room_of_its_own(file, written) if file.startswith("includes/") else written
    for number, text in enumerate(whole.split("\n"), start=1):
        include = _INCLUDE.match(text)
        if include and include[1] not in seen:
            seen.add(include[1])
            yield from _lines(f"includes/{include[1]}.lua", seen)
        else:
            yield Line(file, number, "" if include else text)


@cache
def lines_of(script: str) -> tuple[Line, ...]:
    """The script as the server gets it, after what the loader puts before it."""
    return tuple(_with_functions(_lines(f"{script}.lua", set())))


@cache
def sites_of(script: str) -> frozenset[Line]:
    """The places of a script that some run of it could come by: those in functions that nothing in it calls are not."""
    called = _called(script) | {""}
    return frozenset(line for line in lines_of(script) if line.sends and line.within in called)


def _with_functions(lines: Iterator[Line]) -> Iterator[Line]:
    """Each line with the innermost function that it stands in, '' outside of all. A function ends where it is indented to."""
    open_: list[tuple[str, str]] = []
    for line in lines:
        begins = _FUNCTION.match(line.code)
        if begins and not re.search(r"\bend$", line.code.strip()):
            open_.append((begins[2], begins[1] + "end"))
        yield replace(line, within=begins[2] if begins else open_[-1][0] if open_ else "")
        if open_ and re.match(open_[-1][1] + r"\b", line.code):
            open_.pop()


@cache
def _called(script: str) -> frozenset[str]:
    """The functions that are named, directly or through others, by what the script does. One that is a table's is taken to be."""
    names: dict[str, set[str]] = {}
    for line in lines_of(script):
        code = "" if _SHARED.match(line.code) else _FUNCTION.sub("", line.code)
        names.setdefault(line.within, set()).update(_NAME.findall(code))
    called, new = set[str](), {""} | {name for name in names if "." in name}
    while new:
        called |= new
        new = {name for one in new for name in names[one] if name in names} - called
    return frozenset(called)


_NOTES = """
local function came_by(site, send) redis.call('SADD', KEYS[1] .. 'call:sites', site) return send end
"""


@dataclass
class Trace:
    """The next call of ``script`` notes the places it comes by; for ``cut``."""

    script: str
    called: bool = False

    def build(self, source: str) -> str:
        shebang, _, body = source.partition("\n")
        shebang = re.sub(r"no-writes,?", "", shebang)  # it writes down where it came by
        lines, own = body.split("\n"), lines_of(self.script)
        before = len(lines) - len(own)
        assert [line.text for line in own] == lines[before:], "the loader assembles scripts in another way"
        for at, line in enumerate(own):
            marked = _SENDS.sub(rf"came_by({at}, \1)(", line.code)
            lines[before + at] = marked + line.text[len(line.code) :]
        return f"{shebang}\n{_NOTES.replace(chr(10), ' ')} return (function() {chr(10).join(lines)}\nend)()"

    async def sites(self, queue: FairQueue[Any]) -> set[Line]:
        """The places the script came by; asked once."""
        name = queue._engine.calls.root + "call:sites"
        numbers = await queue._engine.command("SMEMBERS", name)
        await queue._engine.command("DEL", name)
        return {lines_of(self.script)[int(number)] for number in numbers}
