"""What the script ``explain`` answers, as Python values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import replies
from .replies import Header

__all__ = ["Explained", "Slot", "StopRow", "explained"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A held slot: of which message, and the lease that took it (None: it has none)."""

    tenant: str
    id: str
    lease: tuple[str, str, int] | None  # token, consumer, claimed at


@dataclass(frozen=True, slots=True)
class StopRow:
    """Something that keeps the message from being claimed; what ``values`` are depends on the kind."""

    kind: str
    values: tuple[str, ...]
    slots: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """All that the server knows of why a message is where it is. Instants are milliseconds; -1 is unknown."""

    now: int
    header: Header
    via: str
    max_attempts: int
    lease: tuple[str, str, int] | None
    due: int | None
    note: tuple[str, int, str] | None
    place: int
    lanes_before: int
    tenants_before: int
    names: tuple[str, ...]
    stops: tuple[StopRow, ...]


def explained(raw: list[Any]) -> Explained | None:
    """None: there is no such message."""
    if not raw:
        return None
    now, header, via, budget, lease, due, note, place, lanes, tenants, names, stops = raw
    return Explained(
        now=int(now),
        header=Header.parse(header),
        via=replies.text(via),
        max_attempts=int(budget),
        lease=replies.lease_of(lease),
        due=replies.instant_of(due),
        note=replies.note_of(note),
        place=place,
        lanes_before=lanes,
        tenants_before=tenants,
        names=tuple(replies.texts(names)),
        stops=tuple(map(_stop, stops)),
    )


def _stop(raw: list[Any]) -> StopRow:
    kind, *values = raw
    slots = values.pop() if values and isinstance(values[-1], list) else []
    return StopRow(
        replies.text(kind),
        tuple(str(value) if isinstance(value, int) else replies.text(value) for value in values),
        tuple(Slot(*replies.identity(mid), replies.lease_of(lease)) for mid, lease in slots),
    )
