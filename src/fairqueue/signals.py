"""SIGTERM and SIGINT: asked to stop, a process ends in its own time."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["STOP_SIGNALS", "stop_signals"]

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block SIGTERM and SIGINT call ``stop`` in the running event loop, each time one comes.

    In another thread than the main one nothing changes: Python delivers signals to the main thread alone.

    Example:
        >>> with stop_signals(stopping.set):
        ...     await stopping.wait()
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
