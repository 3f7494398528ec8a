from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from headgate.server.logs import JsonFormatter, TextFormatter, configure_logs
from headgate.server.settings import Log


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    error = None
    try:
        raise ValueError("what went wrong")
    except ValueError:
        error = sys.exc_info() if extra.pop("failed", False) else None
    made = logging.LogRecord("headgate.server", logging.WARNING, __file__, 1, message, arguments, error)
    made.created, made.msecs = 1_795_248_000.123, 123.0
    made.__dict__.update(extra)
    return made


def test_a_line_of_json_has_time_level_logger_message_and_what_was_added() -> None:
    line = JsonFormatter().format(record("login refused: user %r\nfrom %s", "anna", "::1", connection="x#1"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-21T08:00:00.123Z",
        "level": "warning",
        "logger": "headgate.server",
        "message": "login refused: user 'anna'\nfrom ::1",
        "connection": "x#1",
    }


def test_an_error_is_told_with_its_traceback() -> None:
    assert "ValueError: what went wrong" in json.loads(JsonFormatter().format(record("failed", failed=True)))["error"]
    text = TextFormatter().format(record("failed", failed=True))
    assert text.startswith("2026-11-21T08:00:00.123Z warning headgate.server: failed\nTraceback")


def test_what_json_does_not_know_is_told_as_text() -> None:
    line = json.loads(JsonFormatter().format(record("x", peer=object(), at={1, 2})))
    assert line["peer"].startswith("<object") and line["message"] == "x"


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    others = {name: logging.getLogger(name).level for name in ("numba", "uvicorn", "asyncio")}
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in others.items():
        logging.getLogger(name).setLevel(before)


def test_logs_go_to_standard_error_from_the_level_that_is_configured(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(Log(level="warning", format="json"))
    logging.getLogger("headgate.server").info("not told")
    logging.getLogger("headgate.server").warning("told")
    shown = capsys.readouterr()
    assert shown.out == "" and [json.loads(line)["message"] for line in shown.err.splitlines()] == ["told"]
