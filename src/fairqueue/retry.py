"""Retry policies: how many tries a message has, and how long it waits before the next one."""

from __future__ import annotations

import inspect
import json
import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from fairqueue.errors import ConfigurationError
from fairqueue.validation import (
    ENDINGS,
    LARGEST_INTEGER,
    LONGEST_MS,
    boolean,
    callable_,
    choice,
    duration_ms,
    expected,
    integer,
    number,
)

__all__ = ["DelayFunction", "RetryPolicy"]

_log = logging.getLogger("fairqueue")

DelayFunction = Callable[[int, BaseException | None], timedelta | float]
"""Takes the attempt that failed (1 is the first) and its error; returns a ``timedelta`` or seconds."""

_KINDS: Final = ("exponential", "linear", "custom")
_LONGEST: Final = timedelta(milliseconds=LONGEST_MS)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Waits ``initial``, then ``factor`` times as long after every further failure, up to ``maximum``.

    Args:
        max_attempts: a message is dead when so many deliveries have failed; releases do not count.
        max_crashes: a message is dead when so many deliveries ended because the lease expired: its worker died.
        initial: the wait after the first failure; a ``timedelta`` or seconds.
        factor: 1 to 1,000.
        maximum: no wait is longer; a ``timedelta`` or seconds, not less than ``initial``.
        jitter: wait between half and the whole of that, at random, so that what failed together is not tried
            again together.

    A message's own ``max_attempts`` goes before the policy's. Wrong values raise ``ConfigurationError``.
    ``initial`` and ``maximum`` read back as ``timedelta``.

    >>> RetryPolicy(max_attempts=5, initial=2, jitter=False).delay_ms(3)
    8000
    """

    max_attempts: int = 12
    max_crashes: int = 5
    initial: timedelta | float = 1
    factor: float = 2
    maximum: timedelta | float = 3600
    jitter: bool = True
    kind: str = field(default="exponential", kw_only=True)
    function: DelayFunction | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        integer("max_attempts", self.max_attempts, 1, LARGEST_INTEGER)
        integer("max_crashes", self.max_crashes, 1, LARGEST_INTEGER)
        number("factor", self.factor, 1, 1000)
        boolean("jitter", self.jitter)
        choice("kind", self.kind, _KINDS)
        if (self.kind == "custom") != (self.function is not None):
            raise expected("function", "given for a custom policy and for no other", self.function)
        initial, maximum = duration_ms("initial", self.initial), duration_ms("maximum", self.maximum)
        if maximum < initial:
            raise expected("maximum", f"at least the first wait of {initial / 1000:g} s", self.maximum)
        object.__setattr__(self, "initial", timedelta(milliseconds=initial))
        object.__setattr__(self, "maximum", timedelta(milliseconds=maximum))

    @classmethod
    def fixed(
        cls,
        delay: timedelta | float,
        *,
        max_attempts: int = 12,
        max_crashes: int = 5,
        jitter: bool = False,
    ) -> RetryPolicy:
        """Always the same wait; exactly that, unless ``jitter`` is set.

        >>> RetryPolicy.fixed(30).delay_ms(7)
        30000
        """
        duration_ms("delay", delay)
        return cls(max_attempts, max_crashes, delay, 1, delay, jitter)

    @classmethod
    def linear(
        cls,
        step: timedelta | float,
        *,
        maximum: timedelta | float = 3600,
        max_attempts: int = 12,
        max_crashes: int = 5,
        jitter: bool = True,
    ) -> RetryPolicy:
        """Waits ``step`` after the first failure, twice that after the second, and so on up to ``maximum``.

        >>> RetryPolicy.linear(10, jitter=False).delay_ms(3)
        30000
        """
        duration_ms("step", step)
        return cls(max_attempts, max_crashes, step, 1, maximum, jitter, kind="linear")

    @classmethod
    def custom(
        cls,
        fn: DelayFunction,
        *,
        max_attempts: int = 12,
        max_crashes: int = 5,
        maximum: timedelta | float = _LONGEST,
    ) -> RetryPolicy:
        """Waits as long as ``fn(attempt, error)`` says, in seconds or as a ``timedelta``, up to ``maximum``.

        Where ``fn`` raises, or returns anything else than a duration, that is logged and the wait is that of the
        default policy: a mistake in ``fn`` loses no message. Other programs know of this policy only its numbers
        of tries; they wait as the default policy does.

        >>> RetryPolicy.custom(lambda attempt, error: 1 if isinstance(error, TimeoutError) else 60 * attempt)
        """
        callable_("fn", fn)
        if inspect.iscoroutinefunction(fn):
            raise expected("fn", "a plain function, not a coroutine function", fn)
        return cls(max_attempts, max_crashes, 0, 1, maximum, jitter=False, kind="custom", function=fn)

    @classmethod
    def none(cls, *, max_crashes: int = 5) -> RetryPolicy:
        """No second try: a message that fails once is dead. One whose worker died is still delivered again."""
        return cls(max_attempts=1, max_crashes=max_crashes)

    def delay_ms(
        self, attempt: int, error: BaseException | None = None, rng: random.Random | None = None
    ) -> int:
        """Milliseconds to wait after ``attempt`` (1 is the first) failed; from 0 to ``maximum``, always.

        ``rng`` draws the jitter; None: the module's.
        """
        if self.kind == "custom":
            return min(self._custom_ms(attempt, error, rng), self._maximum_ms)
        whole = self._linear_ms(attempt) if self.kind == "linear" else self._exponential_ms(attempt)
        if not self.jitter:
            return whole
        return round((rng or random).uniform(whole / 2, whole))

    @property
    def _initial_ms(self) -> int:
        return duration_ms("initial", self.initial)

    @property
    def _maximum_ms(self) -> int:
        return duration_ms("maximum", self.maximum)

    def _linear_ms(self, attempt: int) -> int:
        return min(self._initial_ms * max(attempt, 1), self._maximum_ms)

    def _exponential_ms(self, attempt: int) -> int:
        initial, maximum, steps = self._initial_ms, self._maximum_ms, max(attempt - 1, 0)
        if initial == 0 or steps == 0 or self.factor == 1:
            return initial
        # Compared as logarithms: 2.0 ** 1024 is an OverflowError, raised where a failed message is to be kept.
        if steps * math.log(self.factor) >= math.log(maximum / initial):
            return maximum
        return min(round(initial * self.factor**steps), maximum)

    def _custom_ms(self, attempt: int, error: BaseException | None, rng: random.Random | None) -> int:
        try:
            return duration_ms("the delay a custom retry policy returns", self._call(attempt, error))
        except ENDINGS:
            raise
        except BaseException:  # noqa: BLE001 - a mistake in user code must not lose the message
            _log.exception(
                "custom retry policy failed at attempt %d; the default policy's delay is used", attempt
            )
            return RetryPolicy().delay_ms(attempt, error, rng)

    def _call(self, attempt: int, error: BaseException | None) -> object:
        return self.function(attempt, error) if self.function else None

    def with_tries(self, max_attempts: int, max_crashes: int) -> RetryPolicy:
        """The same waits with other numbers of tries."""
        return replace(self, max_attempts=max_attempts, max_crashes=max_crashes)

    def to_settings(self) -> str:
        """The policy as canonical JSON, for the server to keep; of a custom one the numbers of tries alone."""
        stored: dict[str, Any] = {
            "kind": self.kind,
            "max_attempts": self.max_attempts,
            "max_crashes": self.max_crashes,
        }
        if self.kind != "custom":
            stored |= {
                "initial_ms": self._initial_ms,
                "factor": float(self.factor),
                "maximum_ms": self._maximum_ms,
                "jitter": self.jitter,
            }
        return json.dumps(stored, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_settings(cls, text: str, own: RetryPolicy | None = None) -> RetryPolicy:
        """The policy that ``to_settings`` wrote, a custom one as the default with its numbers of tries.

        If ``own`` is custom too, then with its function: a function is not stored, so another one has not replaced it.

        Raises ``ConfigurationError`` for any other text.
        """
        try:
            stored = json.loads(text)
            if stored["kind"] == "custom":
                tries = (stored["max_attempts"], stored["max_crashes"])
                return own.with_tries(*tries) if own and own.function else cls(*tries)
            return cls(
                stored["max_attempts"],
                stored["max_crashes"],
                timedelta(milliseconds=stored["initial_ms"]),
                stored["factor"],
                timedelta(milliseconds=stored["maximum_ms"]),
                stored["jitter"],
                kind=stored["kind"],
            )
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(
                f"the retry policy stored under this name cannot be read: {error!r}"
            ) from error
