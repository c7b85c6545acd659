"""Handlers for worker processes, as the text of a module: they write to the file ``log`` in their directory."""

from __future__ import annotations

TEXT = """
import asyncio, os, time
from pathlib import Path


def note(what, message):
    with open("log", "a") as log:
        log.write(f"{what} {message.payload} {os.getpid()}\\\\n")


async def quick(message):
    note("did", message)


async def until_told(message):
    note("began", message)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    note("ended", message)


async def for_ever(message):
    note("began", message)
    await asyncio.Event().wait()


async def in_a_thread_for_ever(message):
    note("began", message)
    await asyncio.to_thread(time.sleep, 600)


def plain_for_ever(message):
    note("began", message)
    time.sleep(600)


async def fails(message):
    note("failed", message)
    raise ValueError("no such invoice")


not_callable = 3


class Object:
    async def __call__(self, message):
        note("did", message)

    async def method(self, message):
        note("did", message)


thing = Object()
""".replace("\\\\", "\\")
