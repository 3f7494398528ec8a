from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from headgate.server.logs import JsonFormatter, TextFormatter, configure_logs
from headgate.server.settings import Log


def record(message: str, *arguments: object, reason: str = "what went wrong", **extra: object) -> logging.LogRecord:
    error = None
    try:
        raise ValueError(reason)
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
    assert text.startswith(
        "2026-11-21T08:00:00.123Z warning headgate.server: failed\n    Traceback (most recent call last):"
    )
    assert text.endswith("\n    ValueError: what went wrong")


def test_what_json_does_not_know_is_told_as_text() -> None:
    line = json.loads(JsonFormatter().format(record("x", peer=object(), at={1, 2})))
    assert line["peer"].startswith("<object") and line["message"] == "x"


FORGED = "2026-11-21T08:00:00.123Z error headgate.server: all is lost"
LINE_BREAKS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")


@pytest.mark.parametrize("line_break", LINE_BREAKS)
def test_a_name_with_line_breaks_makes_no_line_of_its_own(line_break: str) -> None:
    name = f"x{line_break}{FORGED}"
    (line,) = TextFormatter().format(record("stream %s: no such stream", name)).splitlines()
    shown = line_break.encode("unicode_escape").decode()
    assert line == f"2026-11-21T08:00:00.123Z warning headgate.server: stream x{shown}{FORGED}: no such stream"
    failed = TextFormatter().format(record("failed", failed=True, reason=name)).splitlines()
    assert [line for line in failed if line.startswith("2026")] == failed[:1]
    assert json.loads(JsonFormatter().format(record("%s", name)))["message"] == name


def test_a_name_does_not_move_the_cursor_or_hide_itself() -> None:
    text = TextFormatter().format(record("user %s", "\x1b[2J\x9b1m\u202etseug\u200b\x7f\udcff é 東京"))
    assert text.endswith(r"user \x1b[2J\x9b1m\u202etseug\u200b\x7f\udcff é 東京")


def test_a_name_that_is_no_utf_8_is_told_in_json_too() -> None:
    line = json.loads(JsonFormatter().format(record("user %s", "n\udcff", failed=True, reason="\udcff", peer="\ud800")))
    assert (line["message"], line["peer"]) == (r"user n\udcff", r"\ud800")
    assert line["error"].endswith(r"ValueError: \udcff")


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
