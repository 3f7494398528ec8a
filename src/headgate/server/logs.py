"""Log lines of the server on standard error: text for people, or one JSON object per line for collectors.

Names and reasons in them come from clients. Anything that a terminal or a reader of lines would not take for a plain
character is escaped as in Python: line breaks of every kind, other control characters (ANSI sequences begin with one),
invisible characters, surrogates. So a line that begins with a time was written by this process.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

from headgate.server.settings import Log
from headgate.visible import visible

_OWN_FIELDS = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "taskName"}


def configure_logs(settings: Log) -> None:
    """Send the logs of this process to standard error, in the form and from the level of the configuration."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # The command line reports compiling by itself, without a time.
    kernels = logging.getLogger("headgate.kernels")
    kernels.handlers.clear()
    kernels.setLevel(logging.NOTSET)
    # The compiler of kernels and the HTTP library log at `info` for their own developers only.
    for name in ("numba", "uvicorn", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class TextFormatter(logging.Formatter):
    """`2026-11-21T08:00:00.123Z info headgate.server: …`, with the traceback below, its lines indented."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        lines = [f"{_moment(record)} {record.levelname.lower()} {record.name}: {visible(record.getMessage())}"]
        if record.exc_info:
            lines += [f"    {visible(line)}" for line in self.formatException(record.exc_info).split("\n")]
        return "\n".join(lines)


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
        sayable = {key: _utf8(value) if isinstance(value, str) else value for key, value in line.items()}
        return msgspec.json.encode(sayable, enc_hook=lambda value: _utf8(str(value))).decode()


def _utf8(text: str) -> str:
    """`text` with escapes for surrogates, which JSON cannot hold; they stand for bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"
