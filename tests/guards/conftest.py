"""Every test here runs on the code as it is, or, when a counter-proof asks for it, without one guard."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import redis

from fairqueue._engine.script import Script
from tests.guards.mutate import Mutation, MutationError, changed_scripts
from tests.support.proxy import Proxy


@pytest.fixture(autouse=True)
def variant(request: pytest.FixtureRequest) -> Iterator[None]:
    """Installs the mutation the test is run with, if any, before anything else of the test exists."""
    mutation: Mutation | None = getattr(request, "param", None)
    if mutation is None:
        yield
        return
    with mutation.installed():
        if changed := changed_scripts():
            _give_to_server(request.getfixturevalue("server"), changed)
        yield
    # What this run leaves behind complains now (an open connection, say): later it would be the next test's failure.
    gc.collect()


def _give_to_server(url: str, changed: list[Script]) -> None:
    """A script that does not compile would fail every test, and prove nothing."""
    with redis.Redis.from_url(url) as server:
        for script in changed:
            try:
                server.script_load(script.source)
            except redis.ResponseError as error:
                raise MutationError(f"{script.name} does not compile: {error}") from error


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    """Stands before the server. A test names it before ``make_queue``, whose last checks still go through it."""
    with Proxy(server) as proxy:
        yield proxy
