"""What a benchmark measures, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from fairqueue.validation import integer, namespace

PRIVATE_SERVER = "embedded://"
DEFAULT_NAME = "bench"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure, and where.

    Args:
        tenants: the messages belong to that many tenants, in turn.
        messages: the backlog that is enqueued and drained; at least 10.
        limit: the most messages of one tenant that run at once.
        concurrency: handlers that the one worker runs at once.
        url: the server; the private, temporary one by default, so that no server in use is loaded by accident.
        name: the namespace. The limits stored under it are replaced.

    Raises:
        ConfigurationError: an option is wrong; the text names it, the value and what was expected.
    """

    tenants: int = 100
    messages: int = 20_000
    limit: int = 10
    concurrency: int = 100
    url: str = PRIVATE_SERVER
    name: str = DEFAULT_NAME

    def __post_init__(self) -> None:
        integer("tenants", self.tenants, 1, 1_000_000)
        integer("messages", self.messages, 10, 10_000_000)
        integer("limit", self.limit, 1)
        integer("concurrency", self.concurrency, 1, 100_000)
        namespace("name", self.name)
