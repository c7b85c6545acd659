"""Sans-IO: each operation builds a ``Call``: script, arguments, and how to read the answer. Pure functions of their input.

A runner (connection.py) sends calls; the same call sent twice is the same call, so a lost reply is repaired by
sending it again.
"""

from __future__ import annotations

from .auditing import AuditCalls
from .call import ANY_REVISION, Call, CallNumber, Stream
from .control import SELECTORS, ControlCalls, Selectors
from .delivery import DeliveryCalls, Extended, NewRow, SettleRow
from .duties import DutyCalls
from .reading import ReadCalls
from .settings import DECLARABLE, Settings, SettingsCalls

__all__ = [
    "ANY_REVISION",
    "DECLARABLE",
    "SELECTORS",
    "Call",
    "CallNumber",
    "Calls",
    "Extended",
    "NewRow",
    "Selectors",
    "Settings",
    "SettleRow",
    "Stream",
]  # fmt: skip


class Calls(DeliveryCalls, ControlCalls, SettingsCalls, ReadCalls, DutyCalls, AuditCalls):
    """Every call of one namespace."""

    __slots__ = ()
