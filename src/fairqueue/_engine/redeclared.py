"""What a changed declaration leaves to do, in bounded steps: on record at the server until a client has done it.

The client that declared it may have died before, so each that connects looks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from .calls import Calls
from .connection import Connection
from .keys import key
from .replies import text

_WOKEN_TOGETHER = 50  # groups in one round trip


async def follow_up(connection: Connection, calls: Calls, stored: Mapping[str, str]) -> None:
    """Does what the stored settings say is left to do, and strikes it off the record."""
    duties: dict[str, Callable[[Connection, Calls], Awaitable[None]]] = {
        "to_retag": _start_level,
        "to_wake": _wake_who_fits,
    }
    for name, duty in duties.items():
        if stored.get(name):
            await duty(connection, calls)
            await connection.command("HDEL", key(calls.root, "settings"), name)


async def _start_level(connection: Connection, calls: Calls) -> None:
    """Another scheduler: tags of the other kind would let some starve until the others have passed them."""
    for pool in await connection.read("SMEMBERS", key(calls.root, "pools"), empty=[]):
        cursor = "ring0"
        while cursor:
            cursor = await connection.run(calls.retag(text(pool), cursor))


async def _wake_who_fits(connection: Connection, calls: Calls) -> None:
    """A raised default makes room in groups of tenants that wait: each is looked at, by the script that wakes."""
    groups = await connection.read("SMEMBERS", key(calls.root, "groups"), empty=[])
    asked = [(text(group), "0") for group in groups]
    while asked:
        page, asked = asked[:_WOKEN_TOGETHER], asked[_WOKEN_TOGETHER:]
        answers = await connection.run_all([calls.reconcile_group(*one) for one in page])
        for (group, _), answer in zip(page, answers, strict=True):
            if isinstance(answer, Exception):
                raise answer
            if answer[0] != "0":  # more of its slots to look at, or more waiters than one script may wake
                asked.append((group, answer[0]))
