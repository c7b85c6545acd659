"""Processes by their numbers: whether they are there, and whether they have let go of everything."""

from __future__ import annotations

import os
from pathlib import Path


def exists(pid: int) -> bool:
    """Is there a process of this number, ended or not?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid: int) -> bool:
    """Whether all of it has ended; one that nobody has waited for yet has ended too.

    The first thread of a killed process may be dead while another one still holds the sockets open: who connects then
    is accepted, and reset.
    """
    if not exists(pid):
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    except OSError:
        return not exists(pid)
