"""Taking a guard out: a mutation is an exact text of a script or a function, and what stands there without the guard.

The product knows nothing of this. Lua is changed as the loader reads it, a Python function gets the code of its
changed source; both are put back afterwards. A text that is not found exactly once is an error, so a mutation
cannot silently stop meaning what its name says.
"""

from __future__ import annotations
import __future__

import contextlib
import functools
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import FunctionType

from fairqueue._engine import script


class MutationError(Exception):
    """A mutation that does not apply, or makes code that does not run: it proves nothing."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One changed place.

    ``target`` is a script of the engine (``settle.lua``, ``includes/slots.lua``) or a function
    (``fairqueue.lease:Lease.extend``).
    """

    target: str
    find: str
    replacement: str

    @property
    def is_lua(self) -> bool:
        return self.target.endswith(".lua")

    def applied(self, text: str) -> str:
        """The text without the guard."""
        found = text.count(self.find)
        if found != 1:
            raise MutationError(
                f"{self.target}: expected this text once, found it {found} times: {self.find!r}"
            )
        return text.replace(self.find, self.replacement)


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is taken out, in words, and the places that change."""

    name: str
    edits: tuple[Edit, ...]

    def also(self, target: str, find: str, replacement: str) -> Mutation:
        """The same with one more changed place: some guards stand in two."""
        return replace(self, edits=(*self.edits, Edit(target, find, replacement)))

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """The code without the guard, for as long as the body runs."""
        with contextlib.ExitStack() as undo:
            undo.enter_context(_lua([edit for edit in self.edits if edit.is_lua]))
            for edit in self.edits:
                if not edit.is_lua:
                    undo.enter_context(_python(edit))
            yield


def without(name: str, target: str, find: str, replacement: str = "") -> Mutation:
    """A mutation with one changed place."""
    return Mutation(name, (Edit(target, find, replacement),))


def changed_scripts() -> list[script.Script]:
    """The scripts that differ from those of the package while a mutation is installed."""
    plain = _plain()
    return [one for name, one in script.load_all().items() if one.sha != plain[name].sha]


_read_file = functools.cache(script._read)  # one text a run, whoever edits a script meanwhile


@functools.cache
def _plain() -> dict[str, script.Script]:
    with _lua([]):
        return script.load_all()


@contextlib.contextmanager
def _lua(edits: list[Edit]) -> Iterator[None]:
    def read(path: str) -> str:
        text = _read_file(path)
        for edit in edits:
            if edit.target == path:
                text = edit.applied(text)
        return text

    for edit in edits:
        read(edit.target)  # a script nobody loads in the test must have the text all the same
    before, script._read = script._read, read
    script.load.cache_clear()
    try:
        yield
    finally:
        script._read = before
        script.load.cache_clear()


@contextlib.contextmanager
def _python(edit: Edit) -> Iterator[None]:
    function = _function(edit.target)
    original = function.__code__
    try:
        function.__code__ = _changed(function, edit).__code__
    except ValueError as error:  # it closes over other variables than before
        raise MutationError(f"{edit.target}: {error}") from error
    try:
        yield
    finally:
        function.__code__ = original


def _function(target: str) -> FunctionType:
    module, _, path = target.partition(":")
    found: object = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if not isinstance(found, FunctionType):
        raise MutationError(f"expected {target} to be a function, got {found!r}")
    return found


def _changed(function: FunctionType, edit: Edit) -> FunctionType:
    source = edit.applied(textwrap.dedent(inspect.getsource(function)))
    scope: dict[str, object] = {}
    flags = __future__.annotations.compiler_flag
    exec(compile(source, inspect.getfile(function), "exec", flags=flags), function.__globals__, scope)
    made = scope[function.__name__]
    if not isinstance(made, FunctionType):
        raise MutationError(f"expected {edit.target} to be a plain function, got {made!r}")
    return made
