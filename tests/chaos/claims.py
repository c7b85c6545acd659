"""What a worker's handlers cannot know: when their claim was asked for, and what was given back before it came to them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fairqueue._engine.replies import Claimed
from fairqueue.claiming import Claimer, ClaimOptions
from fairqueue.lease import Lease, held
from fairqueue.settling import Batch, Request, Settler
from tests.chaos import journal as lines
from tests.chaos.journal import Journal

Asked = dict[tuple[str, str], float]
"""By id and token of a delivery: an instant before its claim was sent for the first time."""


def note_claims(asked: Asked, journal: Journal) -> None:
    """In this process from now on. ``asked`` is added to; whoever starts a delivery takes its entry out."""
    _note_when_asked(asked)
    _note_given_back(journal)


def _note_when_asked(asked: Asked) -> None:
    """A claim that was not answered is repeated and gets what it got the first time: it was asked for then."""
    plain, owed = Claimer._round, []

    async def noted(
        self: Claimer[Any], options: ClaimOptions, batch: Batch | None
    ) -> tuple[Claimed, list[Lease[Any]]]:
        since = min([*owed, time.monotonic()])
        owed.append(since)
        claimed, leases = await plain(self, options, batch)
        if not self._engine.claim_streams.owing:
            owed.clear()
        asked.update({(lease.message.id, lease.token): since for lease in leases})
        return claimed, leases

    Claimer._round = noted  # type: ignore[method-assign]


def _note_given_back(journal: Journal) -> None:
    plain = Settler.batches

    def noted(self: Settler, requests: Sequence[Request]) -> list[Batch]:
        for lease, asked in requests:
            if asked.action == "release" and not held(lease).begun and held(lease).settlement is None:
                journal.write(lines.GIVEN_BACK, lease.message.id)
        return plain(self, requests)

    Settler.batches = noted  # type: ignore[method-assign]
