"""Every example in a docstring runs, and prints what it says it prints.

Examples use what stands before them in every program: the public names, the names of their module, and a queue on a real
server with a few messages, leases and a dead letter in it. ``await`` stands outside functions, as in ``python -m asyncio``.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import pkgutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import fairqueue
from fairqueue import FairQueue, Limit, Message, NewMessage, RetryPolicy, Worker, testing
from fairqueue.dead_letters import DeadLetters
from fairqueue.limits_control import LimitsControl
from fairqueue.queue_controls import QueueControls
from fairqueue.queue_views import QueueViews
from fairqueue.running import _current
from fairqueue.tenants import Tenants

CHECKER = doctest.OutputChecker()
# Their examples show a path of some machine.
ELSEWHERE = {"fairqueue.embedded.server.start_sync"}


def documented() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder()
    for module in pkgutil.walk_packages(fairqueue.__path__, "fairqueue."):
        if not module.name.endswith("__main__"):
            yield from finder.find(importlib.import_module(module.name), module.name)


EXAMPLES = [
    found
    for found in documented()
    if any(not example.options.get(doctest.SKIP) for example in found.examples)
]


@pytest.fixture
async def names(
    server: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, Any]]:
    """Two messages of acme are ready, two of umbrella are leased, one of acme is a dead letter."""
    monkeypatch.setenv("FAIRQUEUE_URL", server)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    queue: FairQueue[Any] = FairQueue(server, namespace, [Limit("tenant", default=10)], RetryPolicy.fixed(60))
    found: dict[str, Any] = {name: getattr(fairqueue, name) for name in fairqueue.__all__}
    found |= {name: getattr(testing, name) for name in testing.__all__}
    handled: list[str] = []

    async def handle(message: Message[Any]) -> None:
        handled.append(message.id)
        if len(handled) == 2:  # an example whose worker runs until it is stopped
            found["worker"].stop()

    async def send(payload: Any) -> None:
        handled.append(payload)

    async with queue:
        await queue.enqueue_many([NewMessage(1, tenant="umbrella", id=f"l{n}") for n in (1, 2)])
        leases = await queue.claim(2)
        await queue.enqueue(1, tenant="acme", id="d1")
        (dead,) = await queue.claim()
        await dead.dead_letter("the account was deleted")
        await queue.enqueue_many([NewMessage(1, tenant="acme", id=f"m{n}") for n in (1, 2)])
        found |= {"queue": queue, "leases": leases, "lease": leases[0], "handle": handle, "send": send}
        found |= {
            "asyncio": asyncio,
            "Path": Path,
            "worker": Worker(queue, handle),
            "stopping": asyncio.Event(),
        }
        found["stopping"].set()
        token = _current.set(leases[0])  # as if a handler ran
        yield found
        _current.reset(token)


async def run(source: str, names: dict[str, Any]) -> str:
    """What the interpreter would show: the expression's value, unless it is None."""
    try:
        code = compile(source, "<example>", "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        code = compile(source, "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, names)
    if code.co_flags & inspect.CO_COROUTINE:
        value = await value
    return "" if value is None else f"{value!r}\n"


async def outcome(example: doctest.Example, names: dict[str, Any]) -> str:
    try:
        return await run(example.source, names)
    except Exception as error:
        if example.exc_msg is None:
            raise
        return f"{type(error).__module__}.{type(error).__qualname__}: {error}\n"


def test_there_are_examples_of_all_that_moves_messages() -> None:
    found = {example.name for example in EXAMPLES}
    for of in (
        FairQueue,
        QueueViews,
        QueueControls,
        fairqueue.Lease,
        Worker,
        LimitsControl,
        Tenants,
        DeadLetters,
    ):
        names = [name for name in vars(of) if not name.startswith("_") and inspect.isfunction(vars(of)[name])]
        missing = {f"{of.__module__}.{of.__qualname__}.{name}" for name in names} - found
        assert missing - {"fairqueue.worker.Worker.run_sync"} == set()  # it owns the event loop


def marked(found: doctest.DocTest) -> Any:
    harm = found.name.startswith("fairqueue.testing.faults.")
    return pytest.param(found, id=found.name, marks=[pytest.mark.leaves_findings] if harm else [])


@pytest.mark.parametrize("found", [marked(found) for found in EXAMPLES])
async def test_the_example_does_what_it_says(found: doctest.DocTest, names: dict[str, Any]) -> None:
    if found.name in ELSEWHERE:
        pytest.skip("its output is of another machine")
    for name, value in vars(importlib.import_module(found.globs["__name__"])).items():
        names.setdefault(name, value)
    for example in found.examples:
        if example.options.get(doctest.SKIP):
            continue
        got = await asyncio.wait_for(outcome(example, names), 60)
        wanted = example.want if example.exc_msg is None else example.exc_msg
        flags = doctest.ELLIPSIS if example.options.get(doctest.ELLIPSIS) else 0
        assert not wanted or CHECKER.check_output(wanted, got, flags), f"{example.source}{wanted=} {got=}"
