"""What the library logs, on standard error: for commands that run on. Those that end say what is wrong themselves."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Shows what is logged from this level on, one line a record, tracebacks of handlers below theirs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else _plain())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _plain() -> logging.Formatter:
    return logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")


class _JsonLines(logging.Formatter):
    """One JSON object a record."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        for name in ("tenant", "message_id", "attempt"):
            if hasattr(record, name):
                fields[name] = getattr(record, name)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)
