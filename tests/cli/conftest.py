"""One embedded server for all tests of the commands; each has a directory and a namespace of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairqueue.embedded import start_sync
from tests.cli.command import Place

_names = itertools.count(1)


@pytest.fixture(scope="session")
def shared_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a directory whose server runs as long as the test process."""
    directory = tmp_path_factory.mktemp("server")
    server = start_sync(directory)
    yield f"embedded://{directory}"
    server.close()


@pytest.fixture
def place(tmp_path: Path, shared_url: str) -> Iterator[Place]:
    """Where commands run; what was started there ends with the test."""
    made = Place(tmp_path, shared_url, f"cli-{next(_names)}")
    yield made
    made.close()
