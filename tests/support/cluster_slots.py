"""Slots on their way from one master of the test cluster to another: key by key, in steps that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import redis

from tests.support.cluster_nodes import Node

MIGRATE_TIMEOUT_MS = 5000


class KeyByKey:
    """A slot that is half moved: importing at one master, migrating at the other.

    The source answers for the keys it still has, and -ASK for all others. As a context manager it is finished at the
    end, unless the test failed; without, it stays as it is until ``finish()``, ``back_out()`` or the cluster's ``flush()``.
    """

    def __init__(self, slot: int, source: Node, target: Node, settle: Callable[[], None]) -> None:
        self.slot, self.source, self.target = slot, source, target
        self._settle = settle
        self._finished = False
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    def __enter__(self) -> KeyByKey:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None and not self._finished:
            self.finish()

    def left(self, most: int = 1_000_000) -> list[bytes]:
        """Keys that are still at the source."""
        keys: list[bytes] = self.source.command("CLUSTER", "GETKEYSINSLOT", self.slot, most)
        return keys

    def move(self, *keys: str | bytes) -> None:
        """These keys, in one command; one that is not there is left out."""
        where = ("127.0.0.1", self.target.port, "", 0, MIGRATE_TIMEOUT_MS)
        self.source.command("MIGRATE", *where, "KEYS", *keys)

    def move_some(self, count: int) -> list[bytes]:
        """So many of the keys that are left, whichever; those that were moved."""
        if keys := self.left(count):
            self.move(*keys)
        return keys

    def finish(self) -> None:
        """The rest of the keys, and the slot is the target's; every node says so when it returns."""
        while self.move_some(100):
            pass
        self._settle()
        self._finished = True

    def back_out(self) -> None:
        """Nobody moves the slot any longer. Keys that were moved stay where they are: nobody answers for them."""
        for node in (self.target, self.source):
            node.command("CLUSTER", "SETSLOT", self.slot, "STABLE")
        self._finished = True


def give(slots: Collection[int], target: Node, masters: Sequence[Node]) -> None:
    """Slots without keys become the target's, or with keys that were moved there already.

    The target hears of it first: only who imports a slot takes a newer epoch, and with it outbids the owner before.
    """
    sources = {slot: node.id for node in masters if node is not target for slot in node.itself().slots}
    moving = [slot for slot in slots if slot in sources]
    _setslot(target, [(slot, "IMPORTING", sources[slot]) for slot in moving])
    for node in (target, *(master for master in masters if master is not target)):
        _setslot(node, [(slot, "NODE", target.id) for slot in moving])


def give_atomically(slots: Collection[int], target: Node, masters: Sequence[Node]) -> None:
    """Begins to move slots with their keys by CLUSTER MIGRATESLOTS, from whoever has them."""
    for source in masters:
        ends = [str(end) for run in _runs(source.itself().slots & set(slots)) for end in run]
        if source is not target and ends:
            source.command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *ends, "NODE", target.id)


def _runs(slots: Collection[int]) -> list[tuple[int, int]]:
    """The first and the last of each unbroken row."""
    firsts = sorted(slot for slot in slots if slot - 1 not in slots)
    lasts = sorted(slot for slot in slots if slot + 1 not in slots)
    return list(zip(firsts, lasts, strict=True))


def _setslot(node: Node, orders: Sequence[tuple[Any, ...]]) -> None:
    with redis.Redis(port=node.port, protocol=2) as client:
        pipeline = client.pipeline(transaction=False)
        for order in orders:
            pipeline.execute_command("CLUSTER", "SETSLOT", *order)
        pipeline.execute()
