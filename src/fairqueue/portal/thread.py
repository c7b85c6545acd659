"""The thread that a loop runs in: begun once, and come to its end."""

from __future__ import annotations

import _thread
import asyncio
import threading

_ENDS_WITHIN = 5.0  # seconds that a loop gets to come to its end
_starting = threading.Lock()


def serving(loop: asyncio.AbstractEventLoop) -> threading.Thread:
    """A thread for the loop; it is not begun yet."""
    return threading.Thread(target=_serve, args=(loop,), name="fairqueue-sync", daemon=True)


def begin(thread: threading.Thread) -> None:
    """Once, however often it is asked for: ``start()`` holds locks meanwhile that the new thread waits for.

    So it is called in a thread that no signal reaches. Whoever was interrupted as it asked for it asks again.
    """
    if thread.ident is None:
        _thread.start_new_thread(_start_once, (thread,))


def wait_for(thread: threading.Thread) -> None:
    """Until it has ended, or had its time to."""
    if thread.is_alive():
        thread.join(timeout=_ENDS_WITHIN)


def _start_once(thread: threading.Thread) -> None:
    with _starting:
        if thread.ident is None:
            thread.start()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped. What ends a program ends the call it was raised in: the others go on, and can be closed."""
    while True:
        try:
            loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            continue
        loop.close()
        return
