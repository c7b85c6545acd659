"""``Explanation``: why a message is not running, as values and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairqueue.message import LeaseInfo, MessageState
from fairqueue.states import Pause, RateState
from fairqueue.validation import counted

__all__ = ["Explanation", "Holder", "Stop"]

_SHOWN_HOLDERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A message that holds a slot, and whose worker has it since when (None: it has no lease, and the slot will be freed)."""

    tenant: str
    id: str
    consumer: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One thing that keeps a message from being claimed. Where there are several, all of them have to go.

    ``kind`` says which fields are there:

    - ``"limit"``: the group ``limit`` and ``group_id`` has no slot for it: ``held`` of ``slots``, by ``holders`` (at most
      100 are named). Where fewer are held than there are, the others are ``promised`` to those who were served less.
    - ``"rate"``: the group has no token of its ``rate`` for it before ``until`` (None: the rate cannot be read, and has to be
      set again). Where there are tokens, they are ``promised`` to those who were served less.
    - ``"paused"``: by ``pause``, which says what it selects, by whom, why and since when.
    - ``"delayed"``: not before ``until``.
    - ``"expired"``: it was not started by ``until``, and never will be; the next claim or pass of maintenance ends it.
    - ``"repair"``: something on the server is damaged; ``what`` says what, and what mends it.
    """

    kind: str
    limit: str | None = None
    group_id: str | None = None
    slots: int | None = None
    held: int | None = None
    promised: int = 0
    holders: tuple[Holder, ...] = ()
    rate: RateState | None = None
    pause: Pause | None = None
    until: datetime | None = None
    what: str | None = None

    def __str__(self) -> str:
        if self.pause:
            return _paused(self.pause)
        if self.rate:
            return f"{self._group()} has {self._tokens(self.rate)}"
        if self.kind == "limit":
            return self._slots()
        words = {
            "delayed": f"it is delayed until {_at(self.until)}",
            "expired": f"it was not started by {_at(self.until)}, when it expired: it never will be",
            "repair": f"{self._group() + ' ' if self.limit else ''}{self.what}",
        }
        return words[self.kind]

    def _slots(self) -> str:
        if self.held is not None and self.slots is not None and self.held < self.slots:
            return (
                f"{self._group()} has {self.held} of {self.slots} slots taken, and the others are promised to "
                f"{counted(self.promised, 'lane')} that waited longer or were served less"
            )
        return f"{self._group()} is full, {self.held} of {self.slots}{self._held_by()}"

    def _tokens(self, rate: RateState) -> str:
        if not rate.n:
            return "a rate that cannot be read: set it again"
        named = f"its rate, {rate.n} each {rate.per.total_seconds():g} s"
        if self.promised:
            until = f"one more comes at {_at(self.until)} at the earliest"
            return f"promised the tokens of {named}, to others that were served less: {until}"
        return f"no token left of {named}: the next comes at {_at(self.until)}"

    def _group(self) -> str:
        return f"limit {self.limit}:{self.group_id}"

    def _held_by(self) -> str:
        if not self.holders:
            return ""
        shown = [
            f"{one.tenant}/{one.id}"
            + (f" ({one.consumer} since {_at(one.since)})" if one.since else " (no lease: it will be freed)")
            for one in self.holders[:_SHOWN_HOLDERS]
        ]
        more = (self.held or 0) - len(shown)
        return ": held by " + ", ".join(shown) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where a message is and, while it is not running, everything that keeps it from being claimed.

    True at one instant of the server, ``now``. ``str()`` is the same in words, one line each.

    ``stops`` is empty while it runs, when it is dead, and when nothing stops it: then its turn has not come. Before it go
    ``position`` messages of its queue, ``lanes_ahead`` others of its tenant's queues and ``tenants_ahead`` tenants (the
    first five are ``ahead``): those whose turn comes first, who can use it, and of tenants also those that hold less than
    they are guaranteed. Where all three are 0 and nothing stops it, the next claim takes it.
    """

    tenant: str
    id: str
    queue: str
    pool: str
    priority: int
    state: MessageState
    now: datetime
    since: datetime | None
    """When it came to this state, where that is known."""
    stops: tuple[Stop, ...] = ()
    position: int | None = None
    """While it is ready: how many messages of its queue that share its limits are before it."""
    lanes_ahead: int | None = None
    """While its queue takes turns; None while it waits at a limit or is paused."""
    tenants_ahead: int | None = None
    """While its queue takes turns, or waits at a limit: then of those that wait there. None while it is paused."""
    ahead: tuple[str, ...] = ()
    estimate: timedelta | None = None
    """While it is ready: how long until it starts, if its tenant goes on being served in the pool as in the last five minutes,
    and its queues there all have work until then. None: it was not served there, no worker that is alive claims from the
    pool, or what stops this message does not pass by itself."""
    workers: int = 0
    """How many workers that are alive claim from its pool. Programs that claim by hand are not known."""
    expires_at: datetime | None = None
    """While it waits for its first start and has a time to live."""
    lease: LeaseInfo | None = None
    """While it is in flight: who has it."""
    cancelling: bool = False
    """It is in flight and cancelled: whatever ends its delivery ends it."""
    attempt: int = 0
    max_attempts: int = 0
    crashes: int = 0
    error: str | None = None
    """Of its last failure."""
    error_at: datetime | None = None
    reason: str | None = None
    """Of a dead letter: why it died."""

    @property
    def lines(self) -> list[str]:
        """In words: where it is, what stops it, and what happened before."""
        return [self._where(), *self._why(), *self._before()]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _where(self) -> str:
        if self.state is MessageState.IN_FLIGHT:
            who = self.lease.consumer if self.lease else "nobody"
            return f"in flight: {who} has it{self._since()}"
        where = "" if self.state is MessageState.DEAD else f" in queue {self.queue} of pool {self.pool}"
        return f"{self.state}{where}{self._since()}"

    def _since(self) -> str:
        return f" since {_at(self.since)}, for {_span(self.now - self.since)}" if self.since else ""

    def _why(self) -> Iterator[str]:
        yield from map(str, self.stops)
        if self.state is MessageState.READY:
            yield from self._turn()
        if self.state is MessageState.DELAYED and not self.stops:
            yield "it is due: the next claim makes it ready"
        if self.estimate is not None:
            yield f"as its tenant was served in the last five minutes, it starts in about {_span(self.estimate)}"
        if self.state in {MessageState.READY, MessageState.DELAYED} and not self.workers:
            yield f"no worker is alive that claims from pool {self.pool}"
        if self.state is MessageState.IN_FLIGHT:
            yield from self._lease()
        if self.expires_at and self.expires_at > self.now:
            yield f"it expires if it has not started by {_at(self.expires_at)}"
        if self.state is MessageState.DEAD:
            yield f"it died: {self.reason or 'nobody knows why'}; it stays dead until it is redriven or purged"

    def _turn(self) -> Iterator[str]:
        if not self.stops:
            yield "nothing stops it: its turn has not come"
        if self.position:
            yield f"{counted(self.position, 'message')} of its queue before it"
        if self.lanes_ahead:
            yield f"{counted(self.lanes_ahead, 'other queue')} of its tenant before it"
        if self.tenants_ahead:
            yield f"{counted(self.tenants_ahead, 'tenant')} before its tenant{self._named(self.tenants_ahead)}"

    def _named(self, tenants: int) -> str:
        more = tenants - len(self.ahead)
        named = ", ".join(self.ahead) + (f" and {more} more" if more > 0 else "")
        return f": {named}" if self.ahead else ""  # nobody of those that were looked at

    def _lease(self) -> Iterator[str]:
        if self.cancelling:
            yield "it is cancelled: its worker is told with the next extend, and it ends however its delivery does"
        if self.lease is None:
            yield "its lease is lost (reconcile mends it)"
        elif self.lease.deadline < self.now:
            yield f"its lease expired at {_at(self.lease.deadline)}: the next reclaim takes it back"
        else:
            yield f"its lease lasts until {_at(self.lease.deadline)}"

    def _before(self) -> Iterator[str]:
        if self.attempt or self.crashes:
            yield f"attempt {self.attempt} of {self.max_attempts}" + (
                f", {counted(self.crashes, 'crash', 'crashes')}" if self.crashes else ""
            )
        if self.error_at:
            yield f"last error, at {_at(self.error_at)}: {' '.join((self.error or '').split()) or 'no text'}"


def _paused(pause: Pause) -> str:
    named = {"tenant": pause.tenant, "queue": pause.queue, "pool": pause.pool}
    what = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    by = f" by {pause.by}" if pause.by else ""
    why = f": {' '.join(pause.reason.split())}" if pause.reason else ""
    return f"{what} is paused{by} since {_at(pause.since)}{why}"


def _at(instant: datetime | None) -> str:
    if instant is None:
        return "an unknown instant"
    finest = "milliseconds" if instant.microsecond else "seconds"
    return instant.isoformat(" ", finest).removesuffix("+00:00") + " UTC"


def _span(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    return f"{seconds:.1f} s" if seconds < 120 else str(timedelta(seconds=round(seconds)))
