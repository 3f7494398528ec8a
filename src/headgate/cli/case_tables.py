"""Tables of cases: JSON lines, each a filter and the messages that it matches, for `headgate filter test`.

docs/reference/case-tables.md describes the keys. What is wrong with a line is a failure of that line, never an
exception.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from headgate.errors import DataError, FilterError, HeadgateError
from headgate.evaluate import Engine, Filter
from headgate.language import dialect_named
from headgate.message import EncodedMessages

EngineChoice: TypeAlias = Literal["reference", "kernel", "both"]
"""Which evaluators decide the messages."""

DEFAULT_MESSAGES = "rabbitmq_messages.jsonl"
"""The file with the messages, beside the table, unless another one is given."""

DEFAULT_DIALECT = "rabbitmq"
"""The language of lines that name none."""

_MAX_LINE_BYTES = 64 * 1024 * 1024
_MAX_SHOWN_CHARACTERS = 2000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableFailure:
    """A case that did not come out as the table says, or a line that is no case."""

    file: Path
    line: int
    id: str
    text: str
    expected: str
    got: str
    engine: str = ""

    def __str__(self) -> str:
        engine = f" [{self.engine}]" if self.engine else ""
        return (
            f"{self.file}:{self.line} {self.id}{engine}\n"
            f"  text:     {self.text}\n  expected: {self.expected}\n  got:      {self.got}"
        )


@dataclass(frozen=True, slots=True)
class TableResult:
    """The results of all cases, a line each."""

    passed: int
    failures: tuple[TableFailure, ...]

    def __str__(self) -> str:
        return f"{self.passed} passed, {len(self.failures)} failed"


class _Failed(Exception):  # noqa: N818 - becomes a TableFailure
    """The expectation of a line, and the result instead."""

    def __init__(self, expected: str, got: str, engine: str = "") -> None:
        super().__init__(got)
        self.expected, self.got = _shortened(expected), _shortened(got)
        self.engine = engine


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages by number: `numbers[i]` is that of row i; or the problem why there are none."""

    numbers: tuple[int, ...]
    batch: EncodedMessages
    problem: str = ""


def run_tables(
    files: Iterable[Path],
    *,
    now_ms: int,
    messages: Path | None = None,
    engine: EngineChoice = "both",
    dialect: str | None = None,
) -> TableResult:
    """Run every case of the files.

    `messages` is the file with their messages, by default `DEFAULT_MESSAGES` beside each file. `dialect` is the
    language of all lines, by default the one that each names. `now_ms` is what UTC() gives. Raises DataError for a file
    that cannot be read, ConfigError for a language that does not exist.
    """
    engines = tuple(Engine) if engine == "both" else (Engine(engine),)
    language = None if dialect is None else dialect_named(dialect).name
    given = None if messages is None else _read_messages(messages)
    passed, failures = 0, []
    for file in files:
        table = given or _read_messages(file.parent / DEFAULT_MESSAGES, optional=True)
        for number, line in _lines(file):
            content: dict[str, Any] = {}
            try:
                content = _parsed(line)
                passed += _run(content, table, engines, language, now_ms)
            except _Failed as failed:
                text = _shortened(str(content.get("sql") or line[:200].decode(errors="replace").strip()))
                case_id = str(content.get("id", ""))
                failures.append(TableFailure(file, number, case_id, text, failed.expected, failed.got, failed.engine))
    return TableResult(passed, tuple(failures))


def _run(
    content: dict[str, Any], messages: _Messages, engines: tuple[Engine, ...], dialect: str | None, now_ms: int
) -> int:
    """Run one line of a table: 1 if it is a case that passed, 0 if it holds no case."""
    if {"encoded_hex", "idx"} <= content.keys():
        return 0
    text, accepted = _value(content, "sql", str), content.get("accepted", "nothing")
    if accepted is not None and not isinstance(accepted, bool):
        raise _wrong(f"key 'accepted': found {accepted!r}, expected true, false or null")
    own = _value(content, "dialect", str) if "dialect" in content else DEFAULT_DIALECT
    expected = _value(content, "matches", list) if accepted else None
    try:
        filter = Filter.parse(text, dialect or own)
    except FilterError as error:
        if accepted:
            raise _Failed("accepted", f"refused: {error.reason}") from None
        return 1
    except HeadgateError as error:
        raise _wrong(str(error)) from None
    if accepted is False:
        if dialect in (None, own):
            raise _Failed("refused", "accepted")
        return 0  # another language may have a meaning for a text that this one refuses
    if messages.problem:
        raise _Failed("messages to decide", messages.problem)
    for engine in engines:
        mask = filter.mask(messages.batch, now_ms=now_ms, engine=engine)
        got = [number for number, chosen in zip(messages.numbers, mask, strict=True) if chosen]
        if expected is not None and got != expected:
            raise _Failed(f"matches {expected}", f"matches {got}", engine.value)
    return 1


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except RecursionError:
        raise _wrong("nested too deep") from None
    except ValueError as error:
        raise _wrong(str(error)) from None
    if not isinstance(content, dict):
        raise _wrong(f"found a JSON {type(content).__name__}, expected an object")
    return content


def _value(content: dict[str, Any], key: str, kind: type[T]) -> T:
    value = content.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _wrong(f"key {key!r}: found {value!r}, expected {kind.__name__}")
    return value


def _wrong(problem: str) -> _Failed:
    return _Failed("a case as docs/reference/case-tables.md describes them", problem)


def _shortened(text: str) -> str:
    whole = len(text) <= _MAX_SHOWN_CHARACTERS
    return text if whole else f"{text[:_MAX_SHOWN_CHARACTERS]}… ({len(text)} characters)"


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not empty, with their numbers from 1."""
    try:
        with file.open("rb") as opened:
            number = 0
            while line := opened.readline(_MAX_LINE_BYTES):
                number += 1
                if line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(f"table {file} cannot be read: {error.strerror}") from error


def _read_messages(file: Path, *, optional: bool = False) -> _Messages:
    """The messages of a file; a problem is kept for the cases that need them."""
    nothing = EncodedMessages.of(())
    if optional and not file.exists():
        return _Messages((), nothing, f"there are no messages: expected the file {file}, or one given by --messages")
    found: dict[int, bytes] = {}
    for number, line in _lines(file):
        try:
            content = _parsed(line)
            if "encoded_hex" in content and "idx" in content:
                found[_value(content, "idx", int)] = bytes.fromhex(_value(content, "encoded_hex", str))
        except (ValueError, _Failed) as error:
            return _Messages((), nothing, f"line {number} of the messages {file} is wrong: {error}")
    if not found:
        return _Messages((), nothing, f"there are no messages in {file}")
    return _Messages(tuple(found), EncodedMessages.of(found.values()))
