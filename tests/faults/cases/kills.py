"""kill -9 of a client at an exact command."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tests.faults.cases.actors import Actor, Cast
from tests.support.proxy import Proxy, hold_reply
from tests.support.waiting import eventually


async def killed_after(call: int, proxy: Proxy, cast: Cast, order: dict[str, Any], **options: Any) -> bool:
    """Starts an actor that does the order and kills it when the server has done its k-th command; False: it had fewer."""
    proxy.reset()
    gate = threading.Event()
    held_back = hold_reply(gate)
    proxy.next(None, held_back, after=call - 1)
    actor = cast.start(url=proxy.url, **options)
    actor.tell(**order)
    answer = asyncio.ensure_future(_answered(actor))

    def reached_and_done() -> bool:
        return not proxy.waiting and not any(held_back in link.unanswered for link in proxy._links)

    await eventually(lambda: answer.done() or reached_and_done(), "the command or the end")
    reached = not answer.done()
    actor.kill()
    await answer
    gate.set()
    proxy.reset()
    return reached


async def _answered(actor: Actor) -> None:
    """Its connecting, then its work; or its death."""
    await actor.hear()
    await actor.hear()
