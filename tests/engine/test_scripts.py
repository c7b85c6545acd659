"""Scripts as the server sees them: it takes each, and says what is wrong with one that it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairqueue import FairQueueError
from fairqueue._engine import connection
from fairqueue._engine.script import load_all
from tests.conftest import MakeQueue
from tests.engine.tools import put


@pytest.mark.parametrize("name", sorted(load_all()))
async def test_the_server_takes_each_script(make_queue: MakeQueue, name: str) -> None:
    """A limit of the language (200 local names in a script) shows here, by the script's name."""
    queue = await make_queue()
    script = load_all()[name]
    sha = await queue._engine.command("SCRIPT LOAD", script.source)
    assert sha == script.sha


async def test_a_script_that_cannot_be_compiled_is_told_as_that(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue()
    broken = {name: replace(script, source=script.source + "\nend") for name, script in load_all().items()}
    await queue._engine.command("SCRIPT FLUSH")
    with monkeypatch.context() as patch:
        patch.setattr(connection, "load_all", lambda: broken)
        with pytest.raises(FairQueueError, match=r"(?i)compil"):
            await queue.enqueue(1, tenant="a")
    await put(queue, "a", "m")
