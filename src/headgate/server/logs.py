"""Log lines of the server on standard error: text for people, or one JSON object per line for collectors."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

from headgate.server.settings import Log

_OWN_FIELDS = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "taskName"}


def configure_logs(settings: Log) -> None:
    """Send what this process logs to standard error, in the form and from the level that the configuration says."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # The compiler of kernels and the HTTP library tell at `info` what concerns only their own developers.
    for name in ("numba", "uvicorn", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class TextFormatter(logging.Formatter):
    """`2026-11-21T08:00:00.123Z info headgate.server: …`, with the traceback below."""

    def __init__(self) -> None:
        super().__init__("%(moment)s %(level)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        record.moment = _moment(record)
        record.level = record.levelname.lower()
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """One object per line: `time`, `level`, `logger`, `message`, `error` with the traceback, and extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line of JSON."""
        line: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        line |= {key: value for key, value in record.__dict__.items() if key not in _OWN_FIELDS}
        return msgspec.json.encode(line, enc_hook=str).decode()


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"
