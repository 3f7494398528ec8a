"""Tables of cases: files of JSON lines that say what a filter must do with which messages.

A line is recognised by its keys (docs/reference/case-tables.md); users write tables of their own in the same forms. One
line with a verdict is one case. What is wrong with a line, whatever it is, is a failure of that line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from headgate.case_tables import rabbitmq
from headgate.case_tables.bit_maps import KINDS as BIT_MAP_KINDS
from headgate.case_tables.bit_maps import BitMapCases
from headgate.case_tables.rocketmq import TAG_KINDS, PropertyMaps, check_expression, check_tags
from headgate.case_tables.servicebus import check_action, check_copies, check_correlation, check_sql_filter
from headgate.errors import ConfigError, DataError, HeadgateError
from headgate.evaluate import Engine
from headgate.language import dialect_named
from headgate.message import EncodedMessages

EngineChoice: TypeAlias = Literal["reference", "kernel", "both"]
"""Which evaluator runs the cases that decide messages."""

DEFAULT_MESSAGES = "rabbitmq_messages.jsonl"
"""File beside a table that holds its messages, unless another is given."""

_MAX_LINE_BYTES = 64 * 1024 * 1024


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
    """What came of all cases; `passed + failed` are the cases, one per line with a verdict."""

    passed: int
    failed: int
    failures: tuple[TableFailure, ...]

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed"


def run_tables(
    files: Iterable[Path | str],
    *,
    now_ms: int,
    messages: Path | str | None = None,
    engine: EngineChoice = "both",
    dialect: str | None = None,
) -> TableResult:
    """Run every case of the files; a wrong line is a failure, never an exception.

    `messages`: file with the messages of filter cases, by default `DEFAULT_MESSAGES` beside each file. `dialect`:
    language of SQL filters, by default the one that a line names, or that of the recordings. `now_ms` is what UTC()
    gives. Raises ConfigError for a file that cannot be opened, an engine or a dialect that does not exist.
    """
    if engine not in get_args(EngineChoice):
        raise ConfigError(f"found engine {engine!r}, expected one of {', '.join(get_args(EngineChoice))}")
    engines = tuple(Engine) if engine == "both" else (Engine(engine),)
    language = None if dialect is None else dialect_named(dialect).name
    passed, failures = 0, []
    given = None if messages is None else _read_messages(Path(messages))
    for file in map(Path, files):
        table = given if given is not None else _read_messages(file.parent / DEFAULT_MESSAGES, optional=True)
        run = _Run(file, table, engines, language, now_ms)
        for number, line in _lines(file):
            outcome = run.line(number, line)
            if isinstance(outcome, TableFailure):
                failures.append(outcome)
            else:
                passed += outcome
    return TableResult(passed, len(failures), tuple(failures))


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


def _read_messages(file: Path, *, optional: bool = False) -> rabbitmq.MessageTable:
    """The messages of a file; problems are kept for the cases that need them."""
    if optional and not file.exists():
        return rabbitmq.MessageTable(
            problem=f"there are no messages: expected the file {file}, or one given by --messages"
        )
    found: dict[int, bytes] = {}
    for number, line in _lines(file):
        try:
            content = json.loads(line)
            if "encoded_hex" in content and "idx" in content:
                found[rabbitmq.field(content, "idx", int)] = rabbitmq.hex_bytes(
                    rabbitmq.field(content, "encoded_hex", str)
                )
        except (ValueError, TypeError, rabbitmq.WrongLine) as error:
            return rabbitmq.MessageTable(problem=f"line {number} of the messages {file} is wrong: {error}")
    if not found:
        return rabbitmq.MessageTable(problem=f"there are no messages in {file}")
    return rabbitmq.MessageTable(tuple(found), EncodedMessages.of(found.values()))


class _Run:
    """One file: the chunk layout and messages that its lines build up, and the case that each line is."""

    def __init__(
        self, file: Path, messages: rabbitmq.MessageTable, engines: tuple[Engine, ...], dialect: str | None, now_ms: int
    ) -> None:
        self.file = file
        self.messages = messages
        self.engines = engines
        self.dialect = dialect
        self.now_ms = now_ms
        self.layout = rabbitmq.ChunkLayout()
        self.bit_maps = BitMapCases()
        self.property_maps = PropertyMaps()

    def line(self, number: int, line: bytes) -> TableFailure | int:
        """A failure, or how many cases passed: 0 for lines that are no case."""
        case_id, text = "", line[:200].decode(errors="replace").strip()
        try:
            content = json.loads(line)
            if not isinstance(content, dict):
                raise rabbitmq.WrongLine(f"found a JSON {type(content).__name__}, expected an object")
            case_id, text = str(content.get("id", "")), rabbitmq.filter_text(content) or text
            return self._run(content)
        except rabbitmq.Disagreement as wrong:
            return TableFailure(self.file, number, case_id, text, wrong.expected, wrong.got, wrong.engine)
        except rabbitmq.MissingMessages as missing:
            return TableFailure(self.file, number, case_id, text, "messages to decide", str(missing))
        except rabbitmq.WrongLine as wrong:
            return TableFailure(self.file, number, case_id, text, "a case as the formats of tables say", str(wrong))
        except RecursionError:
            return TableFailure(self.file, number, case_id, text, "JSON", "nested too deep")
        except (ValueError, HeadgateError) as error:
            return TableFailure(self.file, number, case_id, text, "a line that can be read", str(error))

    def _run(self, content: rabbitmq.Line) -> int:
        keys = content.keys()
        match content.get("kind"):
            case "meta":
                return 0
            case "map":
                self.property_maps.add(content)
                return 0
            case "expr":
                check_expression(content, self.property_maps, self.engines, self.now_ms)
                return 1
            case str(kind) if kind in BIT_MAP_KINDS:
                self.bit_maps.check(content)
                return 1
            case str(kind) if kind in TAG_KINDS:
                check_tags(content)
                return 1
            case "layout":
                self.layout = rabbitmq.ChunkLayout.read(content)
                return 0
            case "message":
                self.layout.add_message(content)
                return 0
            case "case":
                rabbitmq.check_chunk_case(
                    content, self.layout, self.engines, self.dialect or rabbitmq.DEFAULT_TABLE_DIALECT, self.now_ms
                )
                return 1
        if {"sql", "accepted"} <= keys:
            return rabbitmq.check_sql(content, self.messages, self.engines, self.dialect, self.now_ms)
        if {"filters", "accepted"} <= keys:
            return rabbitmq.check_properties(content, self.messages, self.engines, self.dialect, self.now_ms)
        if {"encoded_hex", "idx"} <= keys:
            return 0
        if self._run_service_bus(content):
            return 1
        if {"hex", "h", "h_list"} <= keys:
            rabbitmq.check_hash(content)
            return 1
        raise rabbitmq.WrongLine(f"no kind of case has the keys {', '.join(sorted(map(str, keys))) or '(none)'}")

    def _run_service_bus(self, content: rabbitmq.Line) -> bool:
        """Run a case of Service Bus; False if the line is none."""
        if "expression" in content:
            check_sql_filter(content, self.engines, self.now_ms)
        elif "action" in content:
            check_action(content, self.engines, self.now_ms)
        elif "filter" in content:
            check_correlation(content, self.engines, self.now_ms)
        elif {"expect_copies", "rules"} <= content.keys():
            check_copies(content, self.now_ms)
        else:
            return False
        return True
