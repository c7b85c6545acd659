"""The figures of a benchmark."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from fairqueue.bench.options import BenchOptions


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What was measured; times in the unit that the name says, rates in messages a second.

    ``server_us_per_message`` is the time that the server spent in scripts while the backlog was drained, claims and
    settles that is, and ``server_limit_per_s`` what it could drain if it did nothing else and no client were slow.
    ``client_us_per_message`` is the worker process's processor time.
    """

    options: BenchOptions
    server: str
    payload_bytes: int
    enqueue_per_s: float
    enqueue_many_per_s: float
    drain_seconds: float
    drain_per_s: float
    client_us_per_message: float
    server_us_per_message: float
    script_calls_per_message: float
    round_trips_per_message: float
    latency_p50_ms: float
    latency_p99_ms: float

    @property
    def server_limit_per_s(self) -> float:
        """Messages that the server's scripts could drain a second."""
        return 1e6 / self.server_us_per_message if self.server_us_per_message else 0.0

    def as_json(self) -> dict[str, Any]:
        """One flat object, but for ``latency_ms``."""
        options = self.options
        return {
            "tenants": options.tenants,
            "messages": options.messages,
            "limit": options.limit,
            "concurrency": options.concurrency,
            "payload_bytes": self.payload_bytes,
            "server": self.server,
            "python": platform.python_version(),
            "enqueue_per_s": round(self.enqueue_per_s, 1),
            "enqueue_many_per_s": round(self.enqueue_many_per_s, 1),
            "drain_per_s": round(self.drain_per_s, 1),
            "drain_seconds": round(self.drain_seconds, 3),
            "client_us_per_message": round(self.client_us_per_message, 2),
            "server_us_per_message": round(self.server_us_per_message, 2),
            "server_limit_per_s": round(self.server_limit_per_s, 1),
            "script_calls_per_message": round(self.script_calls_per_message, 4),
            "round_trips_per_message": round(self.round_trips_per_message, 4),
            "latency_ms": {"p50": round(self.latency_p50_ms, 3), "p99": round(self.latency_p99_ms, 3)},
        }

    def rows(self) -> list[tuple[str, str]]:
        """Name and figure with its unit, for a table."""
        return [
            ("enqueue, one by one", f"{self.enqueue_per_s:,.0f} /s"),
            ("enqueue_many", f"{self.enqueue_many_per_s:,.0f} /s"),
            ("drain, one worker process", f"{self.drain_per_s:,.0f} /s"),
            ("what the server could drain", f"{self.server_limit_per_s:,.0f} /s"),
            ("server, a message", f"{self.server_us_per_message:,.1f} us"),
            ("client, a message", f"{self.client_us_per_message:,.1f} us of processor time"),
            ("round trips, a message", f"{self.round_trips_per_message:.4f}"),
            ("enqueue to start, median", f"{self.latency_p50_ms:.2f} ms"),
            ("enqueue to start, 99 %", f"{self.latency_p99_ms:.2f} ms"),
        ]
