"""Loads the Lua scripts: header contract, includes, named arguments, SHA.

A script file starts with a contract in comments::

    -- claim: takes up to n messages ...
    -- ARGV schema now:int consumer n:int
    -- ROWS mid token action
    -- FLAGS allow-oom

``ARGV`` (one line or several) names (and types) the fixed arguments: each becomes a Lua local. ``ROWS`` names the columns of a
repeated tail: ``ROWS_AT`` is the index of its first value and ``ROW`` the number of columns. ``KEYS[1]`` is
always the prefix of the namespace, from which the table ``k`` of all key names is built (see keys.py).
``-- @include name`` is replaced by ``includes/name.lua``, once a script. An include with a line ``-- SHARES a b`` keeps
its other locals to itself (``-- SHARES nothing``: all of them): a script may have no more than 200 of them at a time.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from .keys import lua_keys

_CONTRACT = re.compile(r"^-- (ARGV|ROWS|FLAGS)(?: (.*))?$", re.MULTILINE)
_INCLUDE = re.compile(r"^-- @include (\w+)$", re.MULTILINE)
_SHARES = re.compile(r"^-- SHARES (.*)$", re.MULTILINE)
_LOCAL = re.compile(r"^local (?:function (\w+)|([\w, ]+?)( = |$))", re.MULTILINE)
_TYPES = {"": "{}", "int": "tonumber({})", "float": "tonumber({})"}

Argument = str | bytes | int | float


class ScriptError(Exception):
    """A script file that breaks its contract: raised when the package is loaded, never at a call."""


@dataclass(frozen=True, slots=True)
class Script:
    """One assembled script: its text, SHA1 and the names of its arguments."""

    name: str
    source: str
    sha: str
    argv: tuple[str, ...]
    rows: tuple[str, ...]

    def args(self, *rows: tuple[Argument, ...], **named: Argument) -> list[Argument]:
        """The argument list in contract order; a missing or unknown name is an error here, not on the server."""
        if set(named) != set(self.argv):
            raise ScriptError(f"{self.name}: expected arguments {self.argv}, got {tuple(named)}")
        values: list[Argument] = [named[name] for name in self.argv]
        for row in rows:
            if len(row) != len(self.rows):
                raise ScriptError(f"{self.name}: expected rows of {self.rows}, got {len(row)} values")
            values.extend(row)
        return values


def _read(path: str) -> str:
    return resources.files(__package__).joinpath("scripts", path).read_text(encoding="utf-8")


def _contract(name: str, text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word, rest in _CONTRACT.findall(text):
        found.setdefault(word, []).extend((rest or "").split())
    if "ARGV" not in found:
        raise ScriptError(f"{name}: no '-- ARGV' line")
    return found


def _prologue(argv: list[str], rows: list[str], flags: list[str]) -> str:
    lines = [
        lua_keys(),
        f"local READ_ONLY = {'true' if any('no-writes' in flag for flag in flags) else 'false'}",
    ]
    for position, declared in enumerate(argv, start=1):
        name, _, kind = declared.partition(":")
        lines.append(f"local {name} = {_TYPES[kind].format(f'ARGV[{position}]')}")
    if rows:
        lines.append(f"local ROWS_AT, ROW = {len(argv) + 1}, {len(rows)}")
    return "\n".join(lines) + "\n"


def room_of_its_own(name: str, text: str) -> str:
    """An include's text as a block, line by line as it was; the lines that say what it shares declare that before it."""
    lines = _SHARES.findall(text)
    if not lines:
        return text
    shared = {word for line in lines for word in line.split() if word != "nothing"}
    missing = set(shared)

    def declared(match: re.Match[str]) -> str:
        function, values, assigned = match.groups()
        names = [function] if function else values.split(", ")
        public = [one for one in names if one in shared]
        missing.difference_update(public)
        if not public:
            return match.group(0)
        if len(public) < len(names):
            raise ScriptError(f"{name}: {match.group(0)!r} declares what is shared and what is not")
        return f"function {function}" if function else values + assigned if assigned else ""

    left = len(lines)

    def opened(match: re.Match[str]) -> str:
        nonlocal left
        left -= 1
        names = [word for word in match.group(1).split() if word != "nothing"]
        return (f"local {', '.join(names)}" if names else "") + (" do" if left == 0 else "")

    body = _LOCAL.sub(declared, text)
    if missing:
        raise ScriptError(f"{name}: shares {sorted(missing)}, which it does not declare")
    return _SHARES.sub(opened, body) + "end"


def _expand(text: str, seen: set[str]) -> str:
    def once(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return _expand(room_of_its_own(name, _read(f"includes/{name}.lua")), seen)

    return _INCLUDE.sub(once, text)


def assemble(name: str, text: str) -> Script:
    """Builds a script from the text of its file.

    Raises:
        ScriptError: the contract is missing or names a type that does not exist.
    """
    contract = _contract(name, text)
    argv, rows = contract["ARGV"], contract.get("ROWS", [])
    flags = contract.get("FLAGS", [])
    shebang = "#!lua" + (" flags=" + ",".join(flags) if flags else "") + "\n"
    source = shebang + _prologue(argv, rows, flags) + _expand(text, set())
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, source, sha, tuple(a.partition(":")[0] for a in argv), tuple(rows))


@cache
def load(name: str) -> Script:
    """The script called ``name``.

    Example:
        >>> load("claim").argv[0]
        'schema'
    """
    return assemble(name, _read(f"{name}.lua"))


def load_all() -> dict[str, Script]:
    """Every script of the package, by name."""
    folder = resources.files(__package__).joinpath("scripts")
    names = sorted(file.name[:-4] for file in folder.iterdir() if file.name.endswith(".lua"))
    return {name: load(name) for name in names}
