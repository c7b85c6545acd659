"""Message ids: UUIDs of version 7, which grow with time."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid

__all__ = ["uuid7"]


class _Uuid7Source:
    """Draws version 7 UUIDs (RFC 9562) that grow within the process, also inside one millisecond.

    After the 48 bits of time come a 42-bit counter, which starts anywhere in its lower half at every new
    millisecond and then counts up, and 32 bits drawn anew each time (RFC 9562, section 6.2, method 1).
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._milliseconds = -1
        self._counter = 0

    after_fork_in_child = (
        _forget  # the parent's lock may be held for ever, and its counter is going on elsewhere
    )

    def draw(self) -> int:
        now = time.time_ns() // 1_000_000
        random = int.from_bytes(os.urandom(10))
        with self._lock:
            if now > self._milliseconds:
                self._milliseconds, self._counter = now, random >> 39  # 41 bits
            else:  # the same millisecond, or a clock that was set back: stay in order
                self._counter += 1
                if self._counter >> 42:
                    self._milliseconds, self._counter = self._milliseconds + 1, random >> 39
            milliseconds, counter = self._milliseconds, self._counter
        high, low = counter >> 30, counter & 0x3FFF_FFFF
        return milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low << 32 | random & 0xFFFF_FFFF


_uuid7_source = _Uuid7Source()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_uuid7_source.after_fork_in_child)


def uuid7() -> str:
    """A new UUID of version 7 as text, greater than every one drawn in this process before.

    >>> uuid7()  # doctest: +ELLIPSIS
    '...-...-7...-...-...'
    """
    if sys.version_info >= (3, 14):
        return str(uuid.uuid7())
    digits = f"{_uuid7_source.draw():032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
