"""What a client says and knows of its namespace's settings. The server owns them; only functions stay with who has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairqueue.config import Options
from fairqueue.errors import SchemaMismatchError
from fairqueue.limits import Limit, from_settings, to_settings, with_functions
from fairqueue.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class Known:
    """The settings as the server last told them, and what follows from them: replaced as a whole, never in parts.

    Whoever takes several of them, with the revision, without a pause in between, has what belongs together.
    """

    stored: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    @property
    def revision(self) -> str:
        """Another one at each change. '0': stored by a version that does not count them, or damaged."""
        return self.stored.get("revision") or "0"


def known(options: Options, stored: Mapping[str, str]) -> Known:
    """What is stored, with the functions of those limits and of that retry policy that this client declared itself.

    Raises:
        ConfigurationError: it cannot be read.
    """
    limits = with_functions(from_settings(stored.get("limits") or "[]"), options.limits or ())
    text = stored.get("retry")
    retry = RetryPolicy.from_settings(text, options.retry) if text else options.retry or RetryPolicy()
    return Known(stored, limits, retry)


def declared(options: Options) -> tuple[dict[str, str], list[tuple[str, int | None]]]:
    """What a client with these options declares, and the defaults of its limits."""
    said: dict[str, str] = {}
    if options.scheduler is not None:
        said["scheduler"] = options.scheduler
    if options.dead_letters is not None:
        said["dead_letters"] = "1" if options.dead_letters else "0"
    if options.retry is not None:
        said["retry"] = options.retry.to_settings()
        said["max_attempts"] = str(options.retry.max_attempts)
        said["max_crashes"] = str(options.retry.max_crashes)
    if options.limits is not None:
        said["limits"] = to_settings(options.limits)
    return said, defaults(options.limits or ())


def defaults(limits: Sequence[Limit]) -> list[tuple[str, int | None]]:
    """The default of each limit by its name."""
    return [(limit.name, limit.default) for limit in limits]


def overruled(options: Options, stored: Mapping[str, str]) -> list[str]:
    """What this client declared and somebody else has replaced since."""
    return [name for name, value in declared(options)[0].items() if stored.get(name) != value]


def other_schema(said: str) -> SchemaMismatchError:
    """The error for a namespace that speaks another schema than ours; ``said`` names both."""
    return SchemaMismatchError(
        f"another version of fairqueue wrote this namespace ({said}): run the same version everywhere, "
        "upgrade clients one deploy after the server's data"
    )
