"""The options of a queue, checked once and then frozen. Nothing here reads the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

from fairqueue.clock import SERVER_CLOCK, Clock
from fairqueue.errors import ConfigurationError
from fairqueue.limits import Limit, validated
from fairqueue.retry import RetryPolicy
from fairqueue.url import Url, parse_url
from fairqueue.validation import boolean, choice, duration_ms, expected, integer, namespace, number, shown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

__all__ = ["Codec", "Options", "Scheduler"]

Scheduler = Literal["fair", "drr", "fifo"]

SCHEDULERS: Final = ("fair", "drr", "fifo")
LOWEST_QUANTUM: Final = 0.001  # as the costs of messages
HIGHEST_QUANTUM: Final = 1000
SHORTEST_VISIBILITY_MS: Final = 100
LARGEST_PAYLOAD_BYTES: Final = 512 * 1024 * 1024  # what the server takes in one value


class Codec(Protocol):
    """How payloads become bytes and come back. What it raises on encoding refuses that one message."""

    def encode(self, obj: Any) -> bytes:
        """The payload as bytes."""
        ...

    def decode(self, data: bytes) -> Any:
        """The payload that ``encode`` made these bytes from; raises for bytes that are none of its own."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """Every option of a queue in its normal form; made by ``Options.make``.

    None for ``limits``, ``retry``, ``scheduler``, ``quantum`` and ``dead_letters``: what is stored under the name on the server,
    or else the default. None for ``codec``: JSON. None for ``url``: whoever connects decides.
    """

    url: Url | None
    name: str
    limits: tuple[Limit, ...] | None
    retry: RetryPolicy | None
    visibility_ms: int
    reclaim_ms: int
    reconcile_ms: int
    scheduler: Scheduler | None
    shards: int
    codec: Codec | None
    max_payload_bytes: int
    dead_letters: bool | None
    durability: str
    clock: Clock
    quantum: float | None

    @classmethod
    def make(
        cls,
        url: str | None = None,
        name: str = "default",
        *,
        limits: Iterable[Limit] | None = None,
        retry: RetryPolicy | None = None,
        visibility_timeout: timedelta | float = 30,
        reclaim_interval: timedelta | float = 5,
        reconcile_interval: timedelta | float = 60,
        scheduler: str | None = None,
        shards: int | None = None,
        codec: Codec | None = None,
        max_payload_bytes: int = 1_048_576,
        dead_letters: bool | None = None,
        durability: str = "server",
        clock: Clock | None = None,
        quantum: float | None = None,
    ) -> Options:
        """Check every option; the first wrong one raises ``ConfigurationError``.

        >>> Options.make(visibility_timeout=-3)
        Traceback (most recent call last):
        fairqueue.errors.ConfigurationError: expected visibility_timeout to be a positive duration of at least 0.1 s, got -3
        """
        return cls(
            url=None if url is None else parse_url(url),
            name=namespace("name", name),
            limits=None if limits is None else validated(limits),
            retry=_retry(retry),
            visibility_ms=duration_ms(
                "visibility_timeout", visibility_timeout, minimum_ms=SHORTEST_VISIBILITY_MS
            ),
            reclaim_ms=duration_ms("reclaim_interval", reclaim_interval),
            reconcile_ms=duration_ms("reconcile_interval", reconcile_interval),
            scheduler=_scheduler(scheduler),
            shards=_shards(shards),
            codec=_codec(codec),
            max_payload_bytes=integer("max_payload_bytes", max_payload_bytes, 1, LARGEST_PAYLOAD_BYTES),
            dead_letters=None if dead_letters is None else boolean("dead_letters", dead_letters),
            durability=_durability(durability),
            clock=_clock(clock),
            quantum=_quantum(quantum, scheduler),
        )


def _retry(value: object) -> RetryPolicy | None:
    if value is None or isinstance(value, RetryPolicy):
        return value
    raise expected("retry", "a RetryPolicy", value)


def _scheduler(value: object) -> Scheduler | None:
    return None if value is None else cast("Scheduler", choice("scheduler", value, SCHEDULERS))


def _quantum(value: object, scheduler: str | None) -> float | None:
    if value is not None and scheduler not in (None, "drr"):
        raise ConfigurationError(
            f"expected no quantum, which is of the scheduler 'drr' alone, got {shown(value)}"
        )
    return None if value is None else number("quantum", value, LOWEST_QUANTUM, HIGHEST_QUANTUM)


def _shards(value: object) -> int:
    if value is not None and integer("shards", value, 1) > 1:
        raise ConfigurationError(f"expected shards to be 1, got {value} (more shards need a later version)")
    return 1


def _durability(value: object) -> str:
    if value == "wait":
        raise ConfigurationError(
            "expected durability to be 'server', got 'wait' (replicas need a later version)"
        )
    return choice("durability", value, ("server",))


def _codec(value: Any) -> Codec | None:
    if value is None or _offers(value, "encode", "decode"):
        return cast("Codec | None", value)
    raise expected("codec", "an object with encode(obj) -> bytes and decode(bytes) -> obj", value)


def _offers(value: Any, *methods: str) -> bool:
    """A class in place of its instance has the methods too, and would fail only when the first message comes."""
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)


def _clock(value: Any) -> Clock:
    if value is None:
        return SERVER_CLOCK
    if _offers(value, "now_ms"):
        return cast("Clock", value)
    raise expected("clock", "an object with now_ms(), such as fairqueue.testing.ManualClock", value)
