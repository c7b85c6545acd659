"""A background event loop for programs without one: each call is run there, and waited for here.

Whoever waits may be interrupted at any moment, by a signal's handler that raises (Ctrl-C, a request's timeout). Then the
call is cancelled, and what it brought all the same is given back: its result belongs to nobody.
"""

from __future__ import annotations

from .portal import Portal

__all__ = ["Portal"]
