"""``SyncLease``: a lease without ``await``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic

from fairqueue.generics import P
from fairqueue.lease import Lease
from fairqueue.message import Message
from fairqueue.outcomes import Outcome
from fairqueue.portal import Portal
from fairqueue.validation import several

__all__ = ["SyncLease", "bare"]


class SyncLease(Generic[P]):
    """``Lease`` without ``await``; the same fields and guarantees."""

    __slots__ = ("_lease", "_portal")

    def __init__(self, lease: Lease[P], portal: Portal) -> None:
        self._lease, self._portal = lease, portal

    def __repr__(self) -> str:
        return repr(self._lease).replace("<Lease", "<SyncLease")

    @property
    def message(self) -> Message[P]:
        """The message."""
        return self._lease.message

    @property
    def token(self) -> str:
        """New at every claim, greater in order within a message."""
        return self._lease.token

    @property
    def deadline(self) -> datetime:
        """When the lease expires unless it is extended."""
        return self._lease.deadline

    @property
    def lost(self) -> threading.Event:
        """A ``threading.Event``: set when an extend or settle found the lease lost."""
        return self._lease.lost

    @property
    def cancelled(self) -> threading.Event:
        """A ``threading.Event``: set when an extend or settle found the message cancelled."""
        return self._lease.cancelled

    def extend(self) -> datetime:
        """See ``Lease.extend``."""
        return self._portal.call(self._lease.extend)

    def complete(self) -> Outcome:
        """See ``Lease.complete``."""
        return self._portal.call(self._lease.complete)

    def fail(self, error: BaseException | str | None = None) -> Outcome:
        """See ``Lease.fail``."""
        return self._portal.call(lambda: self._lease.fail(error))

    def release(self, delay: timedelta | float = 0) -> Outcome:
        """See ``Lease.release``."""
        return self._portal.call(lambda: self._lease.release(delay))

    def dead_letter(self, reason: str) -> Outcome:
        """See ``Lease.dead_letter``."""
        return self._portal.call(lambda: self._lease.dead_letter(reason))

    @contextlib.contextmanager
    def keep_alive(self) -> Iterator[SyncLease[P]]:
        """See ``Lease.keep_alive``."""
        keeper = self._lease.keep_alive()
        self._portal.call(keeper.__aenter__, lambda _: _left(keeper))
        try:
            yield self
        finally:
            try:
                self._portal.call(lambda: _left(keeper), certain=True)
            except BaseException:  # interrupted before it was asked for: the lease would be extended for ever
                with contextlib.suppress(Exception):
                    self._portal.call(lambda: _left(keeper), certain=True)
                raise


async def _left(keeper: contextlib.AbstractAsyncContextManager[Any]) -> None:
    await keeper.__aexit__(None, None, None)


def bare(leases: Sequence[SyncLease[P]]) -> list[Lease[P]]:
    """The leases as the asyncio client knows them; all are leases before the first of them is touched."""
    return [lease._lease for lease in several("leases", leases, SyncLease)]  # noqa: SLF001 - the only way in
