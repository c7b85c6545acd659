"""The way into a queue for the worker and the tools of this package. Nothing here is promised to users."""

from __future__ import annotations

from typing import Any

from fairqueue._engine.engine import Engine
from fairqueue.consuming import Consumer
from fairqueue.generics import P
from fairqueue.queue import FairQueue

__all__ = ["consumer_of", "engine_of"]


def engine_of(queue: FairQueue[Any]) -> Engine:
    """What queue, leases, maintenance and reads share."""
    return queue._engine  # noqa: SLF001 - the only way in


def consumer_of(queue: FairQueue[P]) -> Consumer[P]:
    """Claims and settles in one round trip."""
    return queue._consumer  # noqa: SLF001 - the only way in
