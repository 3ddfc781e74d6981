"""Log lines as text or as JSON, one object a line; fields of their own come after the message."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

__all__ = ["line_fields", "set_up"]

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/+")


def set_up(log_format: str) -> None:
    """Sends the process's log to standard error as `text` or `json`, and nowhere else."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if log_format == "json" else _Text(_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def line_fields(**fields: Any) -> dict[str, Any]:
    """What a logging call takes as `extra`, to have these after its message; None and "" are left out."""
    return {"fields": {name: value for name, value in fields.items() if value is not None and value != ""}}


class _Text(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        return " ".join([super().formatMessage(record), *(f"{name}={_word(value)}" for name, value in fields.items())])


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _word(value: Any) -> str:
    """As it is, or quoted where a reader could take it for more than one word or line."""
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)
